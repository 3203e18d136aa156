"""The bell that waiting claims hear: rung in this process at once, from other processes through PostgreSQL, and never relied on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import pytest
from django.db import connection, connections

from ezgh_workflows_django import Step, Wait, Workflow, emit
from ezgh_workflows_django.engine import wakeups
from ezgh_workflows_django.engine.direct import DirectEngine
from ezgh_workflows_django.protocol.messages import ClaimRequest
from tests.engine.conftest import Desk
from tests.engine.graphs import body
from tests.engine.threads import PATIENCE, begin

APP = 987_654
VENDORS_THAT_LISTEN = {"postgresql"}


@pytest.fixture
def bell(monkeypatch: pytest.MonkeyPatch) -> wakeups.Bell:
    """A bell of the test's own."""
    bell = wakeups.Bell()
    monkeypatch.setattr(wakeups, "bell", bell)
    return bell


@pytest.fixture
def listener(bell: wakeups.Bell) -> Iterator[wakeups.Listener]:
    """A listener of the test's own."""
    listener = wakeups.Listener()
    yield listener
    listener.close()


def test_a_ring_between_the_look_and_the_wait_is_not_lost(bell: wakeups.Bell) -> None:
    rings = bell.rings(APP)
    bell.ring([APP])
    bell.wait(APP, rings, 60, threading.Event())


def test_a_ring_wakes_a_waiting_claim(bell: wakeups.Bell) -> None:
    rings = bell.rings(APP)
    waiting = threading.Thread(target=bell.wait, args=(APP, rings, 60, threading.Event()))
    waiting.start()
    bell.ring([APP])
    waiting.join(10)
    assert not waiting.is_alive()


def test_another_apps_ring_wakes_nobody(bell: wakeups.Bell) -> None:
    rings = bell.rings(APP)
    bell.ring([APP + 1])
    assert bell.rings(APP) == rings


def test_an_interrupted_claim_waits_no_longer(bell: wakeups.Bell) -> None:
    stopped = threading.Event()
    stopped.set()
    bell.wait(APP, bell.rings(APP), 60, stopped)


@pytest.mark.django_db(transaction=True)
def test_a_commit_elsewhere_rings_here_where_the_database_can_tell(bell: wakeups.Bell, listener: wakeups.Listener) -> None:
    listener.ensure()
    tells = connection.vendor in VENDORS_THAT_LISTEN
    wait_until(lambda: listener.patience == (wakeups.LOOK_EVERY_LISTENING if tells else wakeups.LOOK_EVERY))
    before = bell.rings(APP)
    elsewhere(lambda: notify_from_another_process(tells))
    wait_until(lambda: (bell.rings(APP) > before) is tells)


@pytest.mark.django_db(transaction=True)
def test_a_listener_whose_connection_is_ended_listens_again_and_rings_for_what_it_missed(bell: wakeups.Bell, listener: wakeups.Listener) -> None:
    listener.ensure()
    tells = connection.vendor in VENDORS_THAT_LISTEN
    before = bell.rings(APP)
    wait_until(lambda: listener.patience == (wakeups.LOOK_EVERY_LISTENING if tells else wakeups.LOOK_EVERY))
    elsewhere(lambda: end_listeners(tells))
    wait_until(lambda: (bell.rings(APP) > before) is tells)
    wait_until(lambda: listener.patience == (wakeups.LOOK_EVERY_LISTENING if tells else wakeups.LOOK_EVERY))


class AnotherProcess(wakeups.Bell):
    """A bell that only the listener rings: whoever else does is taken for another process."""

    def ring(self, app_ids: Collection[int]) -> None:
        """Wake who waits, if the database told."""
        if threading.current_thread().name == "ezgh-workflows-listen":
            super().ring(app_ids)


@pytest.mark.skipif(connection.vendor not in VENDORS_THAT_LISTEN, reason="waiting claims are told of other processes' commits on PostgreSQL only")
def test_an_event_sent_elsewhere_wakes_the_claim_that_waits_for_what_follows(
    transactional_db: None, desk: Desk, listener: wakeups.Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B58: by its notification, for nobody looks again within this test's patience."""
    monkeypatch.setattr(wakeups, "bell", AnotherProcess())
    monkeypatch.setattr(wakeups, "listener", listener)
    monkeypatch.setattr(wakeups, "LOOK_EVERY_LISTENING", 10 * PATIENCE)
    monkeypatch.setattr(wakeups, "LOOK_EVERY", 10 * PATIENCE)
    order = Workflow("order", steps=[Step("wait", wait=Wait("paid")), Step("work", run=body, after=["wait"])])
    hand = desk.worker(order)
    run = order.start()
    listener.ensure()
    wait_until(listener._connected.is_set)
    looked = threading.Event()
    monkeypatch.setattr(wakeups, "pause", partial(looked_and_wait, looked, wakeups.pause))
    claim = ClaimRequest(worker_id=hand.session.worker_id, claim_id="held", max=1, serves=hand.serves, wait_ms=9_000 * int(PATIENCE))
    claimed = begin(lambda: DirectEngine().claim(claim))
    assert looked.wait(PATIENCE)
    elsewhere(lambda: emit("paid"))
    [lease] = claimed.result(PATIENCE).leases
    assert (lease.run_id, lease.step) == (run.id, "work")


def looked_and_wait(looked: threading.Event, pause: Callable[..., None], *arguments: Any) -> None:
    """A held claim's pause, which tells that it has begun."""
    looked.set()
    pause(*arguments)


def notify_from_another_process(tells: bool) -> None:
    """What another process does after its commit."""
    if tells:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, %s)", [wakeups.CHANNEL, str(APP)])


def end_listeners(tells: bool) -> None:
    """End every other session of this database."""
    if tells:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE %s",
                [f"LISTEN {wakeups.CHANNEL}%"],
            )


def elsewhere(work: Callable[[], None]) -> None:
    """On another connection."""

    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)


def wait_until(condition: Callable[[], bool]) -> None:
    """Look until it holds, at most 20 seconds."""
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until, "not in time"
        time.sleep(0.05)
