"""The words of a durable function, pass by pass, in sync and in async bodies: rehearsal."""

from __future__ import annotations

import pytest

from ezgh_workflows_django.errors import NotAvailable, WaitTimeout
from ezgh_workflows_django.worker.context import Context
from ezgh_workflows_django.worker.rehearsal import replay

from .passes import HOUR, Calls, Manner, Passes, Words, order


def test_a_rehearsal_says_what_the_code_would_do_and_does_nothing(body: Manner, calls: Calls) -> None:
    passes = Passes(body(lambda ctx: order(ctx, calls, "a", "sleep")))
    passes.run()
    lease = passes.stored.next_pass(passes.lease)

    def rehearsed(*asks: str) -> str:
        passes.swap(body(lambda ctx: order(ctx, calls, *asks)))
        return str(replay(passes.workflow.body("only"), lease))

    assert rehearsed("a", "sleep") == "parks on sleep `sleep`"
    assert rehearsed("b", "sleep") == "expected step `a` at 1, the code asks for `b`"
    passes.stored.meet("sleep")
    lease = passes.stored.next_pass(passes.lease)
    assert rehearsed("a", "sleep", "new") == "goes on with step `new` at 3"
    assert rehearsed("a", "sleep") == "returned None"
    assert calls.made == ["a"]


def test_a_word_of_a_context_without_a_keeper_is_refused_by_name() -> None:
    passes = Passes(lambda: None)
    with pytest.raises(NotAvailable, match="there is nowhere to keep `rest`"):
        Context(passes.lease).sleep("rest", HOUR)


def test_wait_timeout_is_an_exception_that_a_body_may_catch(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        try:
            yield ctx.wait_for_event("approval", event="approved", timeout=1)
        except WaitTimeout:
            return "too late"

    passes = Passes(body(written))
    passes.run()
    passes.stored.meet("approval", timed_out=True)
    assert passes.run().output == "too late"
