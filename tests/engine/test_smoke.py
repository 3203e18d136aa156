"""A run through every kind of step, on whatever database the suite runs on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ezgh_workflows_django import Retry, Sleep, Step, Wait, Workflow, emit
from tests.engine.conftest import Desk


def give_back(value: object) -> object:
    """A body."""
    return value


def test_a_run_goes_through_its_graph(desk: Desk, django_capture_on_commit_callbacks: Any) -> None:
    order = Workflow(
        "order",
        steps=[
            Step("reserve", run=give_back),
            Step("price", run=give_back),
            Step("pay", after=["reserve"], wait=Wait("payment", key_expr="payload.order", timeout=timedelta(days=1))),
            Step("cool", after=["pay"], sleep=Sleep(timedelta(hours=1))),
            Step("ship", after=["cool", "price"], run=give_back, retry=Retry(max_attempts=2)),
        ],
    )
    hand = desk.worker(order)
    run = order.start({"order": "A-1"})
    assert hand.work_off() == 2
    assert run.phase == "waiting"
    with django_capture_on_commit_callbacks(execute=True):
        emit("payment", key="A-1", payload={"paid": 40})
    assert run.phase == "sleeping"
    desk.advance(hours=1)
    [lease] = hand.claim()
    hand.start(lease)
    hand.beat(lease, progress={"done": 1})
    hand.fail(lease)
    assert run.phase == "retrying"
    desk.advance(seconds=2)
    assert hand.work_off() == 1
    assert run.phase == "succeeded"
    assert run.result() == {"cool": {"paid": 40}, "price": {"order": "A-1"}}
