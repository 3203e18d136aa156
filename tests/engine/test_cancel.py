"""Cancel: a run is over by somebody's wish, nothing of it comes back, and the answer agrees with the final state."""

from __future__ import annotations

from typing import Any

import pytest

from ezgh_workflows_django import Retry, RunCancelled, Sleep, Step, Wait, Workflow, emit
from ezgh_workflows_django.errors import RunTerminal, UnknownRun
from ezgh_workflows_django.models import Lease, Run, Trail
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.models import Wait as WaitRow
from tests.engine.conftest import Desk
from tests.engine.graphs import body, chain, job, why
from tests.invariant_guard import broken


def patient() -> Any:
    """A step that may fail twice, and one behind it."""
    return Workflow("patient", steps=[Step("work", run=body, retry=Retry(3, initial=60)), Step("then", after=["work"], run=body)])


def compensated() -> Any:
    """A step whose failure is compensated."""
    return Workflow("compensated", steps=[Step("work", run=body), Step("then", after=["work"], run=body)], on_failure=body)


def test_a_completion_after_the_cancel_is_refused_and_the_run_stays_cancelled(desk: Desk) -> None:
    """B10, order 1."""
    hand = desk.worker(job())
    run = job().start(1)
    lease = hand.take()
    assert run.cancel("enough") == "cancelled"
    answer = hand.complete(lease, "late")
    assert (why(answer), run.phase, desk.step(run, "work").output) == ("run_terminal", "cancelled", None)


def test_a_cancel_after_the_completion_is_told_that_it_came_too_late(desk: Desk) -> None:
    """B10, order 2."""
    hand = desk.worker(job())
    run = job().start(1)
    hand.complete(hand.take(), "done")
    with pytest.raises(RunTerminal, match=f"{run.id} is succeeded"):
        run.cancel()
    assert (run.phase, run.result()) == ("succeeded", "done")


def test_cancelling_a_cancelled_run_changes_nothing(desk: Desk) -> None:
    run = job().start(1)
    run.cancel("first")
    before = (desk.kinds(run), run.run.reason)
    assert (run.cancel("second"), (desk.kinds(run), run.run.reason)) == ("cancelled", before)


@pytest.mark.parametrize("ending", [{}, {"class_": "permanent"}], ids=str)
def test_a_failed_run_cannot_be_cancelled(desk: Desk, ending: dict[str, Any]) -> None:
    hand = desk.worker(job())
    run = job().start(1)
    hand.fail(hand.take(), **ending)
    with pytest.raises(RunTerminal):
        run.cancel()
    assert run.phase == "failed"


@pytest.mark.parametrize("class_", ["error", "retryable", "timeout", "returned", "unservable", "crashed"])
def test_a_late_failure_brings_no_cancelled_run_back(desk: Desk, class_: str) -> None:
    """B11 (a)."""
    hand = desk.worker(patient())
    run = patient().start(1)
    lease = hand.take()
    run.cancel()
    answer = hand.fail(lease, class_)
    desk.advance(hours=1)
    assert (why(answer), run.phase, hand.claim(), broken()) == ("run_terminal", "cancelled", (), [])


def test_a_back_off_is_dead_once_its_run_is_cancelled(desk: Desk) -> None:
    """B11 (b)."""
    hand = desk.worker(patient())
    run = patient().start(1)
    hand.fail(hand.take())
    run.cancel()
    desk.advance(minutes=10)
    assert (hand.claim(), run.phase, broken()) == ((), "cancelled", [])


def test_a_timed_out_attempt_of_a_cancelled_run_is_not_claimable(desk: Desk) -> None:
    """B11 (c)."""
    workflow: Any = Workflow("timed", steps=[Step("work", run=body, timeout=5, retry=Retry(3, initial=60))])
    hand = desk.worker(workflow)
    run = workflow.start(1)
    hand.take()
    desk.advance(16)
    run.cancel()
    desk.advance(minutes=10)
    assert (desk.step(run, "work").status, hand.claim()) == ("cancelled", ())


def test_an_orphaned_lease_of_a_cancelled_run_is_over(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start(1)
    lease = hand.take()
    desk.advance(31)
    run.cancel()
    beat = hand.beat(lease)
    desk.advance(hours=1)
    assert (why(beat), desk.lease(lease).status, hand.claim()) == ("run_terminal", "cancelled", ())


def test_an_offered_lease_of_a_cancelled_run_cannot_be_started(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start(1)
    [lease] = hand.claim()
    run.cancel()
    assert (why(hand.start(lease)), Lease.objects.get().started_at) == ("run_terminal", None)


def test_everything_in_a_cancelled_run_is_over(desk: Desk) -> None:
    steps = [Step("work", run=body), Step("wait", wait=Wait("paid")), Step("nap", sleep=Sleep(60)), Step("then", after=["work"], run=body)]
    workflow: Any = Workflow("all", steps=steps)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    hand.take()
    run.cancel("enough")
    emit("paid")
    desk.advance(60)
    assert ({step.status for step in run.steps}, WaitRow.objects.count(), broken()) == ({"cancelled"}, 0, [])
    assert (run.run.reason, run.run.due_at, run.run.ended_at is not None) == ("enough", None, True)


def test_the_steps_that_had_succeeded_keep_their_outputs(desk: Desk) -> None:
    workflow = chain("one", "two")
    hand = desk.worker(workflow)
    run = workflow.start(1)
    hand.complete(hand.take(), "kept")
    run.cancel()
    assert [(step.status, step.output) for step in run.steps] == [("succeeded", '"kept"'), ("cancelled", None)]


@pytest.mark.parametrize("state", ["queued", "paused", "attention"])
def test_a_run_at_rest_is_cancelled_at_once(desk: Desk, state: str) -> None:
    workflow: Any = Workflow("rest", steps=[Step("work", run=body, retry=Retry(1, exhausted="pause"))])
    hand = desk.worker(workflow)
    run = workflow.start(1, delay=60 if state == "queued" else None)
    {"queued": lambda: None, "paused": run.pause, "attention": lambda: hand.fail(hand.take())}[state]()
    assert (run.cancel(), run.phase, run.run.attention, run.run.paused_from) == ("cancelled", "cancelled", False, None)
    desk.advance(120)
    assert (run.phase, hand.claim(), broken()) == ("cancelled", (), [])


def test_a_cancelled_run_is_not_compensated(desk: Desk) -> None:
    hand = desk.worker(compensated())
    run = compensated().start(1)
    hand.take()
    run.cancel()
    desk.advance(hours=1)
    assert (hand.claim(), StepRow.objects.filter(name="on_failure").count(), run.phase) == ((), 0, "cancelled")


def test_cancelling_a_run_that_fails_stops_its_compensation_and_says_how_it_ends(desk: Desk) -> None:
    hand = desk.worker(compensated())
    run = compensated().start(1)
    hand.fail(hand.take())
    assert run.phase == "failing"
    compensation = hand.take()
    assert (run.cancel("enough"), run.phase, run.failure.step) == ("failed", "failed", "work")
    answer = hand.complete(compensation)
    assert (why(answer), desk.step(run, "on_failure").status, broken()) == ("run_terminal", "cancelled", [])


def test_cancelling_a_run_that_compensates_a_deadline_leaves_it_timed_out(desk: Desk) -> None:
    workflow: Any = Workflow("late", steps=[Step("wait", wait=Wait("never"))], deadline=60, on_failure=body)
    run = workflow.start(1)
    desk.advance(60)
    assert (run.phase, run.cancel(), run.phase) == ("failing", "timed_out", "timed_out")


def test_the_result_of_a_cancelled_run_says_why(desk: Desk) -> None:
    run = job().start(1)
    run.cancel("customer left")
    with pytest.raises(RunCancelled, match="customer left"):
        run.result()


def test_who_cancelled_a_run_is_in_the_journal_and_in_the_trail(desk: Desk) -> None:
    run = job().start(1)
    run.cancel("enough", actor=("user", "ann"))
    assert desk.kinds(run)[-2:] == ["run.cancel_requested", "run.cancelled"]
    assert list(Trail.objects.filter(action="CancelRun").values_list("actor_kind", "actor", "target")) == [("user", "ann", run.id)]


def test_cancelling_no_run_says_so(desk: Desk) -> None:
    run = job().start(1)
    Run.objects.filter(pk=run.id).delete()
    with pytest.raises(UnknownRun, match=run.id):
        run.cancel()
