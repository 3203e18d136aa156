"""Failures: retries and their back-off, steps that need a person, and compensation (spec: engine.md "States")."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django import Retry, Step, Wait, Workflow
from ezgh_workflows_django.engine import leases, outcomes
from ezgh_workflows_django.errors import RunCancelled, RunFailed, RunTimedOut, VerbRefused
from ezgh_workflows_django.models import JournalEntry
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.protocol.messages import Serve
from ezgh_workflows_django.protocol.outcomes import Outcome, Report
from ezgh_workflows_django.protocol.states import LeaseStatus, RunStatus, StepStatus
from tests.engine import situations
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body, job
from tests.engine.situations import Scene, pair, scene

ON_FAILURE: Final = "on_failure"


def fail_first(desk: Desk, workflow: Workflow, class_: str = "permanent", **start: Any) -> Scene:
    """The step `work` of a new run has failed for good."""
    it = scene(desk, workflow, **start)
    situations.started(it)
    it.hand.fail(it.offered, class_, "no money")
    return it


def compensation(it: Scene, hand: Hand | None = None) -> Any:
    """The lease of `on_failure`, started."""
    worker = hand or it.hand
    [lease] = worker.claim(10)
    worker.start(lease)
    assert lease.step == ON_FAILURE
    return lease


def times_compensated(handle: Any) -> int:
    """How often a body of `on_failure` began."""
    return JournalEntry.objects.filter(run=handle.id, step=ON_FAILURE, kind="step.started").count()


# Retries -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "class_", "left"),
    [
        ("any", "error", StepStatus.READY),
        ("any", "retryable", StepStatus.READY),
        ("any", "timeout", StepStatus.READY),
        ("any", "crashed", StepStatus.READY),
        ("any", "card_declined", StepStatus.READY),
        ("any", "permanent", StepStatus.FAILED),
        ("any", "nondeterminism", StepStatus.FAILED),
        ({"retryable", "timeout"}, "retryable", StepStatus.READY),
        ({"retryable", "timeout"}, "timeout", StepStatus.READY),
        ({"retryable", "timeout"}, "error", StepStatus.FAILED),
        ({"retryable", "timeout"}, "card_declined", StepStatus.FAILED),
        ({"card_declined"}, "card_declined", StepStatus.READY),
    ],
)
def test_a_policy_retries_the_classes_it_covers(desk: Desk, on: Any, class_: str, left: StepStatus) -> None:
    it = fail_first(desk, job(retry=Retry(max_attempts=2, on=on)), class_)
    assert desk.step(it.handle, "work").status == left


def test_without_a_policy_there_is_one_attempt(desk: Desk) -> None:
    it = fail_first(desk, job(), "error")
    failure = it.handle.failure
    assert (failure.class_, failure.message, failure.step, failure.attempt, failure.attempts, failure.timed_out) == ("error", "no money", "work", 1, 1, False)


def test_the_budget_is_max_attempts(desk: Desk) -> None:
    hand = desk.worker(job(retry=Retry(max_attempts=3, initial=1, jitter=0)))
    run = job(retry=Retry(max_attempts=3, initial=1, jitter=0)).start()
    answers = []
    for _ in range(3):
        answers.append(hand.fail(hand.take()).step)
        desk.advance(seconds=10)
    assert answers == [StepStatus.READY, StepStatus.READY, StepStatus.FAILED]
    assert (run.failure.attempts, desk.step(run, "work").failures) == (3, 3)


def test_a_step_of_its_own_policy_does_not_use_the_workflows(desk: Desk) -> None:
    workflow = Workflow("job", [Step("work", run=body, retry=Retry(max_attempts=1))], retry=Retry(max_attempts=5))
    assert fail_first(desk, workflow, "error").handle.status == RunStatus.FAILED


def test_back_off_doubles_up_to_its_maximum(desk: Desk) -> None:
    workflow = job(retry=Retry(max_attempts=6, initial=10, factor=2, maximum=35, jitter=0))
    hand = desk.worker(workflow)
    workflow.start()
    rests = []
    for _ in range(5):
        answer = hand.fail(hand.take())
        rests.append((answer.retry_at - desk.now).total_seconds())  # type: ignore[operator]
        desk.advance(seconds=60)
    assert rests == [10, 20, 35, 35, 35]


@pytest.mark.parametrize("attempt", range(20))
def test_jitter_spreads_a_rest_by_a_tenth(desk: Desk, attempt: int) -> None:
    it = fail_first(desk, job(retry=Retry(max_attempts=2, initial=100)), "error")
    rest = (desk.step(it.handle, "work").available_at - desk.now).total_seconds()  # type: ignore[operator]
    assert 90 <= rest <= 110


@pytest.mark.parametrize(("asked_ms", "rest"), [(None, 10), (0, 10), (5_000, 10), (60_000, 60), (-1, 10)])
def test_a_worker_may_ask_for_a_longer_rest_but_not_for_a_shorter_one(desk: Desk, asked_ms: int | None, rest: int) -> None:
    it = scene(desk, pair())
    situations.started(it)
    answer = it.hand.fail(it.offered, "retryable", retry_after_ms=asked_ms)
    assert answer.retry_at == desk.now + timedelta(seconds=rest)


def test_a_rest_of_over_ten_years_is_refused_by_name(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.started(it)
    answer = it.hand.fail(it.offered, "retryable", retry_after_ms=10**15)
    assert answer.refused is not None
    assert (answer.refused.reason, "retry_after_ms" in answer.refused.message) == ("invalid", True)


def test_a_retry_in_a_paused_run_waits_for_its_resume(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.started(it)
    it.handle.pause()
    it.hand.fail(it.offered)
    desk.advance(seconds=60)
    assert it.hand.claim() == ()
    it.handle.resume()
    assert {lease.step for lease in it.hand.claim()} == {"work", "beside"}


def test_what_failed_is_in_the_journal_with_its_attempt_and_worker(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.failed(it)
    row = JournalEntry.objects.get(run=it.handle.id, kind="step.retry_scheduled")
    assert (row.step, row.attempt, row.worker, json.loads(row.data)["failure"]["message"]) == ("work", 1, "w1", "boom")


# Needing attention -------------------------------------------------------------------------------------------------------


def test_a_step_that_asks_for_a_person_pauses_its_run_with_the_step_failed(desk: Desk) -> None:
    it = situations.needy_run(desk)
    assert (it.handle.status, desk.run(it.handle).attention, desk.step(it.handle, "work").status) == (RunStatus.PAUSED, True, StepStatus.FAILED)
    assert (it.handle.failure.step, it.handle.phase) == ("work", "paused")
    assert it.hand.claim() == ()
    assert "run.needs_attention" in desk.kinds(it.handle)


def test_resume_of_such_a_run_is_a_retry_from_its_failed_steps(desk: Desk) -> None:
    it = situations.needy_run(desk)
    it.handle.resume()
    assert (it.handle.status, it.handle.failure) == (RunStatus.RUNNING, None)
    work = desk.step(it.handle, "work")
    assert (work.status, work.failures, work.attempts) == (StepStatus.READY, 0, 1)
    assert it.hand.work_off() == 2
    assert it.handle.status == RunStatus.SUCCEEDED


def test_a_body_at_work_beside_finishes_while_the_run_needs_attention(desk: Desk) -> None:
    steps = [Step("work", run=body, retry=Retry(exhausted="pause")), Step("beside", run=body), Step("after", run=body, after=["beside"])]
    it = scene(desk, Workflow("needy", steps))
    beside = it.claim("beside")
    it.hand.start(beside)
    situations.started(it)
    it.hand.fail(it.offered)
    assert it.hand.complete(beside).step == StepStatus.SUCCEEDED
    assert it.handle.status == RunStatus.PAUSED
    assert it.hand.claim() == ()
    it.handle.resume()
    assert sorted(lease.step for lease in it.hand.claim()) == ["after", "work"]


def test_the_run_does_not_succeed_while_a_step_of_it_needs_attention(desk: Desk) -> None:
    steps = [Step("work", run=body, retry=Retry(exhausted="pause")), Step("beside", run=body)]
    it = scene(desk, Workflow("needy", steps))
    beside = it.claim("beside")
    it.hand.start(beside)
    situations.started(it)
    it.hand.fail(it.offered)
    it.hand.complete(beside)
    assert it.handle.status == RunStatus.PAUSED
    it.handle.resolve("work", "by hand", "did it myself")
    assert it.handle.result() == {"work": "by hand", "beside": None}


def test_retries_are_spent_before_a_person_is_asked(desk: Desk) -> None:
    workflow = job(retry=Retry(max_attempts=2, initial=1, jitter=0, exhausted="pause"))
    it = fail_first(desk, workflow, "error")
    assert it.handle.status == RunStatus.RUNNING
    desk.advance(seconds=1)
    it.hand.fail(it.claim(claim_id="second"))
    assert it.handle.status == RunStatus.PAUSED


def test_two_steps_may_need_attention_and_are_resumed_together(desk: Desk) -> None:
    workflow = Workflow("needy", [Step("a", run=body), Step("b", run=body)], retry=Retry(exhausted="pause"))
    it = scene(desk, workflow)
    first, second = it.hand.claim(2)
    it.hand.fail(first)
    it.hand.fail(second)
    assert it.handle.status == RunStatus.PAUSED
    it.handle.resume()
    assert {lease.step for lease in it.hand.claim()} == {"a", "b"}


def test_a_failure_beside_a_step_that_needs_attention_fails_the_run(desk: Desk) -> None:
    steps = [Step("work", run=body, retry=Retry(exhausted="pause")), Step("beside", run=body)]
    it = scene(desk, Workflow("needy", steps, on_failure=body))
    beside = it.claim("beside")
    it.hand.start(beside)
    situations.started(it)
    it.hand.fail(it.offered)
    it.hand.fail(beside, "permanent", "worse")
    assert (it.handle.status, desk.run(it.handle).attention, it.handle.failure.step) == (RunStatus.FAILING, False, "beside")
    it.hand.complete(compensation(it))
    assert it.handle.status == RunStatus.FAILED


def test_a_run_that_needs_attention_has_no_compensation_until_it_is_over(desk: Desk) -> None:
    steps = [Step("work", run=body, retry=Retry(exhausted="pause"))]
    it = scene(desk, Workflow("needy", steps, on_failure=body, deadline=timedelta(hours=1)))
    situations.started(it)
    it.hand.fail(it.offered)
    assert not StepRow.objects.filter(run=it.handle.id, name=ON_FAILURE).exists()
    desk.advance(hours=1)
    assert compensation(it).failure.class_ == "deadline"


def test_poison_asks_for_a_person_too_where_the_policy_says_so(desk: Desk, settings: Any) -> None:
    settings.EZGH_WORKFLOWS = {"MAX_RECLAIMS": 0}
    it = scene(desk, job(retry=Retry(exhausted="pause")))
    situations.reclaimed(it)
    assert (it.handle.status, it.handle.failure.class_) == (RunStatus.PAUSED, "poison")
    it.handle.resume()
    assert desk.step(it.handle, "work").reclaims == 0


# A run that fails --------------------------------------------------------------------------------------------------------


def test_when_a_step_fails_for_good_the_others_are_cancelled(desk: Desk) -> None:
    it = fail_first(desk, pair())
    assert (it.handle.status, desk.step(it.handle, "beside").status) == (RunStatus.FAILED, StepStatus.CANCELLED)
    assert it.hand.claim() == ()
    with pytest.raises(RunFailed, match="no money"):
        it.handle.result()


def test_of_two_failures_in_one_call_the_first_fails_the_run_and_the_second_is_fenced(desk: Desk) -> None:
    it = scene(desk, Workflow("pair", [Step("a", run=body), Step("b", run=body)]))
    other = it.workflow.start()
    offered = it.hand.claim(4)
    leases.started([lease.id for lease in offered])
    mine = [lease for lease in offered if lease.run_id == it.handle.id]
    rest = [lease for lease in offered if lease.run_id == other.id]
    told = outcomes.report(
        [Report(lease.id, Outcome.failed("error", lease.step)) for lease in mine] + [Report(lease.id, Outcome.completed()) for lease in rest]
    )
    assert [answer.refused.reason if answer.refused else answer.step for answer in told] == ["failed", "fenced", "succeeded", "succeeded"]
    assert (it.handle.failure.message, other.status) == (mine[0].step, RunStatus.SUCCEEDED)
    assert [kind for kind in desk.kinds(it.handle) if kind in ("step.failed", "run.failed")] == ["step.failed", "run.failed"]


def test_a_completion_in_one_call_with_the_failure_before_it_is_fenced(desk: Desk) -> None:
    it = scene(desk, Workflow("pair", [Step("a", run=body), Step("b", run=body)]))
    it.workflow.start()
    offered = it.hand.claim(4)
    leases.started([lease.id for lease in offered])
    mine = [lease for lease in offered if lease.run_id == it.handle.id]
    told = outcomes.report([Report(mine[0].id, Outcome.failed("error", "boom")), Report(mine[1].id, Outcome.completed("late"))])
    assert [answer.refused.reason if answer.refused else answer.step for answer in told] == ["failed", "fenced"]
    assert desk.step(it.handle, mine[1].step).status == StepStatus.CANCELLED


def test_a_completion_in_one_call_with_the_failure_after_it_counts(desk: Desk) -> None:
    it = scene(desk, Workflow("pair", [Step("a", run=body), Step("b", run=body)]))
    first, second = it.hand.claim(2)
    leases.started([first.id, second.id])
    told = outcomes.report([Report(first.id, Outcome.completed("done")), Report(second.id, Outcome.failed("error", "boom"))])
    assert [answer.step for answer in told] == ["succeeded", "failed"]
    assert it.handle.status == RunStatus.FAILED


# Compensation ------------------------------------------------------------------------------------------------------------


def test_compensation_runs_with_the_failed_steps_input_and_the_failure(desk: Desk) -> None:
    workflow = Workflow(
        "order",
        [Step("reserve", run=body), Step("charge", after=["reserve"], run=body), Step("work", after=["reserve", "charge"], run=body)],
        on_failure=body,
        timeout=timedelta(minutes=3),
    )
    it = scene(desk, workflow)
    it.hand.complete(it.claim("reserve"), {"id": 7})
    it.hand.complete(it.claim("charge"), {"paid": 40}, state={"tx": "t-1"})
    it.hand.fail(it.claim(), "card_declined", "no money")
    assert it.handle.status == RunStatus.FAILING
    lease = compensation(it)
    assert lease.input == {"reserve": {"id": 7}, "charge": {"paid": 40}}
    assert (lease.failure.class_, lease.failure.message, lease.failure.step, lease.failure.attempt) == ("card_declined", "no money", "work", 1)
    assert lease.steps == {"reserve": {"id": 7}, "charge": {"paid": 40}}
    assert (lease.state, lease.timeout_ms, lease.deadline, lease.delivery) == ({"tx": "t-1"}, 180_000, None, "at_least_once")
    assert it.hand.complete(lease).run == RunStatus.FAILED
    assert it.handle.failure.class_ == "card_declined"


def test_the_input_of_a_failed_root_is_the_payload(desk: Desk) -> None:
    it = fail_first(desk, job(on_failure=body))
    assert compensation(it).input == {"n": 1}


def test_compensation_is_told_of_a_wait_that_timed_out(desk: Desk) -> None:
    workflow = Workflow("approval", [Step("ask", run=body), Step("work", after=["ask"], wait=Wait("approved", timeout=60))], on_failure=body)
    it = scene(desk, workflow)
    it.hand.complete(it.claim("ask"), {"asked": "ann"})
    desk.advance(seconds=60)
    lease = compensation(it)
    assert (lease.failure.class_, lease.failure.timed_out, lease.failure.step, lease.input) == ("timeout", True, "work", {"asked": "ann"})


def test_a_run_past_its_deadline_compensates_with_its_payload(desk: Desk) -> None:
    it = scene(desk, job(on_failure=body, deadline=timedelta(hours=1)))
    desk.advance(hours=1)
    assert it.handle.status == RunStatus.FAILING
    lease = compensation(it)
    assert (lease.input, lease.failure.class_, lease.failure.timed_out, lease.failure.step) == ({"n": 1}, "deadline", True, None)
    assert it.hand.complete(lease).run == RunStatus.TIMED_OUT
    with pytest.raises(RunTimedOut):
        it.handle.result()


def test_a_cancelled_run_does_not_compensate(desk: Desk) -> None:
    it = scene(desk, job(on_failure=body))
    it.handle.cancel("no more")
    assert (it.handle.status, it.hand.claim(), times_compensated(it.handle)) == (RunStatus.CANCELLED, (), 0)
    with pytest.raises(RunCancelled):
        it.handle.result()


def test_a_run_that_succeeds_has_no_trace_of_its_unused_handler(desk: Desk) -> None:
    """B64: an unused handler is neither cancelled nor failed: it is not there."""
    it = scene(desk, job(on_failure=body))
    it.hand.work_off()
    assert it.handle.status == RunStatus.SUCCEEDED
    assert [step.name for step in it.handle.steps] == ["work"]


def test_a_failure_that_is_retried_does_not_compensate(desk: Desk) -> None:
    """B64."""
    it = fail_first(desk, job(on_failure=body, retry=Retry(max_attempts=2)), "error")
    assert it.handle.status == RunStatus.RUNNING
    assert not StepRow.objects.filter(run=it.handle.id, name=ON_FAILURE).exists()


def by_error(it: Scene) -> None:
    """Its last attempt raised."""
    situations.started(it)
    it.hand.fail(it.offered)


def by_reported_timeout(it: Scene) -> None:
    """Its worker says that the time is over."""
    situations.started(it)
    it.hand.fail(it.offered, "timeout")


def by_unreported_timeout(it: Scene) -> None:
    """Nobody says so; the body that was cut short is past its window."""
    situations.started(it)
    it.desk.advance(seconds=20)
    it.desk.advance(seconds=60)


def by_lost_worker(it: Scene) -> None:
    """The lease expires, and the window with it."""
    situations.reclaimed(it)


def by_deadline(it: Scene) -> None:
    """The run's time is over, and the window of what was cut short."""
    situations.started(it)
    it.desk.advance(minutes=10)
    it.desk.advance(minutes=1)


def by_deadline_while_nobody_works(it: Scene) -> None:
    """No worker ever came."""
    it.desk.advance(minutes=10)


CAUSES: Final[Mapping[str, tuple[Callable[[Scene], None], Mapping[str, Any], str, RunStatus]]] = {
    "error": (by_error, {}, "error", RunStatus.FAILED),
    "reported timeout": (by_reported_timeout, {}, "timeout", RunStatus.FAILED),
    "unreported timeout": (by_unreported_timeout, {"timeout": 10}, "timeout", RunStatus.FAILED),
    "poison": (by_lost_worker, {}, "poison", RunStatus.FAILED),
    "lost under at_most_once": (by_lost_worker, {"delivery": "at_most_once"}, "orphaned", RunStatus.FAILED),
    "deadline": (by_deadline, {"timeout": 3_600}, "deadline", RunStatus.TIMED_OUT),
    "deadline, no worker": (by_deadline_while_nobody_works, {}, "deadline", RunStatus.TIMED_OUT),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_compensation_runs_once_however_the_run_came_to_fail(desk: Desk, settings: Any, cause: str) -> None:
    """B34: also where the last attempt was lost with its worker, timed out unseen, or never began."""
    settings.EZGH_WORKFLOWS = {"MAX_RECLAIMS": 0}
    bring_about, options, class_, ending = CAUSES[cause]
    it = scene(desk, Workflow("job", [Step("work", run=body, **options)], on_failure=body, deadline=timedelta(minutes=10)))
    bring_about(it)
    assert it.handle.status == RunStatus.FAILING
    lease = compensation(it)
    assert lease.failure.class_ == class_
    assert it.hand.complete(lease).run == ending
    desk.advance(hours=48)
    assert (times_compensated(it.handle), it.handle.failure.class_) == (1, class_)


def test_compensation_waits_for_the_acknowledgement_of_a_body_that_was_cut_short(desk: Desk) -> None:
    """It never overlaps the work: a refused heartbeat is no acknowledgement, the refused end of the body is."""
    it = scene(desk, pair(on_failure=body))
    beside = it.claim("beside")
    it.hand.start(beside)
    situations.started(it)
    it.hand.fail(it.offered, "permanent")
    assert (it.handle.status, it.hand.claim()) == (RunStatus.FAILING, ())
    assert it.hand.beat(beside).refused.reason == "fenced"  # type: ignore[union-attr]
    assert it.hand.claim() == ()
    assert it.hand.fail(beside, "returned").refused.reason == "fenced"  # type: ignore[union-attr]
    assert compensation(it).step == ON_FAILURE


def test_a_late_outcome_that_says_its_body_may_still_be_at_work_is_no_acknowledgement(desk: Desk) -> None:
    it = scene(desk, pair(on_failure=body))
    beside = it.claim("beside")
    it.hand.start(beside)
    situations.started(it)
    it.hand.fail(it.offered, "permanent")
    assert it.hand.fail(beside, "timeout", body_ended=False).refused.reason == "fenced"  # type: ignore[union-attr]
    assert it.hand.claim() == ()
    it.hand.fail(beside, "returned")
    assert compensation(it).step == ON_FAILURE


def test_the_late_completion_of_a_body_that_was_cut_short_acknowledges_too(desk: Desk) -> None:
    it = scene(desk, pair(on_failure=body))
    beside = it.claim("beside")
    it.hand.start(beside)
    situations.started(it)
    it.hand.fail(it.offered, "permanent")
    it.hand.complete(beside, "too late")
    assert compensation(it).steps == {}


def test_an_acknowledgement_counts_once(desk: Desk) -> None:
    steps = [Step(name, run=body) for name in ("work", "b", "c")]
    it = scene(desk, Workflow("three", steps, on_failure=body))
    b, c = it.claim("b"), it.claim("c")
    leases.started([b.id, c.id])
    situations.started(it)
    it.hand.fail(it.offered, "permanent")
    it.hand.fail(b, "returned")
    it.hand.fail(b, "returned")
    assert it.hand.claim() == ()
    it.hand.fail(c, "returned")
    assert compensation(it).step == ON_FAILURE


def test_compensation_does_not_wait_for_longer_than_a_lease_and_its_window(desk: Desk) -> None:
    it = scene(desk, pair(on_failure=body))
    it.hand.start(it.claim("beside"))
    situations.started(it)
    it.hand.fail(it.offered, "permanent")
    desk.advance(seconds=59.999)
    assert it.hand.claim() == ()
    desk.advance(seconds=0.001)
    assert compensation(it).step == ON_FAILURE


def test_an_offer_that_was_never_started_is_not_waited_for(desk: Desk) -> None:
    it = scene(desk, pair(on_failure=body))
    it.claim("beside")
    situations.started(it)
    it.hand.fail(it.offered, "permanent")
    assert compensation(it).step == ON_FAILURE


def test_an_orphan_is_waited_for(desk: Desk) -> None:
    it = scene(desk, pair(on_failure=body))
    beside = it.claim("beside")
    it.hand.start(beside)
    desk.advance(seconds=30)
    situations.started(it)
    it.hand.fail(it.offered, "permanent")
    assert it.hand.claim() == ()
    it.hand.fail(beside, "returned")
    assert compensation(it).step == ON_FAILURE


def test_a_body_that_will_not_stop_after_its_timeout_is_waited_for(desk: Desk) -> None:
    """The worker reported the timeout, and that the body still runs: it tells again once it has ended."""
    it = scene(desk, job(on_failure=body, timeout=10))
    situations.started(it)
    it.hand.fail(it.offered, "timeout", body_ended=False)
    assert (it.handle.status, it.hand.claim()) == (RunStatus.FAILING, ())
    it.hand.fail(it.offered, "returned")
    assert compensation(it).step == ON_FAILURE


def test_a_body_timed_out_by_the_engine_in_an_earlier_attempt_is_waited_for(desk: Desk) -> None:
    it = scene(desk, job(on_failure=body, timeout=10, retry=Retry(max_attempts=2, initial=1, jitter=0)))
    situations.started(it)
    first = it.offered
    desk.advance(seconds=20)
    desk.advance(seconds=1)
    second = it.claim(claim_id="second")
    it.hand.start(second)
    it.hand.fail(second, "permanent")
    assert it.hand.claim() == ()
    it.hand.fail(first, "returned")
    assert compensation(it).step == ON_FAILURE


def test_a_timed_out_run_waits_for_its_bodies_too(desk: Desk) -> None:
    it = scene(desk, job(on_failure=body, deadline=timedelta(seconds=20)))
    situations.started(it)
    desk.advance(seconds=20)
    assert (it.handle.status, it.hand.claim()) == (RunStatus.FAILING, ())
    assert it.hand.fail(it.offered, "returned").refused.reason == "fenced"  # type: ignore[union-attr]
    assert compensation(it).failure.class_ == "deadline"


def test_what_is_waited_for_is_in_the_journal(desk: Desk) -> None:
    it = scene(desk, pair(on_failure=body))
    it.hand.start(it.claim("beside"))
    situations.started(it)
    it.hand.fail(it.offered, "permanent")
    row = JournalEntry.objects.get(run=it.handle.id, kind="run.failing")
    assert json.loads(row.data)["unacknowledged"] == 1
    assert "lease.cancelled" in desk.kinds(it.handle)


def test_compensation_uses_the_workflows_retry(desk: Desk) -> None:
    it = fail_first(desk, job(on_failure=body, retry=Retry(max_attempts=2, initial=5, jitter=0)))
    it.hand.fail(compensation(it), "error", "not yet")
    assert (it.handle.status, desk.step(it.handle, ON_FAILURE).status) == (RunStatus.FAILING, StepStatus.READY)
    desk.advance(seconds=5)
    assert it.hand.complete(compensation(it)).run == RunStatus.FAILED


def test_compensation_whose_worker_dies_is_run_again(desk: Desk) -> None:
    """At least once across crashes."""
    it = fail_first(desk, job(on_failure=body))
    lost = compensation(it)
    desk.advance(seconds=30)
    desk.advance(seconds=30)
    again = compensation(it, desk.worker(it.workflow, name="w2"))
    assert (again.attempt, again.idempotency_key, again.failure) == (2, lost.idempotency_key, lost.failure)
    assert it.hand.complete(lost).refused.reason == "fenced"  # type: ignore[union-attr]
    assert it.hand.complete(again).run == RunStatus.FAILED


@pytest.mark.django_db(transaction=True)
def test_two_failures_in_one_call_are_no_conflict_that_is_tried_again(desk: Desk) -> None:
    """The second lease was ended by the first report: that is a refusal to be given, and nothing to wait for."""
    it = scene(desk, Workflow("pair", [Step("a", run=body), Step("b", run=body)]))
    it.workflow.start()
    offered = it.hand.claim(4)
    leases.started([lease.id for lease in offered])
    mine = [lease for lease in offered if lease.run_id == it.handle.id]
    with CaptureQueriesContext(connection) as captured:
        outcomes.report([Report(lease.id, Outcome.failed("error", "boom")) for lease in mine])
    assert len(captured) < 40


@pytest.mark.parametrize("class_", ["error", "permanent"])
def test_its_own_failure_is_journaled_and_never_hides_the_first(desk: Desk, class_: str) -> None:
    it = fail_first(desk, job(on_failure=body))
    it.hand.fail(compensation(it), class_, "could not undo it")
    assert (it.handle.status, it.handle.failure.message, it.handle.failure.step) == (RunStatus.FAILED, "no money", "work")
    row = JournalEntry.objects.get(run=it.handle.id, kind="step.failed", step=ON_FAILURE)
    assert json.loads(row.data)["failure"]["message"] == "could not undo it"


def test_its_own_failure_leaves_a_timed_out_run_timed_out(desk: Desk) -> None:
    it = scene(desk, job(on_failure=body, deadline=timedelta(hours=1)))
    desk.advance(hours=1)
    it.hand.fail(compensation(it), "permanent")
    assert (it.handle.status, it.handle.failure.class_) == (RunStatus.TIMED_OUT, "deadline")


def test_compensation_that_needs_attention_does_not_pause_a_run_that_is_over_anyway(desk: Desk) -> None:
    it = scene(desk, Workflow("job", [Step("work", run=body, retry=Retry())], on_failure=body, retry=Retry(exhausted="pause")))
    situations.started(it)
    it.hand.fail(it.offered)
    it.hand.fail(compensation(it), "error")
    assert it.handle.status == RunStatus.FAILED


@pytest.mark.parametrize(("bring_about", "ending"), [(by_error, RunStatus.FAILED), (by_deadline_while_nobody_works, RunStatus.TIMED_OUT)])
def test_a_cancel_meanwhile_stops_compensation_and_the_run_ends_as_it_was_to_end(desk: Desk, bring_about: Callable[[Scene], None], ending: RunStatus) -> None:
    it = scene(desk, job(on_failure=body, deadline=timedelta(minutes=10)))
    bring_about(it)
    lease = compensation(it)
    assert it.handle.cancel("stop it") == ending
    assert it.handle.status == ending
    assert it.hand.beat(lease).refused.reason == "run_terminal"  # type: ignore[union-attr]
    assert desk.lease(lease).status == LeaseStatus.CANCELLED
    assert "run.cancel_requested" in desk.kinds(it.handle)


def test_a_cancel_while_compensation_still_waits_ends_the_run(desk: Desk) -> None:
    it = scene(desk, pair(on_failure=body))
    beside = it.claim("beside")
    it.hand.start(beside)
    situations.started(it)
    it.hand.fail(it.offered, "permanent")
    assert it.handle.cancel() == RunStatus.FAILED
    it.hand.fail(beside, "returned")
    desk.advance(minutes=5)
    assert (it.hand.claim(), times_compensated(it.handle)) == ((), 0)


def test_the_runs_deadline_does_not_bind_compensation_but_a_day_does(desk: Desk) -> None:
    it = fail_first(desk, job(on_failure=body, deadline=timedelta(hours=1)))
    desk.advance(hours=23)
    assert it.handle.status == RunStatus.FAILING
    desk.advance(hours=1)
    assert (it.handle.status, it.handle.failure.message) == (RunStatus.FAILED, "no money")


def test_a_worker_that_serves_only_the_steps_is_not_offered_compensation(desk: Desk) -> None:
    it = fail_first(desk, job(on_failure=body))
    assert it.hand.claim(serves=[Serve("job", "1", frozenset({"work"}))]) == ()
    assert len(it.hand.claim(serves=[Serve("job", "1", frozenset({ON_FAILURE}))])) == 1


def test_a_failed_run_that_is_retried_and_fails_again_compensates_again(desk: Desk) -> None:
    """A new episode: attempts and tokens of the handler go on, its budgets begin again."""
    it = fail_first(desk, job(on_failure=body))
    first = compensation(it)
    it.hand.complete(first)
    it.handle.retry()
    it.hand.fail(it.claim(claim_id="again"), "permanent", "still no money")
    second = compensation(it)
    assert (second.attempt, second.token, second.failure.message) == (2, first.token + 1, "still no money")
    assert it.hand.complete(second).run == RunStatus.FAILED


def test_a_retried_run_that_succeeds_forgets_its_failure(desk: Desk) -> None:
    it = fail_first(desk, job(on_failure=body))
    it.hand.complete(compensation(it))
    it.handle.retry()
    it.hand.complete(it.claim(claim_id="again"), "done")
    assert (it.handle.status, it.handle.failure, it.handle.result()) == (RunStatus.SUCCEEDED, None, "done")


def test_a_retry_from_another_step_begins_the_failed_one_again_too(desk: Desk) -> None:
    """I4: a step left failed would hold its run open with nothing in it that could move."""
    it = scene(desk, Workflow("order", [Step("other", run=body), Step("work", run=body), Step("after", run=body, after=["work"])]))
    it.hand.complete(it.claim("other"))
    it.hand.fail(it.claim(), "permanent")
    it.handle.retry("other")
    assert it.hand.work_off() == 3
    assert it.handle.status == RunStatus.SUCCEEDED


def test_a_run_that_compensates_is_not_retried_meanwhile(desk: Desk) -> None:
    it = fail_first(desk, job(on_failure=body))
    with pytest.raises(VerbRefused, match="failing"):
        it.handle.retry()


def test_a_paused_run_that_fails_compensates_after_its_resume(desk: Desk) -> None:
    """An operator's pause outlasts a failure."""
    it = scene(desk, job(on_failure=body))
    situations.started(it)
    it.handle.pause()
    it.hand.fail(it.offered, "permanent")
    assert (it.handle.status, it.hand.claim()) == (RunStatus.PAUSED, ())
    it.handle.resume()
    assert it.handle.status == RunStatus.FAILING
    assert it.hand.complete(compensation(it)).run == RunStatus.FAILED


def test_state_that_compensation_patches_is_the_runs(desk: Desk) -> None:
    it = fail_first(desk, job(on_failure=body))
    it.hand.complete(compensation(it), state={"released": True})
    assert it.handle.state == {"released": True}


def test_the_handlers_output_is_not_the_runs_result(desk: Desk) -> None:
    it = fail_first(desk, job(on_failure=body))
    it.hand.complete(compensation(it), "released")
    with pytest.raises(RunFailed, match="no money") as caught:
        it.handle.result()
    assert caught.value.failure is not None
    assert caught.value.failure["class"] == "permanent"
