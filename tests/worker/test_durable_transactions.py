"""The words of a durable function, pass by pass, in sync and in async bodies: transactions."""

from __future__ import annotations

from typing import Any

from ezgh_workflows_django.definitions.policies import Retry
from ezgh_workflows_django.errors import NotAvailable
from ezgh_workflows_django.worker.context import Context

from .passes import HOUR, Calls, Manner, Passes, Words


def test_a_transactional_step_is_stored_in_one_call_and_its_failure_is_rolled_back(body: Manner, calls: Calls) -> None:
    work = calls.failing(ValueError("one"))

    def written(ctx: Context) -> Words:
        return (yield ctx.step("write", work, transactional=True, retry=Retry(max_attempts=2)))

    passes = Passes(body(written))
    passes.run()
    assert (passes.waits, passes.server.rolled_back) == (["write"], 1)
    assert (passes.run().output, passes.server.rolled_back) == ("done", 1)


def test_a_transactional_step_is_refused_by_name_where_the_way_to_the_server_has_no_transactions(body: Manner, calls: Calls) -> None:
    def written(ctx: Context) -> Words:
        yield ctx.step("write", calls.named("write"), transactional=True)

    passes = Passes(body(written))

    def refused(work: Any) -> Any:
        raise NotAvailable("over HTTP there is no transaction")

    passes.server.atomically = refused  # type: ignore[method-assign]  # a way to the server without transactions
    outcome = passes.run()
    assert (outcome.class_, calls.made) == ("permanent", [])
    assert str(outcome.message).startswith("step `write` is transactional, and this worker can't do that")


def test_a_transactional_body_and_its_outcome_are_one_call() -> None:
    passes = Passes(lambda: 5, transactional=True)
    assert (passes.run().output, passes.server.outcomes["lease"]) == (5, passes.outcomes)


def test_what_a_transactional_body_raises_rolls_back_and_is_reported_as_ever() -> None:
    passes = Passes(lambda: 1 / 0, transactional=True)
    assert (passes.run().class_, passes.server.rolled_back, passes.server.outcomes) == ("error", 1, {})


def test_a_transactional_body_can_not_park() -> None:
    passes = Passes(lambda ctx: ctx.sleep("rest", HOUR), transactional=True)
    assert (passes.run().class_, "can't ask for `rest`" in str(passes.outcome.message)) == ("permanent", True)
