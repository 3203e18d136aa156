"""Other code under a run in flight, that asks for something new in a place which something is stored after: refused before it runs (case B24)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator
from typing import Any

import pytest

from ezgh_workflows_django.definitions.policies import Retry, Wait
from ezgh_workflows_django.errors import Permanent, StepFailed
from ezgh_workflows_django.protocol.states import LeaseStatus
from ezgh_workflows_django.worker.context import Context
from ezgh_workflows_django.worker.rehearsal import replay

from .passes import HOUR, Calls, Manner, Passes, Words, as_sync

Code = Callable[[], Generator[Any, Any, Any]]


def member(ctx: Context, code: Code) -> Any:
    """A member of a gather, from a generator of words: a callable, or in an async body a coroutine."""

    def called() -> Any:
        given, steps = None, code()
        try:
            while True:
                given = steps.send(given)
        except StopIteration as end:
            return end.value

    async def awaited() -> Any:
        given, steps = None, code()
        try:
            while True:
                word = steps.send(given)
                given = await word if inspect.isawaitable(word) else word
        except StopIteration as end:
            return end.value

    return awaited() if ctx._is_async else called


def mapped(calls: Calls, count: int) -> Callable[[Context], Words]:
    """A map of so many items, then a sleep."""

    def written(ctx: Context) -> Words:
        yield ctx.map("all", lambda item: calls.made.append(str(item)), range(count))
        yield ctx.sleep("rest", HOUR)

    return written


def test_an_item_that_was_added_to_a_map_which_is_over_is_refused(body: Manner, calls: Calls) -> None:
    passes = Passes(body(mapped(Calls(), 3)))
    passes.run()
    passes.swap(body(mapped(calls, 4))).again()
    assert (passes.outcome.class_, passes.outcome.message, calls.made) == (
        "nondeterminism",
        "expected sleep `rest` at 2, the code asks for step `all[3]` at 1",
        [],
    )


def test_a_map_that_is_not_over_goes_on_with_the_items_that_are_not_stored(body: Manner, calls: Calls) -> None:
    passes = Passes(body(mapped(calls, 4)))
    passes.run()
    del passes.stored.rows["rest"], passes.stored.rows["all[3]"]  # as if it had crashed before these
    calls.made.clear()
    assert (passes.run().status, calls.made) == (LeaseStatus.SUSPENDED, ["3"])


@pytest.mark.parametrize("new", ["step", "sleep", "event", "any", "child", "batch", "map", "gather"])
def test_something_new_in_the_place_of_an_empty_map_is_refused(body: Manner, calls: Calls, new: str) -> None:
    def before(ctx: Context) -> Words:
        yield ctx.map("all", str, [])
        yield ctx.step("after", calls.named("after"))
        yield ctx.sleep("rest", HOUR)

    def after(ctx: Context) -> Words:
        def inner() -> Words:
            yield ctx.step("new", calls.named("new"))

        words: dict[str, Callable[[], Any]] = {
            "step": lambda: ctx.step("new", calls.named("new")),
            "sleep": lambda: ctx.sleep("new", HOUR),
            "event": lambda: ctx.wait_for_event("new", event="e"),
            "any": lambda: ctx.wait_any("new", a=Wait("e")),
            "child": lambda: ctx.run_workflow("new", "kid"),
            "batch": lambda: ctx.run_batch("new", "kid", [1]),
            "map": lambda: ctx.map("new", lambda item: calls.made.append("new"), [1]),
            "gather": lambda: ctx.gather(member(ctx, inner)),
        }
        yield words[new]()
        yield ctx.step("after", calls.named("after"))
        yield ctx.sleep("rest", HOUR)

    passes = Passes(body(before))
    passes.run()
    outcome = passes.swap(body(after)).again()
    assert (outcome.class_, calls.made, passes.server.named("children")) == ("nondeterminism", ["after"], [])
    assert str(outcome.message).startswith("expected step `after` at 2, the code asks for ")


def test_a_branch_that_was_added_to_a_gather_which_is_over_is_refused(body: Manner, calls: Calls) -> None:
    def of(*names: str) -> Callable[[Context], Words]:
        def written(ctx: Context) -> Words:
            def branch(name: str) -> Code:
                def asking() -> Words:
                    yield ctx.step(name, calls.named(name))

                return asking

            yield ctx.gather(*(member(ctx, branch(name)) for name in names))
            yield ctx.sleep("rest", HOUR)

        return body(written)

    passes = Passes(of("a"))
    passes.run()
    outcome = passes.swap(of("a", "b")).again()
    assert (outcome.class_, outcome.message) == ("nondeterminism", "expected sleep `rest` at 2, the code asks for step `b` at 1")
    assert calls.made == ["a"]


def test_a_gather_that_failed_is_over_though_a_branch_of_it_is_not(body: Manner, calls: Calls) -> None:
    """The same code, pass after pass: what that branch would do next is neither a difference nor done."""
    errors = [ValueError("once")]

    def flaky() -> None:
        if errors:
            raise errors.pop()

    def written(ctx: Context) -> Words:
        def failing() -> Words:
            yield ctx.step("fails", calls.failing(ValueError("for good")))

        def slow() -> Words:
            yield ctx.step("flaky", flaky, retry=Retry(max_attempts=2))
            yield ctx.step("next", calls.named("next"))

        def sleeping() -> Words:
            yield ctx.sleep("nap", HOUR)

        try:
            yield ctx.gather(member(ctx, failing), member(ctx, slow), member(ctx, sleeping))
        except StepFailed as failed:
            yield ctx.step("undo", calls.named("undo"))
            yield ctx.sleep("rest", HOUR)
            yield ctx.sleep("more", HOUR)
            return failed.step

    passes = Passes(body(written))
    passes.run()
    assert (passes.waits, calls.made) == (["rest"], ["try", "undo"])
    passes.again()
    assert (passes.outcome.message, passes.waits) == (None, ["more"])
    assert (passes.again().output, calls.made) == ("fails", ["try", "undo"])


def test_a_child_that_could_not_be_started_can_not_be_in_later_passes_either(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        try:
            yield ctx.run_workflow("bill", "billing")
        except Permanent as error:
            yield ctx.sleep("rest", HOUR)
            return str(error)

    passes = Passes(body(written))
    passes.server.refuse("children", "lease", "invalid", "no workflow billing")
    passes.run()
    assert passes.waits == ["rest"]
    assert passes.again().output == "child run `bill`: workflow billing could not be started: no workflow billing"
    assert len(passes.server.named("children")) == 1


@pytest.mark.parametrize("in_group", [True, False], ids=["TaskGroup", "gather"])
def test_tasks_of_the_bodys_own_may_have_been_at_work_when_a_pass_died(calls: Calls, in_group: bool) -> None:
    async def written(ctx: Context) -> Any:
        words = [ctx.step(name, calls.named(name, name)) for name in ("slow", "quick")]
        if not in_group:
            return await asyncio.gather(*words)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(word) for word in words]
        return [task.result() for task in tasks]

    passes = Passes(written)
    passes.run()
    del passes.stored.rows["slow"]  # as if the worker had been killed while it was at work
    calls.made.clear()
    assert (passes.run().output, calls.made) == (["slow", "quick"], ["slow"])


def test_a_rehearsal_says_it_too() -> None:
    calls = Calls()
    passes = Passes(as_sync(mapped(calls, 3)))
    passes.run()
    passes.stored.meet("rest")
    passes.swap(as_sync(mapped(calls, 4)))
    told = replay(passes.workflow.body("only"), passes.stored.next_pass(passes.lease))
    assert str(told) == "expected sleep `rest` at 2, the code asks for step `all[3]` at 1"
