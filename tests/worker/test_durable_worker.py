"""Durable functions in a real worker: parked, given again, told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ezgh_workflows_django.definitions.function import workflow
from ezgh_workflows_django.errors import StepFailed
from ezgh_workflows_django.protocol.messages import Lease
from ezgh_workflows_django.protocol.states import LeaseStatus
from ezgh_workflows_django.testing.scripted import ScriptedTransport, lease_of
from ezgh_workflows_django.worker import shift
from ezgh_workflows_django.worker.context import Context

from .bench import Ear, Running, one_step

Work = Callable[..., Running]


def sync_resize(ctx: Context) -> Any:
    """Two steps with a rest in between."""
    sizes = ctx.map("sizes", lambda size: size * 2, [1, 2, 3])
    ctx.sleep("rest", 5)
    return ctx.step("sum", lambda: sum(sizes))


async def async_resize(ctx: Context) -> Any:
    """The same, async."""
    sizes = await ctx.map("sizes", lambda size: size * 2, [1, 2, 3])
    await ctx.sleep("rest", 5)
    return await ctx.step("sum", lambda: sum(sizes))


stuck = threading.Event()
"""Ends the functions that overrun."""


def overrunning(ctx: Context) -> str:
    """One step whose function does not stop at its timeout."""
    with suppress(StepFailed):
        ctx.step("slow", lambda: stuck.wait(60), timeout=0.01)
    return "went on"


async def aoverrunning(ctx: Context) -> str:
    """The same, async."""
    with suppress(StepFailed):
        await ctx.step("slow", lambda: stuck.wait(60), timeout=0.01)
    return "went on"


def next_lease(server: ScriptedTransport, lease: Lease) -> Lease:
    """What a server gives once the wait is over: another lease of the same attempt."""
    server.stored["next"] = server.stored[lease.id]
    server.stored["next"].meet("rest")
    return server.stored["next"].next_pass(lease_of(resizing(sync_resize), "resize", id="next", run_id=lease.run_id))


def resizing(body: Callable[..., Any]) -> Any:
    return workflow("resize")(body)


@pytest.mark.parametrize("body", [sync_resize, async_resize], ids=["sync", "async"])
def test_a_parked_function_holds_no_place_and_ends_in_its_next_lease(work: Work, ear: Ear, body: Callable[..., Any]) -> None:
    resize = resizing(body)
    first = lease_of(resize, "resize", id="first")
    server = ScriptedTransport(first)
    running = work(server, resize, concurrency=1)
    server.wait_until(lambda: "first" in server.outcomes)
    assert running.wait_until_free()
    server.offer(next_lease(server, first))
    server.wait_until(lambda: "next" in server.outcomes)
    assert running.stop() == 0
    assert [outcome.status for _, outcome in ear.done] == [LeaseStatus.SUSPENDED, LeaseStatus.COMPLETED]
    assert (server.outcomes["next"][0].output, len(server.named("checkpoint"))) == (12, 4)


def test_a_lease_that_is_lost_within_a_word_is_acknowledged(work: Work) -> None:
    """Case B02."""
    resize = resizing(sync_resize)
    server = ScriptedTransport(lease_of(resize, "resize", id="lost"))
    server.refuse("checkpoint", "lost", "fenced")
    work(server, resize)
    server.wait_until(lambda: "lost" in server.outcomes)
    assert [outcome.class_ for outcome in server.outcomes["lost"]] == ["returned"]


@pytest.mark.parametrize("body", [overrunning, aoverrunning], ids=["sync", "async"])
def test_a_thread_that_an_inner_step_left_behind_counts_until_it_ends(work: Work, body: Callable[..., Any]) -> None:
    stuck.clear()
    resize = resizing(body)
    server = ScriptedTransport(lease_of(resize, "resize", id="l"))
    running = work(server, resize)
    server.wait_until(lambda: "l" in server.outcomes)
    assert (server.outcomes["l"][0].output, running.worker.stuck) == ("went on", 1)
    stuck.set()
    assert running.stop() == 0
    assert running.worker.stuck == 0


def test_too_many_threads_left_behind_by_inner_steps_end_the_worker(work: Work, ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shift, "MAX_LEFT", 2)
    stuck.clear()
    resize = resizing(overrunning)
    server = ScriptedTransport(*(lease_of(resize, "resize") for _ in range(10)))
    running = work(server, resize, concurrency=1)
    assert running.join(20) == 1
    assert [said for said in ear.errors if "10 threads are stuck in functions of inner steps" in said]
    stuck.set()


def test_the_outcome_of_a_transactional_body_is_not_told_again(work: Work, ear: Ear) -> None:
    job = one_step(lambda: 5, transactional=True)
    server = ScriptedTransport(lease_of(job, "only", id="l"))
    running = work(server, job, until_idle=True)
    assert running.join() == 0
    assert (len(server.outcomes["l"]), [outcome.output for _, outcome in ear.done]) == (1, [5])


def test_the_functions_of_a_map_run_inside_the_bodys_scope_and_their_threads_let_go(work: Work) -> None:
    inside = threading.local()

    class Scope:
        def __enter__(self) -> None:
            inside.is_set = True

        def __exit__(self, *error: object) -> None:
            inside.is_set = False

    resize = one_step(lambda ctx: ctx.map("all", lambda _: inside.is_set, range(3), concurrency=3))
    server = ScriptedTransport(lease_of(resize, "only", id="l"), scope=lambda lease: Scope())
    running = work(server, resize, until_idle=True)
    running.join()
    assert server.outcomes["l"][0].output == [True, True, True]
    assert any("inner" in name for name in server.released)


def test_a_body_whose_time_is_up_is_told_by_its_next_word(work: Work) -> None:
    begun, made = threading.Event(), []

    def body(ctx: Context) -> None:
        begun.set()
        ctx.cancelled.wait()
        ctx.step("late", lambda: made.append("late"))

    job = one_step(body)
    server = ScriptedTransport(lease_of(job, "only", id="l", timeout_ms=50))
    work(server, job)
    server.wait_until(lambda: "l" in server.outcomes)
    assert begun.is_set()
    assert ([outcome.class_ for outcome in server.outcomes["l"]], made) == (["timeout"], [])
