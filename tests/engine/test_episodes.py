"""Episodes: a run that is over, or needs attention, is opened again by hand; budgets start anew, numbers and outputs go on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ezgh_workflows_django import Retry, Sleep, Step, Wait, Workflow, emit
from ezgh_workflows_django.errors import InvalidPayload, UnknownRun, UnknownStep, VerbRefused
from ezgh_workflows_django.models import Receipt, Run, Trail
from ezgh_workflows_django.models import Step as StepRow
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body, chain, job, why
from tests.invariant_guard import broken


def statuses(run: Any) -> dict[str, str]:
    """The run's steps as they stand."""
    return {step.name: step.status for step in run.steps}


def failed_in_the_middle(desk: Desk, **options: Any) -> tuple[Hand, Any]:
    """A chain of three whose second step failed for good."""
    workflow = chain("one", "two", "three", **options)
    hand = desk.worker(workflow)
    run = workflow.start("payload")
    hand.complete(hand.take(), "first", state={"kept": 1})
    hand.fail(hand.take(), "permanent", "boom")
    assert run.phase == "failed"
    return hand, run


# Retry


def test_a_failed_run_is_retried_from_its_failed_step(desk: Desk) -> None:
    hand, run = failed_in_the_middle(desk)
    run.retry()
    assert (run.status, run.run.episode, run.failure, run.run.ended_at) == ("running", 2, None, None)
    lease = hand.take()
    assert (lease.step, lease.input, lease.steps, lease.state) == ("two", "first", {"one": "first"}, {"kept": 1})
    hand.complete(lease, "second")
    hand.complete(hand.take(), "third")
    assert (run.phase, run.result(), broken()) == ("succeeded", "third", [])


def test_tokens_and_attempt_numbers_go_on_over_a_retry(desk: Desk) -> None:
    hand, run = failed_in_the_middle(desk)
    run.retry()
    assert [(lease.attempt, lease.token) for lease in [hand.take()]] == [(2, 2)]


def test_the_retry_budget_starts_again(desk: Desk) -> None:
    workflow: Any = Workflow("budget", steps=[Step("work", run=body, retry=Retry(2, initial=1))])
    hand = desk.worker(workflow)
    run = workflow.start(1)
    for _ in range(2):
        hand.fail(hand.take())
        desk.advance(2)
    assert run.phase == "failed"
    run.retry()
    hand.fail(hand.take())
    assert run.phase == "retrying"
    desk.advance(2)
    assert (hand.take().attempt, desk.step(run, "work").failures) == (4, 1)


def test_the_budget_of_reclaims_starts_again(desk: Desk, settings: Any) -> None:
    settings.EZGH_WORKFLOWS = {"MAX_RECLAIMS": 0}
    hand = desk.worker(job())
    run = job().start(1)
    hand.take()
    desk.advance(31)
    desk.advance(31)
    assert run.failure.class_ == "poison"
    run.retry()
    assert desk.step(run, "work").reclaims == 0
    hand.complete(hand.take())
    assert run.phase == "succeeded"


def test_the_deadline_starts_again(desk: Desk) -> None:
    workflow = job(deadline=60)
    run = workflow.start(1)
    desk.advance(60)
    assert run.phase == "timed_out"
    desk.advance(hours=1)
    run.retry()
    assert (run.run.deadline_at, run.status) == (desk.now + timedelta(seconds=60), "running")
    desk.advance(59)
    assert run.status == "running"
    desk.advance(1)
    assert run.phase == "timed_out"


def test_a_cancelled_run_is_retried_with_every_cancelled_step(desk: Desk) -> None:
    steps = [
        Step("done", run=body),
        Step("work", run=body),
        Step("nap", sleep=Sleep(60)),
        Step("wait", wait=Wait("paid")),
        Step("end", after=["work", "done"], run=body),
    ]
    workflow: Any = Workflow("all", steps=steps)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    leases = {lease.step: lease for lease in hand.claim()}
    hand.complete(leases["done"], "kept")
    run.cancel()
    run.retry()
    assert statuses(run) == {"done": "succeeded", "work": "ready", "nap": "sleeping", "wait": "waiting", "end": "blocked"}
    assert (run.run.open_steps, run.run.reason, broken()) == (4, "", [])
    run.signal("paid")
    desk.advance(60)
    hand.work_off()
    assert (run.phase, run.steps[0].output) == ("succeeded", '"kept"')


def test_a_timed_out_run_is_retried(desk: Desk) -> None:
    workflow: Any = Workflow("late", steps=[Step("work", run=body), Step("wait", after=["work"], wait=Wait("paid"))], deadline=60)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    hand.work_off()
    desk.advance(60)
    run.retry()
    assert (statuses(run), run.failure) == ({"work": "succeeded", "wait": "waiting"}, None)


def test_a_run_is_retried_from_a_step_by_name_with_its_descendants(desk: Desk) -> None:
    steps = [
        Step("a", run=body),
        Step("b", after=["a"], run=body),
        Step("c", after=["b"], run=body),
        Step("other", run=body),
        Step("end", after=["c", "other"], run=body),
    ]
    workflow: Any = Workflow("graph", steps=steps)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    hand.work_off()
    assert run.phase == "succeeded"
    run.retry("b")
    assert statuses(run) == {"a": "succeeded", "b": "ready", "c": "blocked", "other": "succeeded", "end": "blocked"}
    assert ([step.output for step in run.steps], broken()) == (["1", None, None, "1", None], [])
    hand.complete(hand.take(), 2)
    hand.complete(hand.take(), 3)
    assert hand.take().input == {"c": 3, "other": 1}


def test_a_run_that_succeeded_is_not_retried_without_naming_a_step(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start(1)
    hand.work_off()
    with pytest.raises(VerbRefused, match="name the step"):
        run.retry()
    assert (run.phase, run.run.episode) == ("succeeded", 1)


def test_a_retry_from_no_step_of_the_run_is_refused_by_name(desk: Desk) -> None:
    _, run = failed_in_the_middle(desk)
    with pytest.raises(UnknownStep, match='"four"; its steps are one, two, three'):
        run.retry("four")
    assert (run.phase, run.run.episode) == ("failed", 1)


@pytest.mark.parametrize("state", ["queued", "running", "paused", "failing"])
def test_a_run_at_work_is_not_retried(desk: Desk, state: str) -> None:
    workflow: Any = Workflow("live", steps=[Step("work", run=body)], on_failure=body)
    hand = desk.worker(workflow)
    run = workflow.start(1, delay=60 if state == "queued" else None)
    {"queued": lambda: None, "running": lambda: None, "paused": run.pause, "failing": lambda: hand.fail(hand.take())}[state]()
    before = desk.kinds(run)
    with pytest.raises(VerbRefused, match=f"is {state}"):
        run.retry()
    assert (run.status, desk.kinds(run)) == (state, before)


def test_a_retry_of_no_run_says_so(desk: Desk) -> None:
    run = job().start(1)
    Run.objects.filter(pk=run.id).delete()
    with pytest.raises(UnknownRun, match=run.id):
        run.retry()


def test_events_that_reset_waits_had_taken_are_free_again(desk: Desk) -> None:
    steps = [Step("wait", wait=Wait("paid")), Step("work", after=["wait"], run=body)]
    workflow: Any = Workflow("paid", steps=steps)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    emit("paid", payload=40)
    desk.tick()
    hand.fail(hand.take())
    run.retry("wait")
    assert (statuses(run), desk.step(run, "wait").output, Receipt.objects.count()) == ({"wait": "succeeded", "work": "ready"}, "40", 1)


def test_events_of_waits_that_are_not_reset_stay_taken(desk: Desk) -> None:
    steps = [Step("one", wait=Wait("paid")), Step("work", after=["one"], run=body), Step("two", after=["work"], wait=Wait("paid"))]
    workflow: Any = Workflow("paid", steps=steps)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    emit("paid", payload=1)
    desk.tick()
    hand.fail(hand.take())
    run.retry()
    hand.work_off()
    desk.tick()
    assert statuses(run) == {"one": "succeeded", "work": "succeeded", "two": "waiting"}


def test_a_signal_that_a_reset_wait_had_taken_is_free_again(desk: Desk) -> None:
    workflow: Any = Workflow("paid", steps=[Step("wait", wait=Wait("paid"))])
    run = workflow.start(1)
    run.signal("paid", 7)
    run.retry("wait")
    assert (run.phase, run.result()) == ("succeeded", 7)


def test_the_key_of_a_reset_wait_is_computed_again_from_the_new_outputs(desk: Desk) -> None:
    steps = [Step("reserve", run=body), Step("wait", after=["reserve"], wait=Wait("paid", key_expr="steps.reserve", timeout=60))]
    workflow: Any = Workflow("keyed", steps=steps)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    hand.complete(hand.take(), "old")
    assert [each.key for each in run.waiting_for] == ["old"]
    desk.advance(60)
    run.retry("reserve")
    hand.complete(hand.take(), "new")
    assert [each.key for each in run.waiting_for] == ["new"]


def test_a_key_that_was_computed_at_the_start_stays_over_a_retry(desk: Desk) -> None:
    workflow: Any = Workflow("keyed", steps=[Step("wait", wait=Wait("paid", key=lambda run: run.labels["order"], timeout=60))])
    run = workflow.start(1, labels={"order": "A-1"})
    desk.advance(60)
    run.retry()
    assert [each.key for each in run.waiting_for] == ["A-1"]


def test_a_template_is_rendered_again_from_the_new_outputs(desk: Desk) -> None:
    workflow: Any = Workflow("templated", steps=[Step("a", run=body), Step("b", after=["a"], run=body, input={"x": "${steps.a}"})])
    hand = desk.worker(workflow)
    run = workflow.start(0)
    hand.complete(hand.take(), 1)
    hand.fail(hand.take())
    run.retry("a")
    hand.complete(hand.take(), 2)
    assert hand.take().input == {"x": 2}


def test_an_old_lease_is_refused_in_the_new_episode(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start(1)
    old = hand.take()
    run.cancel()
    run.retry()
    new = hand.take()
    assert (why(hand.complete(old, "old")), hand.complete(new, "new").refused, run.result()) == ("run_terminal", None, "new")


def test_a_second_failure_is_compensated_again(desk: Desk) -> None:
    workflow: Any = Workflow("comp", steps=[Step("work", run=body)], on_failure=body)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    hand.fail(hand.take(), "permanent", "first")
    hand.complete(hand.take())
    assert run.phase == "failed"
    run.retry()
    hand.fail(hand.take(), "permanent", "second")
    again: Any = hand.take()
    assert (again.step, again.failure.message, again.attempt, run.phase) == ("on_failure", "second", 2, "failing")
    hand.complete(again)
    assert (run.phase, StepRow.objects.filter(name="on_failure").count(), broken()) == ("failed", 1, [])


def test_a_body_that_a_retry_cuts_short_is_fenced(desk: Desk) -> None:
    steps = [Step("fails", run=body, retry=Retry(1, exhausted="pause")), Step("slow", run=body), Step("end", after=["slow"], run=body)]
    workflow: Any = Workflow("comp", steps=steps, on_failure=body)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    leases = {lease.step: lease for lease in hand.claim()}
    hand.start(leases["slow"])
    hand.start(leases["fails"])
    hand.fail(leases["fails"])
    run.retry("slow")
    assert (desk.lease(leases["slow"]).status, why(hand.complete(leases["slow"]))) == ("cancelled", "fenced")


def beside(desk: Desk, **options: Any) -> tuple[Hand, Any, Any]:
    """A run that needs attention, beside whose failed step `fails` the step `slow` is offered: its worker, the run, that lease."""
    workflow: Any = Workflow("beside", steps=[Step("fails", run=body, retry=Retry(1, exhausted="pause")), Step("slow", run=body, **options)], on_failure=body)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    leases = {lease.step: lease for lease in hand.claim()}
    hand.start(leases["fails"])
    hand.fail(leases["fails"])
    return hand, run, leases["slow"]


def test_a_lease_that_a_retry_ends_is_in_the_journal_and_one_that_was_only_offered_is_not_waited_for(desk: Desk) -> None:
    hand, run, offered = beside(desk)
    run.retry("slow")
    assert (desk.kinds(run).count("lease.cancelled"), desk.lease(offered).cut_at, why(hand.start(offered)), broken()) == (1, None, "fenced", [])


def test_a_compensation_does_not_wait_for_a_lease_that_was_only_offered_before_a_retry(desk: Desk) -> None:
    hand, run, _ = beside(desk)
    run.retry("slow")
    again = {lease.step: lease for lease in hand.claim()}
    hand.start(again["slow"])
    hand.fail(again["slow"], "permanent")
    assert (run.phase, hand.take().step, broken()) == ("failing", "on_failure", [])


def test_an_at_most_once_body_is_not_begun_again_beside_itself(desk: Desk) -> None:
    hand, run, lease = beside(desk, delivery="at_most_once")
    hand.start(lease)
    with pytest.raises(VerbRefused, match="a body of the at_most_once step slow may still be at work"):
        run.retry("slow")
    assert (hand.claim(), desk.lease(lease).status, run.run.episode) == ((), "started", 1)
    hand.complete(lease)
    run.retry("slow")
    assert (sorted(each.step for each in hand.claim()), broken()) == (["fails", "slow"], [])


def test_an_at_most_once_body_that_was_cut_short_is_not_begun_again_before_it_has_ended(desk: Desk) -> None:
    hand, run, lease = beside(desk, delivery="at_most_once")
    hand.start(lease)
    run.cancel()
    with pytest.raises(VerbRefused, match="wait until it has ended"):
        run.retry()
    assert why(hand.complete(lease)) == "run_terminal"
    run.retry()
    assert (sorted(each.step for each in hand.claim()), broken()) == (["fails", "slow"], [])


def test_an_at_most_once_step_that_was_only_offered_is_begun_again(desk: Desk) -> None:
    hand, run, offered = beside(desk, delivery="at_most_once")
    run.retry("slow")
    assert (why(hand.start(offered)), sorted(each.step for each in hand.claim()), broken()) == ("fenced", ["fails", "slow"], [])


def test_who_retried_is_in_the_journal_and_in_the_trail(desk: Desk) -> None:
    _, run = failed_in_the_middle(desk)
    run.retry(actor=("user", "ann"))
    assert "run.retried" in desk.kinds(run)
    assert list(Trail.objects.filter(action="RetryRun").values_list("actor", "target")) == [("ann", run.id)]


# Resolve


def test_a_failed_step_is_ended_by_hand_and_its_run_goes_on(desk: Desk) -> None:
    hand, run = failed_in_the_middle(desk)
    run.resolve("two", {"by": "hand"}, "paid on the phone", actor=("user", "ann"))
    assert (run.status, run.run.episode, statuses(run)) == ("running", 2, {"one": "succeeded", "two": "succeeded", "three": "ready"})
    lease = hand.take()
    assert (lease.input, lease.steps) == ({"by": "hand"}, {"one": "first", "two": {"by": "hand"}})
    hand.complete(lease)
    assert (run.phase, broken()) == ("succeeded", [])
    assert list(Trail.objects.filter(action="ResolveStep").values_list("actor", flat=True)) == ["ann"]


def test_a_resolved_last_step_ends_its_run(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start(1)
    hand.fail(hand.take())
    run.resolve("work", 7, "by hand")
    assert (run.phase, run.result(), run.failure, broken()) == ("succeeded", 7, None, [])


def test_a_waiting_step_is_ended_by_hand(desk: Desk) -> None:
    workflow: Any = Workflow("wait", steps=[Step("wait", wait=Wait("paid", timeout=60)), Step("end", after=["wait"], run=body)])
    hand = desk.worker(workflow)
    run = workflow.start(1)
    run.resolve("wait", "cash", "paid in cash")
    desk.advance(60)
    assert (run.run.episode, statuses(run), list(run.waiting_for), hand.take().input) == (1, {"wait": "succeeded", "end": "ready"}, [], "cash")


def test_a_waiting_step_of_a_paused_run_is_ended_by_hand(desk: Desk) -> None:
    workflow: Any = Workflow("wait", steps=[Step("wait", wait=Wait("paid")), Step("end", after=["wait"], run=body)])
    hand = desk.worker(workflow)
    run = workflow.start(1)
    run.pause()
    run.resolve("wait", 1, "by hand")
    assert (run.phase, hand.claim()) == ("paused", ())
    run.resume()
    assert hand.take().input == 1


def test_resolving_one_of_two_failed_steps_begins_the_other_again(desk: Desk) -> None:
    pausing = Retry(1, exhausted="pause")
    workflow: Any = Workflow("two", steps=[Step("a", run=body, retry=pausing), Step("b", run=body, retry=pausing), Step("end", after=["a", "b"], run=body)])
    hand = desk.worker(workflow)
    run = workflow.start(1)
    for lease in hand.claim():
        hand.start(lease)
        hand.fail(lease)
    assert (run.phase, statuses(run)) == ("paused", {"a": "failed", "b": "failed", "end": "blocked"})
    run.resolve("a", "by hand", "why")
    assert (run.status, statuses(run), run.run.open_steps) == ("running", {"a": "succeeded", "b": "ready", "end": "blocked"}, 2)
    hand.work_off()
    assert (run.phase, broken()) == ("succeeded", [])


def test_a_step_that_cannot_open_again_pauses_its_run_again_and_nothing_is_offered(desk: Desk) -> None:
    pausing = Retry(1, exhausted="pause")
    steps = [Step("a", run=body, retry=pausing), Step("b", run=body, input="${payload.absent}", retry=pausing)]
    workflow: Any = Workflow("two", steps=[*steps, Step("end", after=["a", "b"], run=body)], on_failure=body)
    hand = desk.worker(workflow)
    run = workflow.start({})
    lease = hand.claim()
    run.resume()
    assert (lease, hand.claim(), run.phase, run.run.attention, broken()) == ((), (), "paused", True, [])
    run.resolve("b", 1, "by hand")
    assert (hand.take().step, run.status, broken()) == ("a", "running", [])


def test_a_step_that_cannot_open_after_a_resolve_fails_its_run_with_the_resolved_step_succeeded(desk: Desk) -> None:
    steps = [Step("a", run=body), Step("b", run=body, input="${has(state.spoiled) ? payload.absent : 1}"), Step("c", run=body)]
    workflow: Any = Workflow("spoiled", steps=[*steps, Step("end", after=["a"], run=body)], on_failure=body)
    hand = desk.worker(workflow)
    run = workflow.start({})
    leases = {lease.step: lease for lease in hand.claim()}
    hand.complete(leases["c"], state={"spoiled": True})
    hand.start(leases["a"])
    hand.fail(leases["a"])
    hand.complete(hand.take())
    run.resolve("a", 1, "by hand")
    assert (run.phase, run.failure.step, statuses(run)["a"], statuses(run)["end"], broken()) == ("failing", "b", "succeeded", "cancelled", [])


@pytest.mark.parametrize("state", ["ready", "leased", "succeeded", "cancelled", "sleeping", "blocked"])
def test_a_step_that_neither_failed_nor_waits_is_not_resolved(desk: Desk, state: str) -> None:
    workflow: Any = Workflow("other", steps=[Step("work", run=body), Step("nap", sleep=Sleep(60)), Step("end", after=["work", "nap"], run=body)])
    hand = desk.worker(workflow)
    run = workflow.start(1)
    step = {"sleeping": "nap", "blocked": "end"}.get(state, "work")
    {"leased": hand.take, "succeeded": lambda: hand.complete(hand.take()), "cancelled": run.cancel}.get(state, lambda: None)()
    with pytest.raises(VerbRefused, match=f"step {step} of run {run.id} is {state}"):
        run.resolve(step, 1, "why")
    assert statuses(run)[step] == state


def test_a_step_that_is_none_of_the_run_is_not_resolved(desk: Desk) -> None:
    run = job().start(1)
    with pytest.raises(UnknownStep, match="absent"):
        run.resolve("absent", 1, "why")


def test_an_output_that_cannot_be_kept_resolves_nothing(desk: Desk) -> None:
    _, run = failed_in_the_middle(desk)
    with pytest.raises(InvalidPayload, match=r"^output"):
        run.resolve("two", float("nan"), "why")
    assert (run.phase, run.run.episode) == ("failed", 1)


def test_a_compensation_is_not_resolved(desk: Desk) -> None:
    workflow: Any = Workflow("comp", steps=[Step("work", run=body)], on_failure=body)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    hand.fail(hand.take(), message="first")
    hand.fail(hand.take(), message="second")
    with pytest.raises(VerbRefused, match="step on_failure"):
        run.resolve("on_failure", 1, "why")
    assert (run.phase, run.failure.message) == ("failed", "first")
