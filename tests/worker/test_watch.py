"""Timeouts, and leases that can't be this worker's any more. The clock is moved, the watch looks when it is told to."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from ezgh_workflows_django.worker.cancellation import Why

from .post import Post


def test_a_body_within_its_time_is_left_alone(post: Post, now: list[float]) -> None:
    held = post.run(lambda ctx: ctx.cancelled.wait(60), timeout_ms=30_000)
    due = post.watch.run_once(now[0] + 29)
    assert (due, held.cancelled.is_set()) == (now[0] + 30, False)
    held.fire(Why.SHUTDOWN)


def test_a_body_that_stops_at_its_timeout_fails_with_class_timeout(post: Post, now: list[float]) -> None:
    held = post.run(lambda ctx: ctx.cancelled.wait(60), timeout_ms=30_000)
    now[0] += 30
    post.watch.run_once(now[0])
    (outcome,) = post.outcomes(held, 1)
    assert (outcome.class_, outcome.message, outcome.body_ended) == ("timeout", "attempt 1 timed out after 30s", True)


def test_a_body_that_does_not_stop_is_left_behind_and_its_late_result_dropped(post: Post, now: list[float]) -> None:
    gate = threading.Event()
    held = post.run(lambda ctx: gate.wait(60) and "late", timeout_ms=30_000)
    now[0] += 30
    post.watch.run_once(now[0])
    now[0] += 1
    post.watch.run_once(now[0])
    (outcome,) = post.outcomes(held, 1)
    assert (outcome.class_, outcome.body_ended, post.hands.occupied) == ("timeout", False, 0)
    gate.set()
    assert post.outcomes(held, 2)[1].class_ == "returned"


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


def test_a_worker_cut_off_tells_the_body_when_the_lease_can_no_longer_be_its_own(post: Post, now: list[float]) -> None:
    held = post.run(lambda ctx: ctx.cancelled.wait(60))
    now[0] += 59
    post.watch.run_once(now[0])
    now[0] += 1
    post.watch.run_once(now[0])
    assert not held.cancelled.is_set()
    now[0] += 1
    post.watch.run_once(now[0])
    assert held.cancelled.why is Why.CUT_OFF
    post.outcomes(held, 1)


def cut_off(post: Post, now: list[float]) -> None:
    """Let an outage last until the worker takes its leases for lost."""
    now[0] += 60
    post.watch.run_once(now[0])
    now[0] += 1
    post.watch.run_once(now[0])


def test_what_a_body_brings_after_an_outage_is_sent_as_it_is_for_the_server_to_decide(post: Post, now: list[float]) -> None:
    gate = threading.Event()

    def brings(ctx: Any) -> str:
        gate.wait(60)
        return "an hour's work"

    def raises(ctx: Any) -> None:
        gate.wait(60)
        raise ValueError("its own")

    brought, raised = post.run(brings), post.run(raises)
    cut_off(post, now)
    gate.set()
    assert (post.outcomes(brought, 1)[0].output, brought.cancelled.why) == ("an hour's work", Why.CUT_OFF)
    assert (post.outcomes(raised, 1)[0].class_, post.outcomes(raised, 1)[0].message) == ("error", "its own")


def test_a_body_that_an_outage_made_unwind_is_handed_back(post: Post, now: list[float]) -> None:
    async def waits(ctx: Any) -> None:
        await asyncio.Event().wait()

    held = post.run(waits, is_async=True)
    cut_off(post, now)
    assert post.outcomes(held, 1)[0].class_ == "returned"


def test_news_of_a_heartbeat_between_two_looks_keeps_the_lease(post: Post, now: list[float]) -> None:
    held = post.run(lambda ctx: ctx.cancelled.wait(60))
    now[0] += 60
    post.watch.run_once(now[0])
    held.extend(now[0] - 5)
    now[0] += 1
    post.watch.run_once(now[0])
    assert not held.cancelled.is_set()
    held.fire(Why.SHUTDOWN)


def test_a_lost_body_that_ignores_it_is_left_behind_at_its_timeout_without_an_outcome(post: Post, now: list[float]) -> None:
    gate = threading.Event()
    held = post.run(lambda ctx: gate.wait(60), timeout_ms=10_000)
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
    held = post.run(lambda ctx: ctx.cancelled.wait(60), timeout_ms=50)
    post.watch.began(held)
    assert post.outcomes(held, 1)[0].message == "attempt 1 timed out after 50ms"
    post.watch.close()
    thread.join(5)
    assert not thread.is_alive()
