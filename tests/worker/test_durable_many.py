"""More to wait for than one suspend may have."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from ezgh_workflows_django import Context as PublicContext
from ezgh_workflows_django import workflow
from ezgh_workflows_django.definitions.policies import Retry, Wait
from ezgh_workflows_django.engine import suspensions
from ezgh_workflows_django.protocol.durable import MAX_WAITS, WaitFor
from ezgh_workflows_django.protocol.states import LeaseStatus, Mode, WaitKind
from ezgh_workflows_django.testing import Lab
from ezgh_workflows_django.testing.scripted_checkpoints import BEGIN
from ezgh_workflows_django.worker import suspension
from ezgh_workflows_django.worker.context import Context
from ezgh_workflows_django.worker.suspension import Suspended

from .passes import HOUR, Manner, Passes, Words


def once(tried: dict[int, int]) -> Callable[[int], int]:
    """Work that fails for each item the first time, the later items being tried again earlier."""

    def work(item: int) -> int:
        tried[item] = tried.get(item, 0) + 1
        if tried[item] == 1:
            raise ValueError(f"item {item}")
        return item

    return work


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """One suspend may have three waits."""
    for module in (suspension, suspensions):
        monkeypatch.setattr(module, "MAX_WAITS", 3)


def test_retries_beyond_the_bound_leave_out_those_that_are_due_last(body: Manner, three: None) -> None:
    tried: dict[int, int] = {}

    def written(ctx: Context) -> Words:
        return (yield ctx.map("all", once(tried), range(7), concurrency=1, retry=Retry(max_attempts=2, initial=1, jitter=0)))

    passes = Passes(body(written))
    passes.run()
    due = sorted(passes.stored.rows.values(), key=lambda row: str(row.retry_at))
    assert passes.outcome.mode is Mode.ANY
    assert passes.waits == [row.name for row in due[:3]]
    assert (passes.run().status, passes.outcome.output) == (LeaseStatus.COMPLETED, list(range(7)))


def test_retries_give_way_to_other_waits_but_for_the_first(body: Manner, three: None) -> None:
    def written(ctx: Context) -> Words:
        def fail() -> None:
            raise ValueError("no")

        retry = Retry(max_attempts=2, initial=1, jitter=0)
        words = [partial(ctx.step, name, fail, retry=retry) for name in ("r1", "r2", "r3")]
        waits = [partial(ctx.sleep, name, HOUR) for name in ("s1", "s2")]
        yield ctx.gather(*(call() if ctx._is_async else call for call in [*words, *waits]))

    passes = Passes(body(written))
    passes.run()
    assert (sorted(passes.waits)[1:], len(passes.waits), passes.outcome.mode) == (["s1", "s2"], 3, Mode.ANY)
    assert sorted(passes.waits)[0] in {"r1", "r2", "r3"}


def test_waits_that_all_have_to_come_are_waited_for_in_turns(three: None) -> None:
    async def written(ctx: Context) -> Any:
        return await ctx.gather(*(ctx.wait_for_event(f"e{number}", event="e", key=number) for number in range(5)))

    passes = Passes(written)
    passes.run()
    assert (passes.waits, passes.outcome.mode) == (["e0", "e1", "e2"], Mode.ALL)
    passes.again(e0="zero")
    assert (passes.waits, passes.outcome.mode) == (["e3", "e4"], Mode.ALL)
    assert passes.again(e4="four").output == ["zero", None, None, None, "four"]


def test_too_many_waits_of_which_any_may_come_first_are_refused_by_the_body_itself(body: Manner, three: None) -> None:
    def written(ctx: Context) -> Words:
        yield ctx.wait_any("first", **{f"b{number}": Wait("e", key=number) for number in range(4)})

    outcome = Passes(body(written)).run()
    assert (outcome.class_, outcome.message) == (
        "permanent",
        "the body parks on wait `first`, 4 waits of which any may come first: one suspend has at most 3. Ask for fewer at once",
    )


def test_as_many_waits_as_one_suspend_may_have_stay_as_they_are() -> None:
    waits = [WaitFor(name=f"all[{number}]", kind=WaitKind.RETRY, until=BEGIN - timedelta(seconds=number)) for number in range(MAX_WAITS + 5)]
    assert suspension.bounded(fits := Suspended("all", waits[:MAX_WAITS], Mode.ANY)) is fits
    assert suspension.bounded(Suspended("all", waits, Mode.ANY)).waits == tuple(waits[:4:-1])


@pytest.mark.django_db
def test_a_map_in_a_short_outage_gets_through_whatever_one_suspend_may_have(three: None) -> None:
    tried: dict[int, int] = {}

    @workflow("wide")
    def wide(ctx: PublicContext) -> list[int]:
        made: list[int] = ctx.map("all", once(tried), range(8), retry=Retry(max_attempts=5, initial=1))
        return made

    with Lab(workflows=[wide]) as lab:
        run = wide.start()
        lab.advance(timedelta(minutes=10))
        assert run.result() == list(range(8))
        assert set(tried.values()) == {2}
        assert lab.invariants() == []
