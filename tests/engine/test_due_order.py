"""Where two things of a run are due and are seen late, the earlier due time wins: a step's timeout or an event against the run's deadline."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from ezgh_workflows_django import Retry, Sleep, Step, Wait, Workflow, emit
from ezgh_workflows_django.engine import due_order, events, inputs, maintenance, reclaim, runs, timers
from ezgh_workflows_django.models import Event, Lease
from ezgh_workflows_django.models import Step as StepRow
from tests.engine.conftest import Desk
from tests.engine.graphs import body, chain, sleep
from tests.invariant_guard import broken

TIMEOUT, DEADLINE = ("failed", "timeout"), ("timed_out", "deadline")


def bounded(desk: Desk, seconds: int, **step: Any) -> Any:
    """A run with a deadline of 40 seconds, whose body is at work and is timed out by the engine so long after now."""
    made: Any = Workflow("bounded", [Step("work", run=body, timeout=seconds - 10, **step)], deadline=40)
    hand = desk.worker(made)
    run = made.start(1)
    hand.take()
    return run


@pytest.mark.parametrize(
    ("seconds", "phase", "class_"), [(30, "failed", "timeout"), (39, "failed", "timeout"), (40, "timed_out", "deadline"), (41, "timed_out", "deadline")]
)
def test_of_a_steps_timeout_and_the_deadline_the_earlier_wins(desk: Desk, seconds: int, phase: str, class_: str) -> None:
    run = bounded(desk, seconds)
    desk.advance(42)
    assert (run.phase, run.failure.class_, broken()) == (phase, class_, [])


@pytest.mark.parametrize(("seconds", "phase"), [(30, "failed"), (41, "timed_out")])
def test_it_is_so_whichever_duty_comes_first(desk: Desk, seconds: int, phase: str) -> None:
    """The leases come first here."""
    run = bounded(desk, seconds)
    desk.now += timedelta(seconds=42)
    reclaim.run_once(desk.now, 100)
    runs.run_once(desk.now, 100)
    assert run.phase == phase


def test_a_timeout_of_a_body_whose_worker_was_lost_before_it_comes_first_too(desk: Desk) -> None:
    made: Any = Workflow("bounded", [Step("work", run=body, timeout=22)], deadline=40)
    hand = desk.worker(made)
    run = made.start(1)
    hand.take()  # silent from now on: orphaned at 30 seconds, timed out at 32
    desk.advance(42)
    assert (run.phase, run.failure.class_) == ("failed", "timeout")


def test_a_timeout_long_after_a_worker_was_lost_does_not_come_before_the_deadline(desk: Desk) -> None:
    """The step would have been given to another worker long before: nobody was there to time out."""
    made: Any = Workflow("bounded", [Step("work", run=body, timeout=600)], deadline=3600)
    hand = desk.worker(made)
    run = made.start(1)
    hand.take()
    desk.advance(hours=1)
    assert (run.phase, run.failure.class_) == ("timed_out", "deadline")


def test_an_orphan_whose_window_was_over_before_the_deadline_is_lost_first(desk: Desk) -> None:
    made: Any = Workflow("bounded", [Step("work", run=body, delivery="at_most_once")], deadline=70)
    hand = desk.worker(made)
    run = made.start(1)
    hand.take()
    desk.advance(31)  # marked; its window is over at 61
    desk.advance(41)
    assert (run.phase, run.failure.class_, broken()) == ("failed", "orphaned", [])


def test_a_timeout_that_was_put_off_until_after_the_deadline_leaves_the_run_to_it(desk: Desk) -> None:
    """As one is that could not be dealt with when it was due."""
    run = bounded(desk, 30)
    Lease.objects.update(due_at=desk.now + timedelta(seconds=41))
    desk.now += timedelta(seconds=42)
    reclaim.run_once(desk.now, 100)
    assert (run.phase, run.failure.class_, broken()) == ("timed_out", "deadline", [])


def test_a_step_that_is_tried_again_after_its_timeout_does_not_outlive_the_deadline(desk: Desk) -> None:
    run = bounded(desk, 30, retry=Retry(3))
    desk.advance(42)
    assert (run.phase, "step.retry_scheduled" in desk.kinds(run)) == ("timed_out", True)


def silent_for_ten_minutes(desk: Desk) -> tuple[Any, Any]:
    """A run past its deadline after a gap in which no heartbeat could land, and its lease, which had a timeout before that."""
    made: Any = Workflow("both", [Step("work", run=body, timeout=300), Step("wait", wait=Wait("paid"))], deadline=600)
    hand = desk.worker(made)
    run = made.start(1)
    lease = hand.take()
    desk.tick()
    desk.now += timedelta(seconds=601)
    return run, lease


@pytest.mark.parametrize("first", ["tick", "event"])
def test_after_a_gap_in_maintenance_no_lease_is_marked_or_timed_out_for_the_deadline(desk: Desk, first: str, send: Any) -> None:
    run, lease = silent_for_ten_minutes(desk)
    calls: dict[str, Any] = {"tick": maintenance.tick, "event": partial(send, "paid")}
    calls[first]()
    assert (run.phase, run.failure.class_, desk.lease(lease).timeout_at is not None, broken()) == ("timed_out", "deadline", True, [])
    assert {"lease.timed_out", "lease.orphaned"}.isdisjoint(desk.kinds(run))


def waiting(**options: Any) -> Any:
    """A wait, and a deadline."""
    return Workflow("waiting", [Step("wait", wait=Wait("paid", **options))], deadline=40)


def test_an_event_that_came_before_the_deadline_is_taken_first_though_its_emitter_was_lost(desk: Desk) -> None:
    run = waiting().start(1)
    desk.advance(10)
    emit("paid", payload=7)  # what follows its commit is lost
    desk.advance(32)
    assert (run.phase, run.result(), broken()) == ("succeeded", 7, [])


@pytest.mark.parametrize("first", ["events", "deadlines"])
def test_an_event_that_came_after_the_deadline_comes_too_late(desk: Desk, first: str) -> None:
    run = waiting().start(1)
    desk.advance(10)
    desk.now += timedelta(seconds=31)
    emit("paid", payload=7)
    desk.now += timedelta(seconds=1)
    {"events": events, "deadlines": runs}[first].run_once(desk.now, 100)
    desk.tick()
    assert (run.phase, Event.objects.filter(due_at=None).count()) == ("timed_out", 1)


def test_an_event_before_the_deadline_is_taken_whichever_duty_comes_first(desk: Desk) -> None:
    run = waiting().start(1)
    desk.advance(10)
    emit("paid", payload=7)
    desk.now += timedelta(seconds=32)
    events.run_once(desk.now, 100)
    assert (run.phase, run.result()) == ("succeeded", 7)


def test_an_event_of_another_key_or_after_the_waits_timeout_holds_no_deadline_up(desk: Desk) -> None:
    run = waiting(key="A-1").start(1)
    short = waiting(timeout=15, on_timeout="continue").start(1)
    desk.advance(10)
    emit("paid", key="A-2", payload=7)
    desk.now += timedelta(seconds=10)
    emit("paid", payload=8)
    desk.now += timedelta(seconds=22)
    runs.run_once(desk.now, 100)
    assert (run.phase, short.phase, short.result()) == ("timed_out", "succeeded", None)


def test_what_an_event_before_the_deadline_opens_does_not_outlive_it(desk: Desk) -> None:
    made: Any = Workflow("two", [Step("wait", wait=Wait("paid")), Step("work", run=body, after=["wait"])], deadline=40)
    run = made.start(1)
    desk.advance(10)
    emit("paid", payload=7)
    desk.advance(32)
    assert (run.phase, [step.status for step in run.steps]) == ("timed_out", ["succeeded", "cancelled"])


def test_a_sleep_a_timeout_and_an_event_before_the_deadline_come_in_due_order(desk: Desk) -> None:
    steps = [Step("nap", sleep=Sleep(20)), Step("wait", wait=Wait("paid")), Step("late", wait=Wait("never", timeout=30)), Step("end", sleep=Sleep(35))]
    made: Any = Workflow("order", steps, deadline=40)
    run = made.start(1)
    desk.advance(10)
    emit("paid", payload=7)
    desk.now += timedelta(seconds=32)
    runs.run_once(desk.now, 100)
    assert {step.name: step.status for step in run.steps} == {"nap": "succeeded", "wait": "succeeded", "late": "failed", "end": "cancelled"}
    assert (run.phase, run.failure.class_, broken()) == ("failed", "timeout", [])


def test_a_wait_that_was_never_looked_at_again_does_not_time_out_after_the_deadline(desk: Desk) -> None:
    run = waiting(timeout=41).start(1)
    desk.advance(42)
    assert (run.phase, run.failure.class_) == ("timed_out", "deadline")


def test_a_body_that_wakes_before_the_deadline_does_not_outlive_it(desk: Desk) -> None:
    made = chain("work", deadline=40)
    hand = desk.worker(made)
    run = made.start(1)
    hand.park(hand.take(), sleep("nap", 20))
    desk.advance(42)
    assert (run.phase, "step.resumed" in desk.kinds(run), broken()) == ("timed_out", True, [])


def test_a_timer_that_cannot_be_read_does_not_keep_its_run_from_its_deadline(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = Workflow("bad", [Step("nap", sleep=Sleep(20)), Step("work", run=body, after=["nap"])], deadline=40)
    run = made.start(1)
    monkeypatch.setattr(inputs, "input_text", unreadable)
    desk.now += timedelta(seconds=42)
    runs.run_once(desk.now, 100)
    assert (run.phase, run.failure.class_) == ("timed_out", "deadline")


def unreadable(*_: Any) -> str:
    """What no verb would have written."""
    raise ValueError("no JSON")


def test_more_that_is_due_than_one_look_takes_is_all_done_before_the_deadline(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_order, "AT_ONCE", 2)
    made: Any = Workflow("many", [Step(f"nap{place}", sleep=Sleep(20 + place)) for place in range(5)], deadline=40)
    run = made.start(1)
    desk.now += timedelta(seconds=42)
    for _ in range(3):
        runs.run_once(desk.now, 100)
    assert (run.phase, StepRow.objects.filter(run=run.id, status="succeeded").count()) == ("succeeded", 5)
    assert timers.run_once(desk.now, 100) == 0
