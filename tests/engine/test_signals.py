"""A signal is offered to every open wait of its run, the oldest first, until one has taken it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest

from ezgh_workflows_django import Step, Wait, Workflow
from ezgh_workflows_django.errors import RunTerminal
from ezgh_workflows_django.models import Event
from tests.engine.bodies import Parked
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body, brought, event, sleep

LATE: Final = timedelta(seconds=10.2)
"""A moment after a timeout of 10 seconds, which no tick has seen."""


def two_waits(desk: Desk, **first: Any) -> Any:
    """A run with two waits for `go`, the older of them as it is told."""
    made: Any = Workflow("two", [Step("a", wait=Wait("go", **first)), Step("b", wait=Wait("go")), Step("end", run=body, after=["a", "b"])])
    run = made.start(1)
    desk.tick()
    return run


def statuses(run: Any) -> dict[str, tuple[str, str | None]]:
    """The run's steps, and what they came to."""
    return {step.name: (step.status, step.output) for step in run.steps}


def test_a_signal_after_the_timeout_of_the_oldest_wait_is_taken_by_the_next_one(desk: Desk) -> None:
    run = two_waits(desk, timeout=10, on_timeout="continue")
    desk.now += LATE  # and no tick
    assert run.signal("go", 7) == "delivered"
    assert statuses(run) == {"a": ("succeeded", "null"), "b": ("succeeded", "7"), "end": ("ready", None)}


def test_a_signal_that_finds_only_waits_past_their_timeout_stays_for_later(desk: Desk) -> None:
    made: Any = Workflow("one", [Step("a", wait=Wait("go", timeout=10, on_timeout="continue")), Step("b", wait=Wait("go"), after=["a"])])
    run = made.start(1)
    desk.tick()
    desk.now += LATE
    run.signal("go", 7)
    assert statuses(run) == {"a": ("succeeded", "null"), "b": ("succeeded", "7")}


def test_a_signal_after_a_timeout_that_fails_the_run_is_taken_by_nobody(desk: Desk) -> None:
    run = two_waits(desk, timeout=10)
    desk.now += LATE
    assert run.signal("go", 7) == "buffered"
    assert (run.phase, run.failure.class_) == ("failed", "timeout")


def test_a_signal_after_the_deadline_rescues_no_run(desk: Desk) -> None:
    """No tick has seen it: the run ends as it would have without the signal."""
    made: Any = Workflow("bounded", [Step("a", wait=Wait("go"))], deadline=10)
    run = made.start(1)
    desk.tick()
    desk.now += LATE
    with pytest.raises(RunTerminal, match=f"run {run.id} is timed_out"):
        run.signal("go", 7)
    assert (run.phase, run.failure.class_, Event.objects.count()) == ("timed_out", "deadline", 0)


def test_a_signal_after_the_deadline_is_kept_for_what_compensates(desk: Desk) -> None:
    made: Any = Workflow("bounded", [Step("a", wait=Wait("go"))], deadline=10, on_failure=body)
    hand: Hand = desk.worker(made)
    run = made.start(1)
    desk.tick()
    desk.now += LATE
    assert (run.signal("go", 7), run.phase) == ("buffered", "failing")
    hand.complete(hand.take())
    assert run.phase == "timed_out"


def test_a_signal_after_the_deadline_meets_what_came_before_that_first(desk: Desk) -> None:
    made: Any = Workflow("bounded", [Step("a", wait=Wait("go", timeout=9, on_timeout="continue"))], deadline=10)
    run = made.start(1)
    desk.tick()
    desk.now += LATE
    with pytest.raises(RunTerminal):
        run.signal("go", 7)
    assert (run.phase, run.result()) == ("succeeded", None)


def test_a_signal_is_taken_by_one_wait_only(desk: Desk) -> None:
    run = two_waits(desk)
    assert run.signal("go", 1) == "delivered"
    assert statuses(run)["b"] == ("waiting", None)
    assert run.signal("go", 2) == "delivered"
    assert statuses(run)["b"] == ("succeeded", "2")


def test_a_signal_past_a_body_that_goes_on_for_something_earlier_is_taken_by_the_next_wait(desk: Desk) -> None:
    made: Any = Workflow("mixed", [Step("work", run=body), Step("b", wait=Wait("go"), after=["first"]), Step("first", run=body)])
    hand: Hand = desk.worker(made)
    run = made.start(1)
    leases = {lease.step: lease for lease in hand.claim()}
    for lease in leases.values():
        hand.start(lease)
    hand.park(leases["work"], event("go"), sleep("nap", 10), mode="any")
    hand.complete(leases["first"])
    desk.tick()
    desk.now += LATE
    assert run.signal("go", 7) == "delivered"
    assert statuses(run)["b"] == ("succeeded", "7")
    assert (desk.step(run, "work").status, brought(hand.take(), "go").is_open) == ("ready", True)


@pytest.mark.parametrize("mode", ["any", "all"])
def test_a_signal_reaches_the_second_wait_of_one_body(parked: Parked, mode: str) -> None:
    parked.park(event("a", of="go", timeout_ms=10_000), event("b", of="go", pos=2), mode=mode)
    parked.desk.tick()
    parked.desk.now += LATE
    told = parked.run.signal("go", 7)
    again = parked.go_on()
    expected = {"any": ("buffered", True, True), "all": ("delivered", True, False)}[mode]
    assert (told, brought(again, "a").timed_out, brought(again, "b").is_open) == expected
