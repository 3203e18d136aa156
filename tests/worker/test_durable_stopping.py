"""The words of a durable function, pass by pass, in sync and in async bodies: the lease is lost, the server can't be reached, the body is told to stop."""

from __future__ import annotations

from typing import Any

import pytest

from ezgh_workflows_django.errors import Unavailable
from ezgh_workflows_django.worker.cancellation import Why
from ezgh_workflows_django.worker.context import Context

from .passes import Calls, Manner, Passes, Words


@pytest.mark.parametrize(("reason", "why"), [("fenced", Why.FENCED), ("run_terminal", Why.RUN_TERMINAL), ("unknown_lease", Why.FENCED)])
def test_a_refused_checkpoint_unwinds_the_body_and_nothing_more_is_run(body: Manner, calls: Calls, reason: str, why: Why) -> None:
    """Cases B02, B46: neither `except Exception` nor a `finally` that asks for more goes on under a lost lease."""

    def written(ctx: Context) -> Words:
        try:
            yield ctx.step("first", calls.named("first"))
        except Exception:  # noqa: BLE001 - what the test is about
            calls.made.append("held up")
        finally:
            yield ctx.step("second", calls.named("second"))

    passes = Passes(body(written))
    passes.server.refuse("checkpoint", "lease", reason)
    assert (passes.run().class_, passes.context.cancelled.why, calls.made) == ("returned", why, ["first"])


def test_a_refused_start_of_children_unwinds_the_body(body: Manner) -> None:
    """Case B02."""

    def written(ctx: Context) -> Words:
        yield ctx.run_workflow("bill", "billing")

    passes = Passes(body(written))
    passes.server.refuse("children", "lease", "fenced")
    assert (passes.run().class_, passes.context.cancelled.why) == ("returned", Why.FENCED)


def test_a_call_that_gets_no_answer_is_made_again_and_the_step_is_not(body: Manner, calls: Calls) -> None:
    def written(ctx: Context) -> Words:
        return (yield ctx.step("first", calls.named("first", 1)))

    passes = Passes(body(written))
    passes.server.fail("checkpoint", Unavailable("lost on the way there"))
    passes.server.fail("checkpoint", Unavailable("lost on the way back"), lands=True)
    assert (passes.run().output, calls.made, len(passes.server.named("checkpoint"))) == (1, ["first"], 3)


def test_a_body_that_is_told_to_stop_gets_out_of_a_call_that_gets_no_answer(calls: Calls) -> None:
    passes = Passes(lambda ctx: ctx.step("first", calls.named("first")))

    def never(records: Any) -> Any:
        passes.context.cancelled.fire(Why.SHUTDOWN)
        raise Unavailable("the database is down")

    passes.server.checkpoint = never  # type: ignore[method-assign]  # a server that is down
    assert passes.run().class_ == "returned"


def test_a_body_that_was_told_to_stop_gets_no_further_word(body: Manner, calls: Calls) -> None:
    def written(ctx: Context) -> Words:
        yield ctx.step("first", lambda: ctx.cancelled.fire(Why.SHUTDOWN))
        yield ctx.step("second", calls.named("second"))

    assert (Passes(body(written)).run().class_, calls.made) == ("returned", [])
