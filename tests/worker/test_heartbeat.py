"""Heartbeats: what they carry, what their answers do, when they stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from ezgh_workflows_django.errors import Unavailable
from ezgh_workflows_django.protocol.messages import Beat
from ezgh_workflows_django.testing.scripted import SESSION, ScriptedTransport, lease_of
from ezgh_workflows_django.worker.cancellation import Why
from ezgh_workflows_django.worker.hands import Hands, Held
from ezgh_workflows_django.worker.heartbeat import SILENT_AFTER, ThreadHeartbeat

from .bench import Ear, Running, one_step, told

Start = Callable[..., Running]

OFTEN = replace(SESSION, heartbeat_ms=10)


class Heart:
    """A heartbeat with two leases in hand, and no thread."""

    def __init__(self, now: list[float]) -> None:
        job = one_step(lambda: None)
        self.server = ScriptedTransport()
        self.ear = Ear()
        self.hands = Hands(2)
        self.first, self.second = (Held(lease_of(job, "only"), None, now[0]) for _ in range(2))
        self.hands.take([self.first, self.second])
        self.heartbeat = ThreadHeartbeat(self.server, self.hands, self.ear, on_lost_session=lambda: None)
        self.heartbeat.begin(20)


@pytest.fixture
def heart(now: list[float]) -> Heart:
    """On a clock that stands still."""
    return Heart(now)


def test_one_call_carries_every_lease_and_its_progress(heart: Heart, now: list[float]) -> None:
    heart.second.context.progress({"done": 3})
    assert heart.heartbeat.run_once(now[0]) == 20
    assert heart.server.named("heartbeat") == [(Beat(heart.first.lease.id), Beat(heart.second.lease.id, {"done": 3}))]


def test_a_lease_is_extended_from_when_the_call_was_sent(heart: Heart, now: list[float]) -> None:
    heart.heartbeat.run_once(now[0] + 5)
    assert heart.first.extended_at == now[0] + 5


@pytest.mark.parametrize(("reason", "why"), [("fenced", Why.FENCED), ("unknown_lease", Why.FENCED), ("run_terminal", Why.RUN_TERMINAL)])
def test_a_refused_heartbeat_tells_that_body_to_stop_and_no_other(heart: Heart, now: list[float], reason: str, why: Why) -> None:
    heart.server.refuse("heartbeat", heart.first.lease.id, reason)
    heart.heartbeat.run_once(now[0])
    assert (heart.first.cancelled.why, heart.second.cancelled.why) == (why, None)


def test_already_applied_on_a_heartbeat_is_left_to_the_reporter(heart: Heart, now: list[float]) -> None:
    heart.server.refuse("heartbeat", heart.first.lease.id, "already_applied")
    heart.heartbeat.run_once(now[0])
    assert (heart.first.cancelled.is_set(), heart.ear.errors) == (False, [])


def test_a_heartbeat_that_fails_is_tried_again_within_five_seconds_whatever_is_asked(heart: Heart, now: list[float]) -> None:
    heart.server.fail("heartbeat", *(Unavailable("down", retry_after=100) for _ in range(20)))
    waits = [heart.heartbeat.run_once(now[0]) for _ in range(20)]
    assert max(wait or 99 for wait in waits) <= 5


def test_a_worker_whose_loop_is_dead_sends_none(heart: Heart, now: list[float]) -> None:
    heart.heartbeat.stamp()
    heart.heartbeat.run_once(now[0] + SILENT_AFTER + 1)
    assert heart.server.named("heartbeat") == []


def test_with_nothing_in_hand_none_is_sent(heart: Heart, now: list[float]) -> None:
    heart.hands.drop([heart.first, heart.second])
    heart.heartbeat.run_once(now[0])
    assert heart.server.named("heartbeat") == []


def test_a_fenced_body_is_acknowledged_once_it_has_ended(work: Start) -> None:
    job = one_step(lambda ctx: ctx.cancelled.wait(60))
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease, session=OFTEN)
    server.refuse("heartbeat", lease.id, "fenced")
    server.refuse("report", lease.id, "fenced")
    assert work(server, job, until_idle=True).join() == 0
    assert [outcome.class_ for outcome in server.outcomes[lease.id]] == ["returned"]


def test_an_async_body_whose_run_ended_is_cancelled_and_acknowledged(work: Start) -> None:
    async def body() -> None:
        await asyncio.Event().wait()

    job = one_step(body)
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease, session=OFTEN)
    server.refuse("heartbeat", lease.id, "run_terminal")
    work(server, job, until_idle=True).join()
    assert [outcome.class_ for outcome in server.outcomes[lease.id]] == ["returned"]


def test_heartbeats_go_on_while_an_outcome_waits_for_its_answer(work: Start) -> None:
    job = one_step(lambda: 1)
    server = ScriptedTransport(lease_of(job, "only"), session=OFTEN)
    gate = server.block("report")
    work(server, job)
    server.wait_until(lambda: bool(server.named("report")))
    beaten = len(server.named("heartbeat"))
    server.wait_until(lambda: len(server.named("heartbeat")) > beaten)
    gate.set()


def test_heartbeats_go_on_to_the_last_body_and_a_cancel_reaches_it_while_draining(work: Start) -> None:
    job, begun = told(lambda ctx: ctx.cancelled.wait(60))
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease, session=OFTEN)
    running = work(server, job, grace=10)
    assert begun.wait(60)
    running.worker.stop()
    server.wait_until(lambda: server._is_interrupted)
    beaten = len(server.named("heartbeat"))
    server.wait_until(lambda: len(server.named("heartbeat")) > beaten)
    server.refuse("heartbeat", lease.id, "run_terminal")
    assert running.join() == 0
    assert [outcome.class_ for outcome in server.outcomes[lease.id]] == ["returned"]
