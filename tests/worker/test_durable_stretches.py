"""What a body notes goes out once, with the pass that parks: not lost with a pass that dies, not sent again by a later one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ezgh_workflows_django.definitions.policies import Retry
from ezgh_workflows_django.errors import StepFailed
from ezgh_workflows_django.worker.context import Context

from .passes import HOUR, Calls, Manner, Passes, Words


def sent(passes: Passes) -> tuple[Any, list[str], list[str]]:
    """The state, the amounts and the names of the spans that the last pass sent."""
    outcome = passes.outcome
    return outcome.state, [each.amount for each in outcome.usage], [span["name"] for span in outcome.spans]


def member(ctx: Context, code: Callable[[], Words]) -> Any:
    """A member of a gather, from a generator of words: a callable, or in an async body a coroutine."""

    def called() -> None:
        for _ in code():
            pass

    async def awaited() -> None:
        for word in code():
            if inspect.isawaitable(word):
                await word

    return awaited() if ctx._is_async else called


NOTHING: Any = (None, [], [])


def test_what_was_noted_before_a_child_is_not_lost_with_the_pass_that_started_it(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        ctx.patch_state(stage="billing")
        ctx.set_usage(tokens=7)
        with ctx.span("ask"):
            pass
        yield ctx.run_workflow("bill", "billing")

    passes = Passes(body(written))
    passes.run(lost=True)
    passes.run()
    assert sent(passes) == ({"stage": "billing"}, ["7"], ["ask"])
    passes.stored.end_children("bill", None)
    passes.run()
    assert sent(passes) == NOTHING


def test_what_was_noted_before_a_batch_is_not_lost_with_the_pass_that_started_it(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        ctx.patch_state(stage="telling")
        yield ctx.run_batch("tell", "notify", [1, 2])

    passes = Passes(body(written))
    passes.run(lost=True)
    passes.run()
    assert sent(passes) == ({"stage": "telling"}, [], [])


def test_what_was_noted_before_a_step_that_is_tried_again_is_not_lost_with_the_pass_that_failed(body: Manner, calls: Calls) -> None:
    charge = calls.failing(ValueError("once"))

    def written(ctx: Context) -> Words:
        ctx.patch_state(stage="charging")
        ctx.set_usage(tokens=7)
        yield ctx.step("charge", charge, retry=Retry(max_attempts=2))
        yield ctx.sleep("rest", HOUR)

    passes = Passes(body(written))
    passes.run(lost=True)
    passes.run()
    assert (passes.waits, sent(passes)) == (["rest"], ({"stage": "charging"}, ["7"], []))
    passes.again()
    assert sent(passes) == NOTHING


def test_what_was_noted_before_a_failed_step_is_not_lost_with_the_pass_it_failed_in(body: Manner, calls: Calls) -> None:
    charge = calls.failing(ValueError("for good"))

    def written(ctx: Context) -> Words:
        ctx.patch_state(stage="charging")
        try:
            yield ctx.step("charge", charge)
        except StepFailed:
            ctx.patch_state(failed=True)
        yield ctx.sleep("rest", HOUR)

    passes = Passes(body(written))
    passes.run(lost=True)
    passes.run()
    assert sent(passes) == ({"stage": "charging", "failed": True}, [], [])


def test_what_a_member_of_a_gather_notes_is_sent_once(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        def noting() -> Words:
            ctx.set_usage(tokens=5)
            ctx.patch_state(seen=1)
            with ctx.span("look"):
                pass
            yield None

        def sleeping() -> Words:
            yield ctx.sleep("a", HOUR)

        yield ctx.gather(member(ctx, sleeping), member(ctx, noting))
        ctx.patch_state(seen=2)
        yield ctx.sleep("z", HOUR)

    passes = Passes(body(written))
    passes.run()
    assert sent(passes) == ({"seen": 1}, ["5"], ["look"])
    passes.again()
    assert (passes.waits, sent(passes)) == (["z"], ({"seen": 2}, [], []))
    passes.again()
    assert sent(passes) == NOTHING


def test_a_member_whose_own_things_are_met_does_not_send_again_while_its_sibling_parks(body: Manner, calls: Calls) -> None:
    def written(ctx: Context) -> Words:
        def slow() -> Words:
            ctx.set_usage(seconds=1)
            yield ctx.sleep("a1", HOUR)
            ctx.set_usage(seconds=2)
            yield ctx.sleep("a2", HOUR)

        def quick() -> Words:
            ctx.set_usage(tokens=3)
            yield ctx.step("b", calls.named("b"))
            ctx.set_usage(tokens=5)

        yield ctx.gather(member(ctx, slow), member(ctx, quick))

    passes = Passes(body(written))
    told = []
    passes.run()
    told.append(sorted(sent(passes)[1]))
    for _ in range(2):
        passes.again()
        told.append(sent(passes)[1])
    assert told == [["1", "5"], ["2"], []]


def test_a_gather_within_a_gather_sends_what_it_notes_once(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        def noting() -> Words:
            ctx.set_usage(tokens=5)
            yield None

        def sleeping() -> Words:
            yield ctx.sleep("a", HOUR)

        def outer() -> Words:
            ctx.patch_state(outer=1)
            yield ctx.gather(member(ctx, noting), member(ctx, noting))

        yield ctx.gather(member(ctx, sleeping), member(ctx, outer))
        yield ctx.sleep("z", HOUR)

    passes = Passes(body(written))
    passes.run()
    assert sent(passes) == ({"outer": 1}, ["10"], [])
    passes.again()
    assert sent(passes) == NOTHING


def test_a_span_around_what_parks_counts_what_was_used_in_each_pass_once(body: Manner, calls: Calls) -> None:
    def written(ctx: Context) -> Words:
        with ctx.span("work") as span:
            span.set_usage(tokens=5)
            yield ctx.step("first", calls.named("first"))
            span.set_usage(tokens=8)
            yield ctx.sleep("a", HOUR)
            span.set_usage(tokens=2)
        yield ctx.sleep("z", HOUR)

    passes = Passes(body(written))
    passes.run()
    assert sent(passes) == (None, ["8"], ["work"])
    passes.again()
    assert sent(passes) == (None, ["2"], ["work"])
    passes.again()
    assert sent(passes) == NOTHING


def test_a_span_around_a_gather_counts_once(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        def noting() -> Words:
            ctx.set_usage(tokens=3)
            yield None

        def sleeping() -> Words:
            yield ctx.sleep("a", HOUR)

        with ctx.span("work") as span:
            span.set_usage(tokens=5)
            yield ctx.gather(member(ctx, sleeping), member(ctx, noting))
        ctx.patch_state(after=True)

    passes = Passes(body(written))
    passes.run()
    assert sent(passes) == (None, ["8"], ["work"])
    passes.again()
    assert sent(passes) == ({"after": True}, [], ["work"])


def test_a_patch_that_a_step_overtook_is_not_sent_by_a_later_pass(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        ctx.patch_state(stage="outer")
        yield ctx.step("work", lambda: ctx.patch_state(stage="inner"))
        yield ctx.sleep("a", HOUR)
        yield ctx.sleep("z", HOUR)

    passes = Passes(body(written))
    passes.run()
    passes.again()
    assert [outcome.state for outcome in passes.outcomes] == [None, None]


def test_a_later_pass_sees_its_own_patch_where_it_was_made(body: Manner) -> None:
    seen: list[Any] = []

    def written(ctx: Context) -> Words:
        ctx.patch_state(stage="first")
        seen.append(ctx.state["stage"])
        yield ctx.sleep("a", HOUR)

    passes = Passes(body(written))
    passes.run()
    passes.again()
    assert seen == ["first", "first"]


def test_only_stretches_with_notes_are_told_and_given_back(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        yield ctx.sleep("a", HOUR)
        ctx.patch_state(seen=1)
        yield ctx.sleep("z", HOUR)

    passes = Passes(body(written))
    passes.run()
    passes.again()
    assert [len(outcome.noted) for outcome in passes.outcomes] == [0, 1]
    passes.again()
    assert len(passes.lease.noted) == 1
