"""The four refusals, each brought about by a second worker session; and that a refused call changes nothing (spec: engine.md)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import pytest

from ezgh_workflows_django import Workflow
from ezgh_workflows_django.engine import leases, outcomes, retention
from ezgh_workflows_django.models import JournalEntry, Lease
from ezgh_workflows_django.protocol.messages import Beat, Extension
from ezgh_workflows_django.protocol.outcomes import Answer, Outcome, Report
from ezgh_workflows_django.protocol.states import LeaseStatus, RunStatus, StepStatus
from tests.engine import situations
from tests.engine.conftest import Desk
from tests.engine.graphs import body, chain, event, job, sleep
from tests.engine.interleave import after_reading
from tests.engine.situations import LEASES, Scene, pair, scene

CALLS: Final[Mapping[str, Callable[[Scene], Any]]] = {
    "started": lambda it: it.hand.start(it.offered),
    "heartbeat": lambda it: it.hand.beat(it.offered, {"rows": 10}),
    "complete": lambda it: it.hand.complete(it.offered, {"late": True}, state={"late": True}),
    "fail": lambda it: it.hand.fail(it.offered, "late"),
    "checkpoint": lambda it: it.hand.checkpoint(it.offered, "late", {"late": True}, state={"late": True}),
    "suspend": lambda it: it.hand.park(it.offered, event("late"), sleep("later", 1), state={"late": True}),
    "children": lambda it: it.hand.children(it.offered, "late", it.workflow, [1, 2]),
}

REASONS: Final = {
    "completed": "already_applied",
    "failed": "already_applied",
    "suspended": "already_applied",
    "returned": "fenced",
    "reclaimed": "fenced",
    "cancelled by a sibling": "fenced",
    "timed out by the engine": "fenced",
    "cancelled by the run": "run_terminal",
}


def refusals_of(it: Scene) -> list[tuple[str, str, Any]]:
    """The journaled refusals: step, worker, and what is said of each."""
    rows = JournalEntry.objects.filter(run=it.handle.id, kind="lease.refused").order_by("seq")
    return [(row.step, row.worker, json.loads(row.data)) for row in rows]


def but_for_the_journal(handle: Any) -> Mapping[str, Any]:
    """All that is stored of a run, without what a refusal is allowed to leave: its journal row, its mark, its acknowledgement."""
    allowed = {"journal_seq", "refusals", "may_have_run", "acknowledged_at", "due_at"}
    stored = situations.everything(handle)
    return {table: [{name: row[name] for name in row if name not in allowed} for row in rows] for table, rows in stored.items() if table != "JournalEntry"}


def test_a_completion_sent_twice_is_already_applied_and_says_what_was_stored(desk: Desk) -> None:
    first, second = chain("a", "b"), chain("a", "b")
    one, other = desk.worker(first, name="w1"), desk.worker(second, name="w2")
    run = first.start()
    lease = one.take()
    one.complete(lease, {"n": 1})
    taken = other.take()
    answer = one.complete(lease, {"n": 2})
    assert answer.refused is not None
    assert (answer.refused.reason, answer.refused.outcome) == ("already_applied", {"status": "completed"})
    assert other.complete(taken).run == RunStatus.SUCCEEDED
    assert json.loads(desk.step(run, "a").output or "") == {"n": 1}


def test_a_failure_sent_again_is_answered_with_the_failure_that_was_stored(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start()
    lease = hand.take()
    hand.fail(lease, "card_declined", "no money")
    answer = hand.complete(lease)
    assert answer.refused is not None
    assert answer.refused.outcome == {"status": "failed", "failure": {"class": "card_declined", "message": "no money"}}


def test_a_late_completion_is_fenced_after_another_worker_has_the_step(desk: Desk) -> None:
    workflow = job()
    one, other = desk.worker(workflow, name="w1"), desk.worker(workflow, name="w2")
    run = workflow.start()
    lost = one.take()
    desk.advance(seconds=30)
    desk.advance(seconds=30)
    taken = other.take()
    late = one.complete(lost, "late")
    assert late.refused is not None
    assert late.refused.reason == "fenced"
    assert other.complete(taken, "in time").step == StepStatus.SUCCEEDED
    assert run.result() == "in time"
    assert taken.token > lost.token


@pytest.mark.parametrize("call", CALLS)
def test_every_call_of_a_worker_whose_step_another_one_has_is_fenced_and_the_other_goes_on(desk: Desk, call: str) -> None:
    """B02, with two workers."""
    it = scene(desk, pair())
    situations.reclaimed(it)
    other = desk.worker(it.workflow, name="w2")
    taken = Scene(desk, other, it.handle, it.workflow)
    taken.hand.start(taken.claim())
    taken.hand.checkpoint(taken.offered, "late", {"late": False})
    before = but_for_the_journal(it.handle)
    assert CALLS[call](it).refused.reason == "fenced"
    assert but_for_the_journal(it.handle) == before
    assert taken.hand.complete(taken.offered).step == StepStatus.SUCCEEDED


def test_the_lease_of_a_pass_that_parked_stays_already_applied_while_the_next_one_runs(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.started(it)
    first = it.offered
    it.hand.park(first, sleep("nap", 0))
    it.hand.start(it.claim(claim_id="second pass"))
    before = but_for_the_journal(it.handle)
    it.lease, second = first, it.lease
    reasons = {call: CALLS[call](it).refused.reason for call in CALLS}
    assert (set(reasons.values()), but_for_the_journal(it.handle)) == ({"already_applied"}, before)
    assert second is not None
    assert it.hand.complete(second).step == StepStatus.SUCCEEDED


def test_both_workers_of_a_cancelled_run_hear_that_it_is_terminal(desk: Desk) -> None:
    workflow = pair()
    one, other = desk.worker(workflow, name="w1"), desk.worker(workflow, name="w2")
    run = workflow.start()
    mine, theirs = one.take(), other.take()
    run.cancel("no more")
    assert [hand.beat(lease).refused.reason for hand, lease in ((one, mine), (other, theirs))] == ["run_terminal", "run_terminal"]  # type: ignore[union-attr]
    assert [hand.complete(lease).refused.reason for hand, lease in ((one, mine), (other, theirs))] == ["run_terminal", "run_terminal"]  # type: ignore[union-attr]


def test_a_run_past_its_deadline_is_terminal_to_its_worker(desk: Desk) -> None:
    it = scene(desk, pair(deadline=timedelta(seconds=20)))
    situations.started(it)
    desk.advance(seconds=20)
    answer = it.hand.complete(it.offered)
    assert answer.refused is not None
    assert answer.refused.reason == "run_terminal"


def test_a_run_past_its_deadline_that_still_compensates_is_not_terminal_and_its_worker_is_fenced(desk: Desk) -> None:
    """It is `failing`, and offers its compensation: whoever hears `run_terminal` would claim no more of it."""
    it = scene(desk, pair(deadline=timedelta(seconds=20), on_failure=body))
    situations.started(it)
    desk.advance(seconds=20)
    answer = it.hand.complete(it.offered)
    assert answer.refused is not None
    assert (it.handle.phase, answer.refused.reason) == ("failing", "fenced")
    assert it.hand.take().step == "on_failure"


def test_an_at_most_once_body_that_was_never_declared_is_not_started_and_its_step_is_never_run_again(desk: Desk) -> None:
    """The mark: a body that may have run fails its step when the lease is reclaimed, though it was only offered."""
    it = scene(desk, pair("at_most_once"))
    other = desk.worker(it.workflow, name="w2")
    it.claim()
    answer = it.hand.complete(it.offered, "done")
    assert answer.refused is not None
    assert answer.refused.reason == "not_started"
    assert desk.lease(it.offered).status == LeaseStatus.OFFERED
    assert desk.lease(it.offered).may_have_run
    desk.advance(seconds=10)
    assert desk.step(it.handle, "work").status == StepStatus.FAILED
    assert it.handle.failure.class_ == "orphaned"
    assert other.claim() == ()


def test_a_body_that_is_declared_after_not_started_may_still_complete(desk: Desk) -> None:
    it = scene(desk, pair("at_most_once"))
    it.claim()
    it.hand.complete(it.offered)
    it.hand.start(it.offered)
    assert it.hand.complete(it.offered).step == StepStatus.SUCCEEDED


def test_a_lease_marked_not_started_that_is_handed_back_fails_the_step(desk: Desk) -> None:
    """Its body may have run: handing it back does not say that it ended by itself."""
    it = scene(desk, pair("at_most_once"))
    it.claim()
    it.hand.complete(it.offered)
    assert it.hand.fail(it.offered, "returned").step == StepStatus.FAILED


@pytest.mark.parametrize("class_", ["returned", "unservable"])
def test_handing_back_needs_no_started(desk: Desk, class_: str) -> None:
    it = scene(desk, pair("at_most_once"))
    it.claim()
    assert it.hand.fail(it.offered, class_).step == StepStatus.READY


@pytest.mark.parametrize("state", REASONS)
@pytest.mark.parametrize("call", CALLS)
def test_a_refused_call_changes_nothing_but_one_journal_row(desk: Desk, state: str, call: str) -> None:
    """B02: there is no side door."""
    it = scene(desk, pair())
    LEASES[state][1](it)
    before, told = but_for_the_journal(it.handle), len(it.handle.journal)
    answer = CALLS[call](it)
    assert answer.refused.reason == REASONS[state]
    assert it.offered.id in answer.refused.message
    assert but_for_the_journal(it.handle) == before
    assert len(it.handle.journal) == told + 1
    assert desk.run(it.handle).journal_seq == told + 1


@pytest.mark.parametrize("state", REASONS)
def test_a_lease_is_journaled_once_for_each_reason_however_often_it_is_refused(desk: Desk, state: str) -> None:
    it = scene(desk, pair())
    LEASES[state][1](it)
    for call in ("heartbeat", *CALLS):
        CALLS[call](it)
    [(step, worker, told)] = refusals_of(it)
    assert (step, worker) == ("work", "w1")
    assert told == {"reason": REASONS[state], "call": "heartbeat", "token": it.offered.token}


def test_two_reasons_of_one_lease_are_two_journal_rows(desk: Desk) -> None:
    it = scene(desk, pair("at_most_once"))
    it.claim()
    it.hand.complete(it.offered)
    it.handle.cancel()
    it.hand.complete(it.offered)
    assert [told["reason"] for _, _, told in refusals_of(it)] == ["not_started", "run_terminal"]


def test_two_leases_of_one_step_are_each_journaled(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.returned(it)
    first = it.offered
    situations.returned(it := Scene(desk, desk.worker(it.workflow, name="w2"), it.handle, it.workflow))
    it.hand.beat(first)
    it.hand.beat(it.offered)
    assert [worker for _, worker, _ in refusals_of(it)] == ["w1", "w2"]


@pytest.mark.parametrize(
    "lease_id",
    [str(uuid.uuid4()), "", "no id", "0", str(uuid.uuid4()).upper(), f"{{{uuid.uuid4()}}}", "x" * 10_000, "\x00"],
    ids=["never given out", "empty", "words", "a number", "another spelling", "in braces", "endless", "nul"],
)
def test_an_unknown_lease_is_answered_as_unknown_and_not_as_fenced(desk: Desk, lease_id: str) -> None:
    told: list[Answer | Extension] = [
        leases.started([lease_id])[0],
        leases.heartbeat([Beat(lease_id)])[0],
        outcomes.report([Report(lease_id, Outcome.completed())])[0],
    ]
    assert [answer.refused.reason for answer in told if answer.refused] == ["unknown_lease"] * 3


def test_a_lease_of_a_run_that_retention_has_deleted_is_unknown(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.cancelled_by_run(it)
    desk.advance(days=31)
    answer = it.hand.complete(it.offered)
    assert answer.refused is not None
    assert answer.refused.reason == "unknown_lease"


def test_a_lease_whose_run_is_deleted_during_the_call_is_unknown_and_alone_with_that(desk: Desk) -> None:
    workflow = job()
    hand = desk.worker(workflow)
    gone, kept = workflow.start(), workflow.start()
    offered = {lease.run_id: lease for lease in hand.claim(2)}
    leases.started([lease.id for lease in offered.values()])
    gone.cancel()
    reports = [Report(offered[run.id].id, Outcome.completed()) for run in (gone, kept)]
    with after_reading(Lease._meta.db_table, lambda: retention.prune(desk.now, 10, timedelta(0))) as met:
        told = outcomes.report(reports)
    assert met
    assert [answer.refused.reason if answer.refused else answer.step for answer in told] == ["unknown_lease", "succeeded"]


def test_a_lease_stays_terminal_though_its_run_was_retried(desk: Desk) -> None:
    """The reason is decided by how this lease ended, not by what its run is now."""
    it = scene(desk, pair())
    situations.cancelled_by_run(it)
    it.handle.retry()
    answer = it.hand.complete(it.offered)
    assert answer.refused is not None
    assert answer.refused.reason == "run_terminal"
    assert it.handle.status == RunStatus.RUNNING


def test_in_a_group_the_refused_do_not_undo_their_neighbours(desk: Desk) -> None:
    workflow = job()
    hand = desk.worker(workflow)
    workflow.start_many([1, 2, 3])
    good, over, bad = hand.claim(3)
    leases.started([good.id, over.id, bad.id])
    hand.complete(over)
    told = outcomes.report(
        [
            Report(bad.id, Outcome.completed(float("nan"))),
            Report(over.id, Outcome.completed()),
            Report("nothing", Outcome.completed()),
            Report(good.id, Outcome.completed("done")),
        ]
    )
    assert [answer.refused.reason if answer.refused else answer.step for answer in told] == ["invalid", "already_applied", "unknown_lease", "succeeded"]
    assert desk.lease(bad).status == LeaseStatus.STARTED


def test_an_outcome_that_is_in_one_call_twice_is_applied_once(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start()
    lease = hand.take()
    first, second = outcomes.report([Report(lease.id, Outcome.completed("first")), Report(lease.id, Outcome.failed("error", "second"))])
    assert first.step == StepStatus.SUCCEEDED
    assert second.refused is not None
    assert (second.refused.reason, second.refused.outcome) == ("already_applied", {"status": "completed"})


def test_an_invalid_outcome_does_not_hide_the_valid_one_after_it(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start()
    lease = hand.take()
    first, second = outcomes.report([Report(lease.id, Outcome.completed(float("inf"))), Report(lease.id, Outcome.failed("permanent", "no JSON"))])
    assert first.refused is not None
    assert first.refused.reason == "invalid"
    assert second.step == StepStatus.FAILED


@pytest.mark.parametrize("class_", ["orphaned", "poison", "deadline", "", "Card", "card declined", "x" * 65])
def test_a_class_that_is_the_engines_own_or_no_class_is_invalid_and_changes_nothing(desk: Desk, class_: str) -> None:
    it = scene(desk, pair())
    situations.started(it)
    before = situations.everything(it.handle)
    answer = it.hand.fail(it.offered, class_)
    assert answer.refused is not None
    assert answer.refused.reason == "invalid"
    assert situations.everything(it.handle) == before


def test_a_message_that_no_database_could_keep_is_cleaned_and_the_failure_is_told(desk: Desk) -> None:
    it = scene(desk, Workflow("job", pair().steps))
    situations.started(it)
    assert it.hand.fail(it.offered, "permanent", "a\x00b\ud800c").step == StepStatus.FAILED
    assert it.handle.failure.message.startswith("a")
    assert "\x00" not in it.handle.failure.message


def test_state_that_grows_over_the_limit_is_refused_alone(desk: Desk, settings: Any) -> None:
    settings.EZGH_WORKFLOWS = {"MAX_PAYLOAD_BYTES": 1024}
    it = scene(desk, pair())
    it.hand.complete(it.claim("beside"), state={"a": "x" * 600})
    situations.started(it)
    before = situations.everything(it.handle)
    answer = it.hand.complete(it.offered, state={"b": "x" * 600})
    assert answer.refused is not None
    assert answer.refused.reason == "payload_too_large"
    assert situations.everything(it.handle) == before
    assert it.hand.complete(it.offered).step == StepStatus.SUCCEEDED


def test_what_cannot_be_stored_of_a_group_is_refused_alone(desk: Desk, settings: Any) -> None:
    settings.EZGH_WORKFLOWS = {"MAX_PAYLOAD_BYTES": 1024}
    workflow = Workflow("pair", pair().steps)
    hand = desk.worker(workflow)
    run, *_ = workflow.start_many([1, 2])
    offered = hand.claim(4)
    leases.started([lease.id for lease in offered])
    told = outcomes.report([Report(lease.id, Outcome.completed(state={lease.step: "x" * 600})) for lease in offered])
    became = sorted(answer.refused.reason if answer.refused else str(answer.step) for answer in told)
    assert became == ["payload_too_large", "payload_too_large", "succeeded", "succeeded"]
    assert len(json.loads(desk.run(run).state)) == 1
