"""How long the claim loop waits, on a clock that moves as it waits; and who may say that the session was lost."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ezgh_workflows_django.errors import SessionLost, Unavailable
from ezgh_workflows_django.protocol.messages import Claimed, ClaimRequest, Lease, Registration
from ezgh_workflows_django.testing.scripted import SESSION, ScriptedTransport, lease_of
from ezgh_workflows_django.worker import Worker
from ezgh_workflows_django.worker.claims import Claims
from ezgh_workflows_django.worker.hands import Hands, Held
from ezgh_workflows_django.worker.heartbeat import ThreadHeartbeat
from ezgh_workflows_django.worker.heartbeat_child import ProcessHeartbeat
from ezgh_workflows_django.worker.heartbeat_process import Beater, Charge
from ezgh_workflows_django.worker.serving import Serving
from ezgh_workflows_django.worker.session import Session
from ezgh_workflows_django.worker.transports.recipe import Recipe

from .bench import Ear, Running, one_step

JOB = one_step(lambda: None)


class Timed(ScriptedTransport):
    """Notes when each claim comes, and asks for a rest after it."""

    def __init__(self, now: list[float], *leases: Lease, rest_ms: int | None = None) -> None:
        super().__init__(*leases)
        self.moments: list[float] = []
        self._now = now
        self._rest_ms = rest_ms

    def claim(self, request: ClaimRequest) -> Claimed:
        self.moments.append(self._now[0])
        return replace(super().claim(request), retry_after_ms=self._rest_ms)

    @property
    def waits(self) -> list[float]:
        """Seconds between the claims."""
        return [after - before for before, after in zip(self.moments, self.moments[1:], strict=False)]


class Passing(threading.Event):
    """An event that is never set: who waits for it has the time pass at once."""

    def __init__(self, now: list[float]) -> None:
        super().__init__()
        self._now = now

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._now[0] += timeout
        return False


def poll(server: Timed, now: list[float]) -> None:
    """The claim loop, until a claim brings nothing; nobody runs what it brings."""
    hands, ear = Hands(10), Ear()
    heartbeat = ThreadHeartbeat(server, hands, ear, on_lost_session=lambda: None)
    session = Session(server, Registration(worker="w", app="default", concurrency=10, definitions=(), sdk="test"), heartbeat, ear)

    def put(batch: Sequence[Held]) -> None:
        for held in batch:
            hands.end(held)
        hands.drop(batch)

    starter = SimpleNamespace(put=put)
    bodies, nobody, passing = SimpleNamespace(capacity=10), None, Passing(now)
    parts: tuple[Any, ...] = (server, session, Serving([JOB]), hands, bodies, starter, nobody, heartbeat, ear, passing)
    Claims(*parts, until_idle=True).run()


def test_a_claim_waits_as_long_as_the_server_asks(now: list[float]) -> None:
    server = Timed(now)
    server.fail("claim", Unavailable("busy", retry_after=100.0))
    poll(server, now)
    [wait] = server.waits
    assert 100.0 <= wait < 101.5


def test_after_a_success_the_claim_loop_backs_off_from_the_beginning(now: list[float]) -> None:
    server = Timed(now)
    server.fail("claim", *(Unavailable("down") for _ in range(12)))
    server.offer(lease_of(JOB, "only"))
    claim = server.claim

    def fails_once_more(request: ClaimRequest) -> Claimed:
        claimed = claim(request)
        if claimed.leases:
            server.fail("claim", Unavailable("down again"))
        return claimed

    server.claim = fails_once_more  # type: ignore[method-assign]  # the script goes on from what it gave
    poll(server, now)
    assert len(server.waits) == 14
    assert max(server.waits[:12]) > 10
    assert server.waits[13] < 2


def test_the_next_claim_comes_after_the_rest_that_the_answer_asked_for(now: list[float]) -> None:
    server = Timed(now, lease_of(JOB, "only"), rest_ms=60_000)
    poll(server, now)
    assert server.waits == [60.0]


@pytest.mark.parametrize("call", ["started", "report", "heartbeat"])
def test_whichever_call_meets_it_a_lost_session_is_registered_again(work: Callable[..., Running], call: str) -> None:
    gate = threading.Event()
    job = one_step(lambda: gate.wait(60))
    server = ScriptedTransport(lease_of(job, "only"), session=replace(SESSION, heartbeat_ms=20))
    server.fail(call, SessionLost("who?"))
    work(server, job)
    if call == "report":
        gate.set()
    server.wait_until(lambda: len(server.named(call)) >= 2)
    server.offer(lease_of(job, "only"))  # the claim that is being held comes back
    server.wait_until(lambda: len(server.named("register")) == 2)
    gate.set()


def test_a_heartbeat_process_tells_that_the_session_was_lost() -> None:
    charge, server = Charge(20.0, 0.0), ScriptedTransport()
    charge.told({"hold": ["a"]}, 0.0)
    lost: list[str] = []
    parent = ProcessHeartbeat(Recipe("nowhere:nothing"), Hands(1), Ear(), on_lost_session=lambda: lost.append("lost"))
    beater = Beater(server, charge, parent._take_in, lambda: False)
    server.fail("heartbeat", Unavailable("down"), SessionLost("who?"))
    beater.run_once(1.0)
    assert lost == []
    beater.run_once(1.0)
    assert lost == ["lost"]


def test_a_worker_without_a_name_is_called_by_its_host_and_process(work: Callable[..., Running]) -> None:
    server = ScriptedTransport()
    work(server, JOB, until_idle=True).join()
    assert server.named("register")[0].worker == f"{socket.gethostname()}-{os.getpid()}"
    assert Worker(ScriptedTransport(), name="mine").name == "mine"
