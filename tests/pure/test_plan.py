"""What the engine reads of a stored definition."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ezgh_workflows_django import Retry, Sleep, Step, Wait, Workflow
from ezgh_workflows_django.definitions.plan import Plan, PlanWait
from ezgh_workflows_django.definitions.policies import NO_RETRY
from ezgh_workflows_django.protocol.states import Delivery, StepKind


def body(input: Any) -> Any:
    return input


def plan(**options: Any) -> Plan:
    steps = [
        Step("join", run=body, after=["left", "right"], timeout=timedelta(hours=1)),
        Step("left", run=body, after=["top"], retry=Retry()),
        Step("right", wait=Wait("x", key="k", timeout=60, lookback=None), after=["top"]),
        Step("top", sleep=Sleep(5)),
        Step("alone", run=body, delivery="at_most_once"),
    ]
    return Plan.from_spec(Workflow("order", **{"steps": steps, **options}).to_spec())


def test_steps_keep_their_order_and_place() -> None:
    assert [(step.position, step.name) for step in plan().steps.values()] == [(0, "join"), (1, "left"), (2, "right"), (3, "top"), (4, "alone")]


def test_the_graph_is_walked_both_ways() -> None:
    assert plan().roots == ("top", "alone")
    assert plan().children("top") == ("left", "right")
    assert plan().children("join") == ()
    assert plan().ancestors("join") == ("top", "left", "right")
    assert plan().ancestors("top") == ()
    assert plan().descendants("top") == {"left", "right", "join"}
    assert plan().descendants("alone") == frozenset()


def test_compensation_comes_after_every_step() -> None:
    assert set(plan(on_failure=body).ancestors("on_failure")) == {"join", "left", "right", "top", "alone"}


def test_defaults_of_the_workflow_reach_bodies_only() -> None:
    found = plan(retry=Retry(max_attempts=3), timeout=30).steps
    assert [found[name].timeout_ms for name in ("join", "left", "right", "top")] == [3_600_000, 30_000, None, None]
    assert [found[name].retry.max_attempts for name in ("join", "left", "right", "top")] == [3, 1, 1, 1]


def test_a_step_has_one_attempt_by_default() -> None:
    assert plan().steps["join"].retry == NO_RETRY
    assert NO_RETRY.max_attempts == 1


def test_a_wait_and_a_sleep_carry_their_times() -> None:
    assert plan().steps["right"].wait == PlanWait(event="x", key="k", timeout_ms=60_000, lookback_closed=True)
    assert plan().steps["top"].sleep_ms == 5_000
    assert plan().steps["alone"].delivery is Delivery.AT_MOST_ONCE


def test_on_failure_has_the_policies_of_the_workflow() -> None:
    step = plan(on_failure=body, retry=Retry(max_attempts=3), timeout=30).step("on_failure")
    assert (step.kind, step.retry.max_attempts, step.timeout_ms, step.position) == (StepKind.ON_FAILURE, 3, 30_000, 5)


def test_a_workflow_without_compensation_has_no_such_step() -> None:
    assert plan().on_failure is None
    with pytest.raises(KeyError):
        plan().step("on_failure")


@pytest.mark.parametrize(
    ("options", "longest"),
    [
        ({}, 3_600_000),
        ({"timeout": timedelta(hours=2)}, 7_200_000),
        ({"steps": [Step("a", run=body)]}, None),
        ({"steps": [Step("a", sleep=Sleep(0))], "on_failure": body, "timeout": 7}, 7_000),
    ],
)
def test_the_longest_timeout_is_of_bodies(options: dict[str, Any], longest: int | None) -> None:
    assert plan(**options).longest_timeout_ms == longest
