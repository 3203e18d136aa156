"""The words of a durable function, pass by pass, in sync and in async bodies: what is stored, and given back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from ezgh_workflows_django.errors import StepFailed
from ezgh_workflows_django.protocol.states import LeaseStatus, Mode
from ezgh_workflows_django.worker.context import Context

from .passes import HOUR, Calls, Manner, Passes, Words


class Colour(Enum):
    RED = "red"


@dataclass
class Part:
    size: int


def a_tuple() -> tuple[int, str]:
    return (1, "a")


def a_dict() -> dict[int, Decimal]:
    return {2: Decimal("1.10"), 1: Decimal(3)}


def moments() -> list[datetime]:
    return [datetime(2024, 1, 1, 9, 0, 0, 5, tzinfo=UTC), datetime(2024, 1, 1)]  # noqa: DTZ001 - a naive one, too


def a_date() -> date:
    return date(2024, 2, 29)


def an_id() -> UUID:
    return UUID(int=5)


def some_bytes() -> bytes:
    return b"abc"


def a_colour() -> Colour:
    return Colour.RED


def parts() -> list[Part]:
    return [Part(1)]


def plain() -> Any:
    return {"b": (2**60, 0.1 + 0.2), "a": {1: "one"}}


TYPED = [a_tuple, a_dict, moments, a_date, an_id, some_bytes, a_colour, parts, plain]


@pytest.mark.parametrize("function", TYPED, ids=lambda function: function.__name__)
def test_a_result_has_the_same_type_on_the_first_pass_and_on_every_replay(body: Manner, function: Callable[[], Any]) -> None:
    """Case B50."""
    seen: list[Any] = []

    def written(ctx: Context) -> Words:
        seen.append((yield ctx.step("value", function)))
        yield ctx.sleep("rest", HOUR)

    passes = Passes(body(written))
    passes.run()
    passes.again()
    assert repr(seen[0]) == repr(seen[1])
    assert (seen[0] == function()) == (function is not plain)


def test_a_result_that_its_annotation_does_not_allow_fails_its_step_on_the_first_pass(body: Manner) -> None:
    """Case B50: refused at once, not on the replay."""

    def lies() -> int:
        return "five"  # type: ignore[return-value]  # what the test is about

    def written(ctx: Context) -> Words:
        yield ctx.step("value", lies)

    outcome = Passes(body(written)).run()
    assert (outcome.class_, "output does not decode" in str(outcome.message)) == ("permanent", True)


def test_a_function_whose_annotation_means_nothing_is_refused_before_it_is_called(body: Manner, calls: Calls) -> None:
    def written(ctx: Context) -> Words:
        def charge() -> Calls:
            calls.made.append("charge")
            return calls

        yield ctx.step("pay", charge)

    outcome = Passes(body(written)).run()
    assert (outcome.status, calls.made) == (LeaseStatus.FAILED, [])
    assert str(outcome.message).startswith("fn: step pay: the annotation Calls can't be decoded")


def test_a_stored_step_is_never_run_again(body: Manner, calls: Calls) -> None:
    def written(ctx: Context) -> Words:
        first = yield ctx.step("first", calls.named("first", 1))
        yield ctx.sleep("rest", HOUR)
        return first + (yield ctx.step("second", calls.named("second", 2)))

    passes = Passes(body(written))
    assert (passes.run().status, passes.waits, passes.outcome.mode) == (LeaseStatus.SUSPENDED, ["rest"], Mode.ALL)
    assert (passes.again().output, calls.made) == (3, ["first", "second"])


def test_what_the_body_changes_in_a_result_does_not_reach_what_is_stored(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        given = yield ctx.step("list", lambda: [1])
        given.append(2)
        yield ctx.sleep("rest", HOUR)
        return given

    passes = Passes(body(written))
    passes.run()
    assert passes.again().output == [1, 2]


def test_an_output_that_can_not_be_stored_fails_its_step_for_good_by_path(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        try:
            yield ctx.step("value", lambda: {"n": [float("nan")]})
        except StepFailed as failed:
            return [failed.failure_class, failed.message]

    assert Passes(body(written)).run().output == ["permanent", "output.n[0]: is NaN, which is not JSON"]


def test_what_the_server_can_not_store_becomes_the_steps_failure(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        try:
            yield ctx.step("value", lambda: "x" * 9)
        except StepFailed as failed:
            return [failed.failure_class, failed.message]

    passes = Passes(body(written))
    keep = passes.server._keep

    def picky(record: Any) -> Any:
        passes.server.refuse("checkpoint", "lease", "too_large", "output: is 9 bytes too many")
        if record.failure is not None:
            passes.server.accept("checkpoint", "lease")
        return keep(record)

    passes.server._keep = picky  # type: ignore[method-assign]  # a server with a limit
    assert passes.run().output == ["permanent", "output: is 9 bytes too many"]
