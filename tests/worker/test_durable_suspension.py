"""The words of a durable function, pass by pass, in sync and in async bodies: suspension, and what user code does about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ezgh_workflows_django.protocol.states import LeaseStatus
from ezgh_workflows_django.worker.context import Context

from .passes import HOUR, Calls, Manner, Passes, Words


def test_except_exception_does_not_hold_a_suspension_up(body: Manner) -> None:
    """Case B46."""

    def written(ctx: Context) -> Words:
        try:
            yield ctx.sleep("rest", HOUR)
        except Exception:  # noqa: BLE001 - what the test is about
            return "held up"
        return "rested"

    passes = Passes(body(written))
    assert (passes.run().status, passes.again().output) == (LeaseStatus.SUSPENDED, "rested")


def returns(ctx: Context, calls: Calls) -> Words:
    with suppress(BaseException):  # what the test is about
        yield ctx.sleep("rest", HOUR)
    return 1


def goes_on(ctx: Context, calls: Calls) -> Words:
    with suppress(BaseException):  # what the test is about
        yield ctx.sleep("rest", HOUR)
    yield ctx.step("next", calls.named("next"))


def asks_in_finally(ctx: Context, calls: Calls) -> Words:
    try:
        yield ctx.sleep("rest", HOUR)
    finally:
        yield ctx.step("tidy up", calls.named("tidy up"))


def replaces(ctx: Context, calls: Calls) -> Words:
    try:
        yield ctx.sleep("rest", HOUR)
    except BaseException as error:
        raise ValueError("wrapped") from error


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        (returns, "but returned instead."),
        (goes_on, "but went on to ask for `next`."),
        (asks_in_finally, "but went on to ask for `tidy up`."),
        (replaces, "but did not let that pass and raised ValueError: wrapped."),
    ],
    ids=["returns", "goes on", "finally", "replaces"],
)
def test_code_that_holds_a_suspension_up_fails_by_name_and_runs_nothing(body: Manner, calls: Calls, written: Any, instead: str) -> None:
    """Case B46."""

    def with_a_step(ctx: Context) -> Words:
        yield ctx.step("before", calls.named("before"))
        return (yield from written(ctx, calls))

    outcome = Passes(body(with_a_step)).run()
    assert (outcome.class_, calls.made) == ("permanent", ["before"])
    assert str(outcome.message).startswith(f"the body parks on sleep `rest`, {instead}")


def test_asyncios_gather_that_returns_exceptions_is_named(calls: Calls) -> None:
    """Case B46."""

    async def written(ctx: Context) -> None:
        await asyncio.gather(ctx.sleep("rest", HOUR), return_exceptions=True)
        await ctx.step("next", calls.named("next"))

    outcome = Passes(written).run()
    assert (outcome.class_, calls.made) == ("permanent", [])
    assert str(outcome.message).startswith("the body parks on sleep `rest`, but went on to ask for `next`.")


async def beside_in_gather(ctx: Context, slow: Callable[[], Any]) -> None:
    await asyncio.gather(ctx.step("slow", slow), ctx.sleep("rest", HOUR))


async def beside_in_a_task_group(ctx: Context, slow: Callable[[], Any]) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ctx.step("slow", slow))
        tasks.create_task(ctx.sleep("rest", HOUR))


@pytest.mark.parametrize("written", [beside_in_gather, beside_in_a_task_group], ids=["gather", "TaskGroup"])
def test_a_pass_that_parks_waits_for_the_steps_in_flight_so_that_none_runs_twice(calls: Calls, written: Any) -> None:
    """Case B46."""

    async def slow() -> str:
        for _ in range(20):
            await asyncio.sleep(0)
        calls.made.append("slow")
        return "slow"

    async def durable(ctx: Context) -> None:
        await written(ctx, slow)

    passes = Passes(durable)
    assert (passes.run().status, passes.waits, calls.made) == (LeaseStatus.SUSPENDED, ["rest"], ["slow"])
    assert (passes.again().status, calls.made) == (LeaseStatus.COMPLETED, ["slow"])
