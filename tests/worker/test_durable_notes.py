"""The words of a durable function, pass by pass, in sync and in async bodies: what comes with a step."""

from __future__ import annotations

import asyncio
from typing import Any

from ezgh_workflows_django.definitions.policies import Retry
from ezgh_workflows_django.worker.context import Context, step_info

from .passes import HOUR, Manner, Passes, Words


def test_each_step_has_an_idempotency_key_of_its_own_that_stays_across_its_retries(body: Manner) -> None:
    keys: list[str] = []
    errors = [ValueError("once")]

    def written(ctx: Context) -> Words:
        def charge(fails: bool) -> None:
            info = step_info()
            assert info is not None
            assert info.idempotency_key == ctx.idempotency_key
            keys.append(ctx.idempotency_key)
            if fails and errors:
                raise errors.pop()

        yield ctx.step("charge", charge, True, retry=Retry(max_attempts=2))
        yield ctx.map("fees", charge, [False])
        keys.append(ctx.idempotency_key)

    passes = Passes(body(written))
    passes.run()
    passes.run()
    assert keys == ["r1:only:charge", "r1:only:charge", "r1:only:fees[0]", "r1:only"]


def test_state_usage_and_spans_go_with_the_step_they_were_noted_in(body: Manner) -> None:
    shown: list[dict[str, Any]] = []

    def written(ctx: Context) -> Words:
        def work() -> None:
            ctx.patch_state(inner=1, both="inner")
            ctx.set_usage(tokens=5)
            with ctx.span("call"):
                pass

        ctx.patch_state(outer=1, both="outer")
        ctx.set_usage(seconds=2)
        yield ctx.step("work", work)
        shown.append(dict(ctx.state))
        yield ctx.sleep("rest", HOUR)
        ctx.set_usage(seconds=3)

    passes = Passes(body(written))
    passes.run()
    [[record]] = passes.server.named("checkpoint")
    assert (record.state, record.usage[0].amount, [span["name"] for span in record.spans]) == ({"inner": 1, "both": "inner"}, "5", ["call"])
    assert (passes.outcome.state, passes.outcome.usage[0].amount) == ({"outer": 1}, "2")
    assert shown == [{"inner": 1, "both": "inner", "outer": 1}]
    # The parked pass has sent what came before; the next one sends what comes after.
    assert (passes.again().state, [usage.amount for usage in passes.outcome.usage]) == (None, ["3"])


def test_a_step_within_a_step_is_refused_by_name(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        def outer() -> None:
            word = ctx.sleep("inner", HOUR)
            if asyncio.iscoroutine(word):
                asyncio.run(word)

        yield ctx.step("outer", outer)

    outcome = Passes(body(written)).run()
    assert (outcome.class_, "the function of step `outer` asks for `inner`" in str(outcome.message)) == ("permanent", True)


def test_now_random_and_uuid_are_the_same_in_every_pass_and_cost_no_write(body: Manner) -> None:
    seen: list[list[Any]] = []

    def written(ctx: Context) -> Words:
        values: list[Any] = [ctx.now(), ctx.random(), ctx.uuid()]
        values.append((yield ctx.map("dice", lambda _: ctx.random(), range(3))))
        values += [ctx.now(), ctx.random()]
        seen.append(values)
        yield ctx.sleep("rest", HOUR)
        seen[-1].append(ctx.now())

    passes = Passes(body(written))
    passes.run()
    passes.again()
    assert seen[0] == seen[1][:6]
    assert seen[1][0] < seen[1][4] < seen[1][6]
    assert len({seen[0][1], seen[0][5], *seen[0][3]}) == 5
    assert sum(len(records) for records in passes.server.named("checkpoint")) == 3
