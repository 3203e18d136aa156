"""Bodies that do not stop: what they block is replaced, counted while they are at it, and bounded. The clock is moved."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from ezgh_workflows_django.worker import bodies
from ezgh_workflows_django.worker.cancellation import Why
from ezgh_workflows_django.worker.hands import Held
from ezgh_workflows_django.worker.watch import Stuck

from .post import Post


def test_a_stuck_thread_is_replaced_and_counted_until_it_ends(post: Post, now: list[float]) -> None:
    gate = threading.Event()
    for _ in range(2):
        post.run(lambda ctx: gate.wait(60), timeout_ms=1_000)
    now[0] += 1
    post.watch.run_once(now[0])
    now[0] += 1
    post.watch.run_once(now[0])
    assert (post.bodies.stuck, post.bodies.capacity) == (2, 2)
    short = post.run(lambda ctx: "short")
    assert post.outcomes(short, 1)[0].output == "short"
    gate.set()


def test_past_the_bound_of_stuck_threads_there_is_less_room_and_at_last_none(post: Post, now: list[float]) -> None:
    gate = threading.Event()
    for _ in range(4):
        post.run(lambda ctx: gate.wait(60), timeout_ms=1_000)
        now[0] += 1
        post.watch.run_once(now[0])
        now[0] += 1
        post.watch.run_once(now[0])
    assert [stuck.is_exhausted for stuck in post.stuck] == [False, False, False, True]
    assert post.bodies.capacity == 0
    gate.set()


def test_a_body_that_no_thread_came_free_for_is_handed_back_and_never_runs(now: list[float]) -> None:
    post = Post(size=1)
    gate, ran = threading.Event(), []

    def runs(ctx: Any) -> None:
        ran.append("ran")

    post.run(lambda ctx: gate.wait(60))
    waiting = post.held(runs, timeout_ms=1_000)
    post.bodies.run(waiting)
    now[0] += 1
    post.watch.run_once(now[0])
    now[0] += 1
    post.watch.run_once(now[0])
    [outcome] = post.outcomes(waiting, 1)
    assert (outcome.class_, outcome.message, outcome.body_ended) == ("returned", "no thread came free for the body; it did not run", True)
    gate.set()
    short = post.run(lambda ctx: "short")
    assert (post.outcomes(short, 1)[0].output, ran, post.bodies.stuck) == ("short", [], 0)
    post.reporter.close(give_up=True)


def test_an_async_body_that_blocks_the_loop_loses_the_loop_not_the_worker(post: Post, now: list[float]) -> None:
    gate = threading.Event()

    async def blocks(ctx: Any) -> None:
        gate.wait(60)

    async def short(ctx: Any) -> str:
        return "short"

    post.run(blocks, is_async=True, timeout_ms=1_000)
    now[0] += 1
    post.watch.run_once(now[0])
    now[0] += 1
    post.watch.run_once(now[0])
    assert post.outcomes(post.run(short, is_async=True), 1)[0].output == "short"
    assert post.bodies.stuck == 1
    gate.set()


def block_the_loop(post: Post, now: list[float]) -> tuple[Held, threading.Event]:
    """An async body that blocks its loop, and is left behind for that; it ends when the event is set."""
    gate = threading.Event()

    async def blocks(ctx: Any) -> None:
        gate.wait(60)

    held = post.run(blocks, is_async=True, timeout_ms=1_000)
    now[0] += 1
    post.watch.run_once(now[0])
    now[0] += 1
    post.watch.run_once(now[0])
    return held, gate


def test_a_blocked_loop_counts_until_it_is_free_and_then_ends_with_what_ran_beside(post: Post, now: list[float]) -> None:
    beside_may_end = threading.Event()

    async def goes_on_beside(ctx: Any) -> str:
        await asyncio.to_thread(beside_may_end.wait, 10)
        return threading.current_thread().name

    beside = post.run(goes_on_beside, is_async=True)
    held, gate = block_the_loop(post, now)
    [blocked] = post.bodies._lost_loops
    assert post.bodies.stuck == 1
    gate.set()
    assert len(post.outcomes(held, 2)) == 2
    beside_may_end.set()
    assert post.outcomes(beside, 1)[0].output == "workflows-loop"
    blocked._thread.join(5)
    assert (post.bodies.stuck, blocked._loop.is_closed()) == (0, True)


def test_loops_that_are_blocked_at_once_are_replaced_up_to_a_bound(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    monkeypatch.setattr(bodies, "LOOP_PATIENCE", 0.05)
    post = Post(size=20)
    gates = []
    for _ in range(bodies.MAX_LOST_LOOPS + 1):
        _, gate = block_the_loop(post, now)
        gates.append(gate)
    assert [stuck.is_exhausted for stuck in post.stuck] == [False] * bodies.MAX_LOST_LOOPS + [True]
    for gate in gates:
        gate.set()
    post.reporter.close(give_up=True)


def test_an_async_body_that_does_not_stop_counts_until_it_ends(post: Post, now: list[float]) -> None:
    may_end = threading.Event()

    async def swallows(ctx: Any) -> None:
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    held = post.run(swallows, is_async=True, timeout_ms=1_000)
    now[0] += 1
    post.watch.run_once(now[0])
    now[0] += 1
    post.watch.run_once(now[0])
    assert post.stuck == [Stuck(1, is_exhausted=False)]
    may_end.set()
    post.outcomes(held, 2)
    assert post.bodies.stuck == 0


def test_an_async_body_whose_time_was_up_before_it_could_begin_never_begins(post: Post, now: list[float]) -> None:
    ran: list[str] = []

    async def begins(ctx: Any) -> None:
        ran.append("began")

    gate = threading.Event()

    async def blocks(ctx: Any) -> None:
        gate.wait(60)

    post.run(blocks, is_async=True)
    late = post.held(begins)
    post.bodies.run(late)
    late.fire(Why.TIMEOUT)
    gate.set()
    post.outcomes(late, 1)
    assert ran == []
