"""The words of a durable function, pass by pass, in sync and in async bodies: waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from ezgh_workflows_django.definitions.policies import Retry, Wait
from ezgh_workflows_django.errors import InvalidArgument
from ezgh_workflows_django.protocol.states import Mode
from ezgh_workflows_django.worker.context import Context
from ezgh_workflows_django.worker.waits import TIMED_OUT, Arrived

from .passes import HOUR, Manner, Passes, Words


def test_a_timeout_is_remembered_and_a_null_payload_is_no_timeout(body: Manner) -> None:
    """Case B09."""
    seen: list[list[Any]] = []

    def written(ctx: Context) -> Words:
        first = yield ctx.wait_for_event("tick-1", event="tick", timeout=1, on_timeout="continue")
        second = yield ctx.wait_for_event("tick-2", event="tick", timeout=1, on_timeout="continue")
        third = yield ctx.wait_for_event("tick-3", event="tick", timeout=1, on_timeout="continue")
        seen.append([first, second, third])

    passes = Passes(body(written))
    passes.run()
    for name, timed_out in (("tick-1", True), ("tick-2", False), ("tick-3", True)):
        assert passes.waits == [name]
        passes.stored.meet(name, timed_out=timed_out)
        passes.run()
    passes.run()
    assert seen == [[TIMED_OUT, None, TIMED_OUT]] * 2
    assert (bool(TIMED_OUT), repr(TIMED_OUT)) == (False, "TIMED_OUT")


def test_a_wait_that_timed_out_says_what_it_waited_for(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        yield ctx.wait_for_event("approval", event="image.approved", key="A-1", timeout=timedelta(days=3))

    passes = Passes(body(written))
    passes.run()
    [wait] = passes.outcome.waits
    assert (wait.event, wait.key, wait.timeout_ms, wait.lookback_ms) == ("image.approved", "A-1", 259_200_000, 0)
    passes.stored.meet("approval", timed_out=True)
    outcome = passes.run()
    assert (outcome.class_, outcome.message) == ("timeout", "wait approval timed out after 3d: no event image.approved with key A-1 came")


def test_the_first_of_several_events_stays_the_first(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        first = yield ctx.wait_any("outcome", paid=Wait("paid"), cancelled=Wait("cancelled"))
        yield ctx.sleep("rest", HOUR)
        return [isinstance(first, Arrived), *first]

    passes = Passes(body(written))
    passes.run()
    assert (passes.waits, passes.outcome.mode) == (["outcome[paid]", "outcome[cancelled]"], Mode.ANY)
    passes.stored.meet("outcome[cancelled]", output=5)
    passes.run()
    passes.stored.meet("outcome[paid]", output=6)
    assert passes.again().output == [True, "cancelled", 5]


def test_all_of_several_events_are_given_by_branch(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        return (yield ctx.wait_all("both", a=Wait("x"), b=Wait("y")))

    passes = Passes(body(written))
    passes.run()
    passes.stored.meet("both[b]", output=2)
    assert (passes.run().mode, passes.waits) == (Mode.ALL, ["both[a]"])
    assert passes.again(**{"both[a]": 1}).output == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (lambda ctx: ctx.sleep("a[0]", 1), "name"),
        (lambda ctx: ctx.sleep("a\n", 1), "name"),
        (lambda ctx: ctx.sleep("x" * 201, 1), "name"),
        (lambda ctx: ctx.sleep("", 1), "name"),
        (lambda ctx: ctx.sleep("a", -1), "duration"),
        (lambda ctx: ctx.sleep_until("a", datetime(2024, 1, 1)), "moment"),  # noqa: DTZ001 - what the test is about
        (lambda ctx: ctx.wait_any("a"), "branches"),
        (lambda ctx: ctx.wait_any("a", b=Wait("x", key=lambda run: "k")), "key"),
        (lambda ctx: ctx.wait_any("a", b=Wait("x", key_expr="payload.k")), "key"),
        (lambda ctx: ctx.step("a", "not callable"), "fn"),
        (lambda ctx: ctx.step("a", print, retry=Retry(max_attempts=0)), "retry"),
        (lambda ctx: ctx.step("a", print, retry=Retry(max_attempts=3, exhausted="pause")), "retry"),
        (lambda ctx: ctx.map("a", print, [1], retry=Retry(max_attempts=3, exhausted="pause")), "retry"),
        (lambda ctx: ctx.step("a", print, timeout=0), "timeout"),
        (lambda ctx: ctx.step("a", asyncio.sleep, transactional=True), "transactional"),
        (lambda ctx: ctx.map("a", print, [], concurrency=0), "concurrency"),
        (lambda ctx: ctx.run_workflow("a", 5), "workflow"),
        (lambda ctx: ctx.gather(5), "gather"),
    ],
)
def test_what_can_not_be_asked_is_refused_by_the_name_of_the_argument(body: Manner, ask: Callable[[Context], Any], field: str) -> None:
    def written(ctx: Context) -> Words:
        try:
            yield ask(ctx)
        except InvalidArgument as error:
            return error.field

    assert Passes(body(written)).run().output == field


@pytest.mark.parametrize(("key", "kept"), [(0, "0"), (7, "7"), ("", ""), (None, ""), ("A-1", "A-1"), (UUID(int=3), str(UUID(int=3)))])
def test_a_key_is_kept_as_text_as_everywhere(body: Manner, key: Any, kept: str) -> None:
    def written(ctx: Context) -> Words:
        yield ctx.wait_for_event("approval", event="approved", key=key)

    passes = Passes(body(written))
    passes.run()
    assert [wait.key for wait in passes.outcome.waits] == [kept]


@pytest.mark.parametrize("key", [False, True, 0.0, b"", ()])
def test_a_key_that_is_none_is_refused_even_where_it_is_empty(body: Manner, key: Any) -> None:
    def written(ctx: Context) -> Words:
        yield ctx.wait_for_event("approval", event="approved", key=key)

    outcome = Passes(body(written)).run()
    assert (outcome.class_, "key" in str(outcome.message)) == ("error", True)


@pytest.mark.parametrize("word", ["wait_any", "wait_all"])
def test_a_name_and_a_branch_that_are_too_long_together_are_refused_where_they_are_asked_for(body: Manner, word: str) -> None:
    def written(ctx: Context, length: int) -> Words:
        branch = "b" * length
        yield getattr(ctx, word)("n" * 200, **{branch: Wait("paid")})

    fits = Passes(body(lambda ctx: written(ctx, 53)))
    fits.run()
    assert [len(wait) for wait in fits.waits] == [255]
    outcome = Passes(body(lambda ctx: written(ctx, 54))).run()
    assert outcome.class_ == "error"
    assert f"{word} `nnn" in str(outcome.message)
    assert "branch `bbb" in str(outcome.message)
    assert "255" in str(outcome.message)
