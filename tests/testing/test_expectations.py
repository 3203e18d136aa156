"""What tests say about journals, and one body alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import Group

from ezgh_workflows_django import Context, Permanent, Step, step_info
from ezgh_workflows_django.errors import InvalidPayload
from ezgh_workflows_django.protocol.failures import Failure
from ezgh_workflows_django.testing import Lab, assert_journal, run_body
from ezgh_workflows_django.worker.cancellation import Cancelled, Why

from . import flows

# --- journals


@pytest.fixture
def run(db: None) -> Iterator[Any]:
    """A job that is over."""
    with Lab(workflows=[flows.job]) as lab:
        started = flows.job.start("x")
        lab.run_until_idle()
        yield started


WHOLE = ["run.created", "run.started", "step.started", "step.succeeded", "run.succeeded"]


@pytest.mark.parametrize(
    "expected",
    [WHOLE, [...], [..., "run.succeeded"], ["run.created", ...], ["run.created", ..., ("step.succeeded", "work"), ...], [..., *WHOLE, ...]],
)
def test_a_journal_is_as_expected(run: Any, expected: list[Any]) -> None:
    assert_journal(run, expected)


@pytest.mark.parametrize(
    "expected",
    [
        [],
        WHOLE[:-1],
        WHOLE[1:],
        [*WHOLE, "run.succeeded"],
        [..., "run.failed", ...],
        [..., ("step.started", "other"), ...],
        ["run.created", "run.created", ...],
    ],
)
def test_a_journal_that_is_not_as_expected_is_shown_beside_it(run: Any, expected: list[Any]) -> None:
    with pytest.raises(AssertionError, match="not as expected") as shown:
        assert_journal(run, expected)
    assert re.search(r"^[+ ] step\.started work$", str(shown.value), re.MULTILINE)


# --- one body


@dataclass
class Parts:
    """The outputs of two steps."""

    price: int
    stock: int


def joined(ctx: Context, parts: Parts) -> dict[str, Any]:
    """What a body sees."""
    info = step_info()
    assert info is not None
    return {"sum": parts.price + parts.stock, "step": info.step, "attempt": ctx.attempt, "labels": dict(info.labels), "last": info.last}


def test_a_step_is_run_alone_with_its_input_decoded_and_its_output_encoded() -> None:
    step = Step("quote", run=joined, after=["price", "stock"])
    assert run_body(step, Parts(3, 4), attempt=2, labels={"order": "A-1"}, last=False) == {
        "sum": 7,
        "step": "quote",
        "attempt": 2,
        "labels": {"order": "A-1"},
        "last": False,
    }
    assert step_info() is None


def test_a_function_is_run_alone() -> None:
    assert run_body(joined, {"price": 1, "stock": 1})["step"] == "joined"


def test_a_body_without_input_gets_its_types_empty_value() -> None:
    def count(number: int) -> int:
        return number + 1

    assert run_body(count) == 1


def test_an_input_that_does_not_decode_is_refused_as_in_a_worker() -> None:
    with pytest.raises(Permanent, match="price"):
        run_body(joined, {"price": "three", "stock": 1})


def test_an_output_that_can_not_be_stored_is_refused_as_in_a_worker() -> None:
    with pytest.raises(InvalidPayload, match="output"):
        run_body(lambda: float("nan"))


def test_what_a_body_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        run_body(lambda: 1 / 0)


def test_a_body_sees_what_it_is_given() -> None:
    cancelled = Cancelled()
    cancelled.fire(Why.TIMEOUT)

    def look(ctx: Context) -> list[Any]:
        assert ctx.failure is not None
        return [ctx.steps["before"], ctx.state["key"], ctx.failure.message, ctx.cancelled.is_set()]

    seen = run_body(look, steps={"before": 1}, state={"key": 2}, failure=Failure(class_="error", message="boom"), cancelled=cancelled)
    assert seen == [1, 2, "boom", True]


def test_a_step_without_a_body_can_not_be_run() -> None:
    with pytest.raises(ValueError, match="it has no body"):
        run_body(flows.pay.step("paid"), None)


@pytest.mark.django_db
def test_a_coroutine_works_on_the_tests_connection() -> None:
    assert run_body(flows.add_group_later, "staff") == "staff!"
    assert Group.objects.get().name == "staff!"
