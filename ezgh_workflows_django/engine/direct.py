"""The engine as a worker in this process sees it: the protocol's calls, straight on the database.

Given to `worker.transports.direct.DirectTransport`. Claims are held here, on the process's bell; each call looks after
the connection of the thread it runs in.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import overload

from django.db import DatabaseError, InterfaceError, connections

from ..protocol.durable import Children, Record, Started, Stored
from ..protocol.messages import Beat, Claimed, ClaimRequest, Extension, Lease, Registered, Registration
from ..protocol.outcomes import Answer, Report
from ..worker.transports.recipe import Recipe
from . import atomically, checkpoints, children, leases, maintenance, outcomes, wakeups, workers
from .hygiene import BodyScope, engine_call
from .transactions import LostRace


class DirectEngine:
    """The protocol's calls on this process's own database connections. Safe to use from several threads."""

    unavailable_errors: tuple[type[BaseException], ...] = (DatabaseError, InterfaceError, LostRace)

    def __init__(self) -> None:
        self._interrupted = threading.Event()

    def register(self, registration: Registration) -> Registered:
        """`engine.workers.register`."""
        with engine_call():
            return workers.register(registration)

    def claim(self, request: ClaimRequest) -> Claimed:
        """`engine.leases.claim`, held up to `wait_ms` while there is nothing: woken by the bell, looking now and then."""
        until = time.monotonic() + request.wait_ms / 1000
        with engine_call():
            call = leases.open_claim(request)
        if request.wait_ms:
            wakeups.listener.ensure()
        is_held = False
        while True:
            rings = wakeups.bell.rings(call.session.app.pk)
            with engine_call():
                now, answer = call.look_again() if is_held else call.look()
                due_in = now.seconds_to_next() if now is not None and not answer.leases and request.wait_ms else 0.0
            left = until - time.monotonic()
            if answer.leases or now is None or left <= 0 or self._interrupted.is_set():
                return answer
            call, is_held = now, True
            wakeups.pause(call.session.app.pk, rings, min(left, due_in), self._interrupted)

    def started(self, lease_ids: Sequence[str]) -> list[Extension]:
        """`engine.leases.started`."""
        with engine_call():
            return leases.started(lease_ids)

    def heartbeat(self, beats: Sequence[Beat]) -> list[Extension]:
        """`engine.leases.heartbeat`."""
        with engine_call():
            return leases.heartbeat(beats)

    def report(self, reports: Sequence[Report]) -> list[Answer]:
        """`engine.outcomes.report`."""
        with engine_call():
            return outcomes.report(reports)

    def checkpoint(self, records: Sequence[Record]) -> list[Stored]:
        """`engine.checkpoints.checkpoint`."""
        with engine_call():
            return checkpoints.checkpoint(records)

    def children(self, request: Children) -> Started:
        """`engine.children.start`."""
        with engine_call():
            return children.start(request)

    @overload
    def atomically(self, work: Callable[[], Record]) -> Stored: ...

    @overload
    def atomically(self, work: Callable[[], Report]) -> Answer: ...

    def atomically(self, work: Callable[[], Record | Report]) -> Stored | Answer:
        """`engine.atomically.atomically`."""
        with engine_call():
            return atomically.atomically(work)

    def leave(self, worker_id: str) -> None:
        """`engine.workers.leave`."""
        with engine_call():
            workers.leave(worker_id)

    def tend(self) -> None:
        """Give maintenance a turn."""
        with engine_call():
            maintenance.tick()

    def interrupt(self) -> None:
        """End the claim that is being held, and every later one at once."""
        self._interrupted.set()
        wakeups.bell.ring_all()

    def body_scope(self, lease: Lease) -> BodyScope:
        """Around a body, in its own thread or on its loop."""
        del lease
        return BodyScope()

    @property
    def recipe(self) -> Recipe:
        """How the heartbeat process builds a transport to the same database."""
        # By name: that module sets Django up first, and this one can't be imported before.
        return Recipe(f"{__package__}.elsewhere:transport", {"settings": os.environ.get("DJANGO_SETTINGS_MODULE", "")})

    def release(self) -> None:
        """Close the connections of the calling thread, which is about to end."""
        connections.close_all()

    def close(self) -> None:
        """Let go of the listening thread and of this thread's connections."""
        wakeups.listener.close()
        connections.close_all()
