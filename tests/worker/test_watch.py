"""Timeouts, and leases that can't be this worker's any more. The clock is moved, the watch looks when it is told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from ezgh_workflows_django import clock
from ezgh_workflows_django.protocol.messages import Outcome
from ezgh_workflows_django.testing.scripted import ScriptedTransport, lease_of
from ezgh_workflows_django.worker.bodies import Bodies
from ezgh_workflows_django.worker.cancellation import Why
from ezgh_workflows_django.worker.hands import Hands, Held
from ezgh_workflows_django.worker.listener import Listener
from ezgh_workflows_django.worker.reporter import Reporter
from ezgh_workflows_django.worker.serving import Serving
from ezgh_workflows_django.worker.watch import Stuck, Watch

from .bench import one_step


class Post:
    """A worker's parts around a watch that has no thread of its own."""

    def __init__(self, size: int = 2) -> None:
        self.server = ScriptedTransport()
        self.hands = Hands(size)
        self.stuck: list[Stuck] = []
        self.crashes: list[BaseException] = []
        self.reporter = Reporter(self.server, self.hands, Listener(), on_landed=lambda ids: None, on_lost_session=lambda: None)
        self.bodies = Bodies(
            size,
            scope=lambda lease: nullcontext(),
            middleware=(),
            on_end=self.reporter.ended,
            on_crash=self.crashes.append,
            release=lambda: None,
        )
        self.watch = Watch(self.hands, self.bodies, self.reporter, Listener(), lease_life=lambda: 60.0, on_stuck=self.stuck.append)
        threading.Thread(target=self.reporter.run, daemon=True).start()

    def run(self, body: Callable[..., Any], **fields: Any) -> Held:
        """Begin a body, and wait until it runs."""
        begun = threading.Event()

        def wrapped(ctx: Any) -> Any:
            begun.set()
            return body(ctx)

        async def awrapped(ctx: Any) -> Any:
            begun.set()
            return await body(ctx)

        job = one_step(awrapped if fields.pop("is_async", False) else wrapped)
        lease = lease_of(job, "only", **fields)
        held = Held(lease, Serving([job]).find(lease), clock.monotonic())
        self.hands.take([held])
        self.hands.begin(held)
        self.bodies.run(held)
        assert begun.wait(5)
        return held

    def outcomes(self, held: Held, count: int) -> list[Outcome]:
        """The first `count` outcomes of a lease, once they are there."""
        self.server.wait_until(lambda: len(self.server.outcomes[held.lease.id]) >= count)
        return self.server.outcomes[held.lease.id]


@pytest.fixture
def post(now: list[float]) -> Iterator[Post]:
    """A post whose clock stands still."""
    post = Post()
    yield post
    post.reporter.close(give_up=True)
    assert post.crashes == []


def test_a_body_within_its_time_is_left_alone(post: Post, now: list[float]) -> None:
    held = post.run(lambda ctx: ctx.cancelled.wait(5), timeout_ms=30_000)
    due = post.watch.run_once(now[0] + 29)
    assert (due, held.cancelled.is_set()) == (now[0] + 30, False)
    held.fire(Why.SHUTDOWN)


def test_a_body_that_stops_at_its_timeout_fails_with_class_timeout(post: Post, now: list[float]) -> None:
    held = post.run(lambda ctx: ctx.cancelled.wait(5), timeout_ms=30_000)
    now[0] += 30
    post.watch.run_once(now[0])
    (outcome,) = post.outcomes(held, 1)
    assert (outcome.class_, outcome.message, outcome.body_ended) == ("timeout", "attempt 1 timed out after 30s", True)


def test_a_body_that_does_not_stop_is_left_behind_and_its_late_result_dropped(post: Post, now: list[float]) -> None:
    gate = threading.Event()
    held = post.run(lambda ctx: gate.wait(5) and "late", timeout_ms=30_000)
    now[0] += 30
    post.watch.run_once(now[0])
    now[0] += 1
    post.watch.run_once(now[0])
    (outcome,) = post.outcomes(held, 1)
    assert (outcome.class_, outcome.body_ended, post.hands.occupied) == ("timeout", False, 0)
    gate.set()
    assert post.outcomes(held, 2)[1].class_ == "returned"


def test_a_stuck_thread_is_replaced_and_counted_until_it_ends(post: Post, now: list[float]) -> None:
    gate = threading.Event()
    for _ in range(2):
        post.run(lambda ctx: gate.wait(5), timeout_ms=1_000)
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
        post.run(lambda ctx: gate.wait(5), timeout_ms=1_000)
        now[0] += 1
        post.watch.run_once(now[0])
        now[0] += 1
        post.watch.run_once(now[0])
    assert [stuck.is_exhausted for stuck in post.stuck] == [False, False, False, True]
    assert post.bodies.capacity == 0
    gate.set()


def test_an_async_body_is_cancelled_at_its_timeout(post: Post, now: list[float]) -> None:
    heard: list[str] = []

    async def body(ctx: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    held = post.run(body, is_async=True, timeout_ms=1_000)
    now[0] += 1
    post.watch.run_once(now[0])
    assert post.outcomes(held, 1)[0].class_ == "timeout"
    assert heard == ["cancelled"]


def test_an_async_body_that_blocks_the_loop_loses_the_loop_not_the_worker(post: Post, now: list[float]) -> None:
    gate = threading.Event()

    async def blocks(ctx: Any) -> None:
        gate.wait(5)

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


def test_a_worker_cut_off_tells_the_body_when_the_lease_can_no_longer_be_its_own(post: Post, now: list[float]) -> None:
    held = post.run(lambda ctx: ctx.cancelled.wait(5))
    now[0] += 59
    post.watch.run_once(now[0])
    now[0] += 1
    post.watch.run_once(now[0])
    assert not held.cancelled.is_set()
    now[0] += 1
    post.watch.run_once(now[0])
    assert held.cancelled.why is Why.CUT_OFF
    assert post.outcomes(held, 1)[0].class_ == "returned"


def test_news_of_a_heartbeat_between_two_looks_keeps_the_lease(post: Post, now: list[float]) -> None:
    held = post.run(lambda ctx: ctx.cancelled.wait(5))
    now[0] += 60
    post.watch.run_once(now[0])
    held.extend(now[0] - 5)
    now[0] += 1
    post.watch.run_once(now[0])
    assert not held.cancelled.is_set()
    held.fire(Why.SHUTDOWN)


def test_a_lost_body_that_ignores_it_is_left_behind_at_its_timeout_without_an_outcome(post: Post, now: list[float]) -> None:
    gate = threading.Event()
    held = post.run(lambda ctx: gate.wait(5), timeout_ms=10_000)
    held.fire(Why.FENCED)
    now[0] += 11
    post.watch.run_once(now[0])
    assert (post.hands.occupied, post.hands.is_empty) == (0, True)
    gate.set()
    assert [outcome.class_ for outcome in post.outcomes(held, 1)] == ["returned"]


def test_the_watch_looks_by_itself_in_time() -> None:
    post = Post()
    thread = threading.Thread(target=post.watch.run, daemon=True)
    thread.start()
    held = post.run(lambda ctx: ctx.cancelled.wait(5), timeout_ms=50)
    post.watch.began(held)
    assert post.outcomes(held, 1)[0].message == "attempt 1 timed out after 50ms"
    post.watch.close()
    thread.join(5)
    assert not thread.is_alive()
