"""The words of a durable function, pass by pass, in sync and in async bodies: order: other code under a run in flight."""

from __future__ import annotations

from contextlib import suppress

import pytest

from ezgh_workflows_django.protocol.states import LeaseStatus
from ezgh_workflows_django.worker.context import Context

from .passes import Calls, Manner, Passes, Words, order


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        (["a2", "b", "sleep"], "expected step `a` at 1, the code asks for `a2`"),
        (["b", "a", "sleep"], "expected step `a` at 1, the code asks for `b`"),
        (["a", "sleep"], "expected step `b` at 2, the code asks for sleep `sleep`"),
        (["new", "a", "b", "sleep"], "expected step `a` at 1, the code asks for `new`"),
        (["a", "b", "new", "sleep"], "expected sleep `sleep` at 3, the code asks for step `new`"),
        (["a", "b"], "expected sleep `sleep` at 3, the code returned without asking for it"),
        (["a", "b", "sleep2"], "expected sleep `sleep` at 3, the code asks for `sleep2`"),
    ],
    ids=["renamed", "swapped", "removed", "inserted first", "inserted last", "wait removed", "wait renamed"],
)
def test_other_code_under_a_run_in_flight_is_refused_before_anything_new_runs(body: Manner, asks: list[str], said: str) -> None:
    """Case B24."""
    before, after = Calls(), Calls()
    passes = Passes(body(lambda ctx: order(ctx, before, "a", "b", "sleep")))
    passes.run()
    passes.stored.meet("sleep")
    rows = dict(passes.stored.rows)
    outcome = passes.swap(body(lambda ctx: order(ctx, after, *asks))).run()
    assert (outcome.class_, outcome.message) == ("nondeterminism", said)
    assert (after.made, passes.stored.rows) == ([], rows)


def test_a_difference_stays_one_whatever_the_body_catches(body: Manner, calls: Calls) -> None:
    """Cases B24, B46."""

    def stubborn(ctx: Context) -> Words:
        for name in ("x", "y"):
            with suppress(BaseException):  # what the test is about
                yield ctx.step(name, calls.named(name))
        return "fine"

    passes = Passes(body(lambda ctx: order(ctx, Calls(), "a", "sleep")))
    passes.run()
    outcome = passes.swap(body(stubborn)).run()
    assert (outcome.class_, outcome.message, calls.made) == ("nondeterminism", "expected step `a` at 1, the code asks for `x`", [])


def test_more_may_follow_at_the_end(body: Manner, calls: Calls) -> None:
    passes = Passes(body(lambda ctx: order(ctx, calls, "a", "sleep")))
    passes.run()
    passes.swap(body(lambda ctx: order(ctx, calls, "a", "sleep", "b")))
    assert (passes.again().status, calls.made) == (LeaseStatus.COMPLETED, ["a", "b"])
