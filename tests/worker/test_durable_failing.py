"""The words of a durable function, pass by pass, in sync and in async bodies: failing."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from ezgh_workflows_django.definitions.policies import Retry
from ezgh_workflows_django.errors import Permanent, StepFailed, StepFailure
from ezgh_workflows_django.protocol.states import LeaseStatus
from ezgh_workflows_django.worker.context import Context

from .passes import HOUR, Calls, Manner, Passes, Words


def test_a_failing_step_is_tried_again_in_later_passes_without_holding_a_worker(body: Manner, calls: Calls) -> None:
    work = calls.failing(ValueError("one"), ValueError("two"))

    def written(ctx: Context) -> Words:
        return (yield ctx.step("pay", work, retry=Retry(max_attempts=3)))

    passes = Passes(body(written))
    assert [passes.run().status for _ in range(3)] == [LeaseStatus.SUSPENDED, LeaseStatus.SUSPENDED, LeaseStatus.COMPLETED]
    assert ([wait.kind for wait in passes.outcomes[0].waits], len(calls.made), passes.outcome.output) == (["retry"], 3, "done")


def test_a_retry_that_is_not_due_is_not_run_early(body: Manner, calls: Calls) -> None:
    def written(ctx: Context) -> Words:
        yield ctx.step("pay", calls.failing(ValueError("one")), retry=Retry(max_attempts=3, initial=timedelta(days=300), maximum=timedelta(days=300)))

    passes = Passes(body(written))
    passes.run()
    assert (passes.run().status, passes.waits, len(calls.made)) == (LeaseStatus.SUSPENDED, ["pay"], 1)


def test_a_failure_is_the_same_exception_on_the_first_pass_and_on_replay(body: Manner) -> None:
    seen: list[tuple[Any, ...]] = []

    def declined() -> None:
        raise StepFailure("no money", kind="card_declined")

    def written(ctx: Context) -> Words:
        try:
            yield ctx.step("pay", declined)
        except StepFailed as failed:
            seen.append((type(failed), str(failed), failed.failure_class, failed.type, failed.step))
        yield ctx.sleep("rest", HOUR)

    passes = Passes(body(written))
    passes.run()
    passes.again()
    assert seen[0] == seen[1] == (StepFailed, "step pay: no money", "card_declined", "ezgh_workflows_django.errors.StepFailure", "pay")


@pytest.mark.parametrize(
    ("error", "class_"), [(Permanent("no"), "permanent"), (StepFailure("no", kind="declined"), "declined"), (KeyError("k"), "error"), (SystemExit(2), "error")]
)
def test_a_failure_that_nobody_catches_fails_the_step_with_its_own_class(body: Manner, error: BaseException, class_: str) -> None:
    def fails() -> None:
        raise error

    def written(ctx: Context) -> Words:
        yield ctx.step("pay", fails)

    outcome = Passes(body(written)).run()
    assert outcome.class_ == class_
    assert str(outcome.type).endswith(type(error).__name__)


def test_a_step_that_overruns_its_time_fails_with_class_timeout(body: Manner) -> None:
    release = threading.Event()

    def written(ctx: Context) -> Words:
        try:
            yield ctx.step("slow", release.wait, timeout=0.05)
        except StepFailed as failed:
            return [failed.failure_class, failed.message]

    outcome = Passes(body(written)).run()
    release.set()
    assert outcome.output == ["timeout", "it timed out after 50ms"]


def test_an_async_step_that_overruns_its_time_is_cancelled() -> None:
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def written(ctx: Context) -> None:
        await ctx.step("slow", slow, timeout=0.02)

    assert (Passes(written).run().class_, ended) == ("timeout", ["cancelled"])


def test_a_timeout_error_of_the_functions_own_is_no_timeout_of_the_step() -> None:
    async def fails() -> None:
        raise TimeoutError("the socket's")

    async def written(ctx: Context) -> None:
        await ctx.step("slow", fails, timeout=5)

    assert Passes(written).run().class_ == "error"
