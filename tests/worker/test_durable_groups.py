"""The words of a durable function, pass by pass, in sync and in async bodies: groups."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ezgh_workflows_django.definitions.policies import Retry
from ezgh_workflows_django.errors import StepFailed
from ezgh_workflows_django.protocol.states import Mode
from ezgh_workflows_django.worker.context import Context

from .passes import HOUR, Calls, Manner, Passes, Words, as_async


def test_the_items_of_a_map_run_side_by_side_up_to_its_concurrency(body: Manner) -> None:
    together, busy, most = threading.Barrier(3), [0], [0]
    lock = threading.Lock()

    def work(item: int) -> int:
        with lock:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
        together.wait(60)  # three must be here at once
        with lock:
            busy[0] -= 1
        return item * 10

    def written(ctx: Context) -> Words:
        return (yield ctx.map("tens", work, range(9), concurrency=3))

    assert Passes(body(written)).run().output == [item * 10 for item in range(9)]
    assert most == [3]


def test_a_map_keeps_what_is_stored_in_whatever_order_and_runs_the_rest(body: Manner, calls: Calls) -> None:
    errors = {1: [ValueError("later")], 3: [ValueError("later")]}

    def work(item: int) -> int:
        calls.made.append(str(item))
        if errors.get(item):
            raise errors[item].pop()
        return item

    def written(ctx: Context) -> Words:
        return (yield ctx.map("all", work, range(5), concurrency=1, retry=Retry(max_attempts=2)))

    passes = Passes(body(written))
    passes.run()
    assert (passes.waits, passes.outcome.mode) == (["all[1]", "all[3]"], Mode.ANY)
    assert passes.run().output == [0, 1, 2, 3, 4]
    assert sorted(calls.made) == ["0", "1", "1", "2", "3", "3", "4"]


def test_a_map_raises_what_its_first_failure_raised_after_all_have_ended(body: Manner, calls: Calls) -> None:
    def work(item: int) -> None:
        calls.made.append(str(item))
        if item == 1:
            raise ValueError(f"item {item}")

    def written(ctx: Context) -> Words:
        try:
            yield ctx.map("all", work, range(4), concurrency=1)
        except StepFailed as failed:
            return failed.step

    assert (Passes(body(written)).run().output, calls.made) == ("all[1]", ["0", "1", "2", "3"])


def test_a_map_that_shrank_is_refused(body: Manner, calls: Calls) -> None:
    def of(count: int) -> Callable[..., Any]:
        def written(ctx: Context) -> Words:
            yield ctx.map("all", lambda item: calls.made.append(item), range(count))
            yield ctx.sleep("rest", HOUR)

        return body(written)

    passes = Passes(of(3))
    passes.run()
    passes.swap(of(2))
    assert (passes.run().class_, passes.outcome.message) == ("nondeterminism", "expected step `all[2]` at 1, the code asks for `all` with 2 items")


def threads(ctx: Context, calls: Calls, *names: str) -> Any:
    def branch(name: str) -> Any:
        ctx.step(f"{name}1", calls.named(f"{name}1"))
        ctx.sleep(f"{name}2", HOUR)
        return ctx.step(f"{name}3", calls.named(f"{name}3", name))

    return ctx.gather(*(lambda name=name: branch(name) for name in names))


async def tasks(ctx: Context, calls: Calls, *names: str) -> Any:
    async def branch(name: str) -> Any:
        await ctx.step(f"{name}1", calls.named(f"{name}1"))
        await ctx.sleep(f"{name}2", HOUR)
        return await ctx.step(f"{name}3", calls.named(f"{name}3", name))

    return await ctx.gather(*(branch(name) for name in names))


@pytest.fixture(params=["threads", "tasks"])
def branches(request: pytest.FixtureRequest) -> Callable[..., Callable[..., Any]]:
    """Makes a body whose gather has a branch of three things for each name."""

    def make(calls: Calls, *names: str) -> Callable[..., Any]:
        def in_threads(ctx: Context) -> Any:
            return threads(ctx, calls, *names)

        async def in_tasks(ctx: Context) -> Any:
            return await tasks(ctx, calls, *names)

        return in_threads if request.param == "threads" else in_tasks

    return make


def test_a_branch_that_parks_does_not_stop_the_others_and_goes_on_alone(branches: Any, calls: Calls) -> None:
    passes = Passes(branches(calls, "a", "b"))
    passes.run()
    assert (sorted(passes.waits), passes.outcome.mode, sorted(calls.made)) == (["a2", "b2"], Mode.ANY, ["a1", "b1"])
    passes.stored.meet("b2")
    passes.run()
    assert (passes.waits, sorted(calls.made)) == (["a2"], ["a1", "b1", "b3"])
    assert (passes.again().output, sorted(calls.made)) == (["a", "b"], ["a1", "a3", "b1", "b3"])


def test_a_branch_that_was_renamed_is_refused_before_it_runs(branches: Any, calls: Calls) -> None:
    """Case B24."""
    passes = Passes(branches(calls, "a", "b"))
    passes.run()
    after = Calls()
    outcome = passes.swap(branches(after, "x", "b")).run()
    assert (outcome.class_, after.made) == ("nondeterminism", [])
    assert str(outcome.message).startswith("expected ")


def test_a_branch_that_was_added_runs_once_what_is_stored_was_asked_for(branches: Any, calls: Calls) -> None:
    passes = Passes(branches(calls, "b"))
    passes.run()
    passes.swap(branches(calls, "new", "b")).run()
    assert (sorted(passes.waits), calls.made) == (["b2", "new2"], ["b1", "new1"])


def test_plain_waits_side_by_side_are_collected_without_waking_a_worker() -> None:
    async def written(ctx: Context) -> Any:
        return await ctx.gather(ctx.sleep("a", 1), ctx.wait_for_event("b", event="b"), ctx.step("c", lambda: 3))

    passes = Passes(written)
    passes.run()
    assert (passes.waits, passes.outcome.mode) == (["a", "b"], Mode.ALL)
    assert passes.again(b=2).output == [None, 2, 3]


def test_a_gather_within_a_gather_shares_its_place(body: Manner) -> None:
    async def inner(ctx: Context) -> Any:
        return await ctx.gather(ctx.step("b", lambda: 2), ctx.map("m", lambda item: item, [3, 4]))

    def written(ctx: Context) -> Words:
        if body is as_async:
            got = yield ctx.gather(ctx.step("a", lambda: 1), inner(ctx))
        else:
            got = yield ctx.gather(
                lambda: ctx.step("a", lambda: 1), lambda: ctx.gather(lambda: ctx.step("b", lambda: 2), lambda: ctx.map("m", lambda item: item, [3, 4]))
            )
        yield ctx.sleep("rest", HOUR)
        return got

    passes = Passes(body(written))
    passes.run()
    assert {row.name: row.pos for row in passes.stored.rows.values()} == {"a": 1, "b": 1, "m[0]": 1, "m[1]": 1, "rest": 2}
    assert passes.again().output == [1, [2, [3, 4]]]


def test_failures_of_a_gather_may_be_values() -> None:
    def written(ctx: Context) -> Any:
        good, bad = ctx.gather(lambda: ctx.step("good", lambda: 1), lambda: ctx.step("bad", lambda: 1 / 0), return_exceptions=True)
        return [good, type(bad).__name__, bad.step]

    assert Passes(written).run().output == [1, "StepFailed", "bad"]


def test_a_member_that_holds_its_suspension_up_is_named(calls: Calls) -> None:
    """Case B46."""

    def member(ctx: Context) -> None:
        with suppress(BaseException):  # what the test is about
            ctx.sleep("rest", HOUR)

    def written(ctx: Context) -> None:
        ctx.gather(lambda: member(ctx))
        ctx.step("after", calls.named("after"))

    outcome = Passes(written).run()
    assert (outcome.class_, "the body parks on sleep `rest`, but a member" in str(outcome.message), calls.made) == ("permanent", True, [])
