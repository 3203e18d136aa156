"""The worker's session with the server: registers, again when it was lost, and holds the numbers the protocol works with."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..errors import SessionLost, Unavailable
from ..protocol.messages import Registered, Registration
from .backoff import Backoff
from .heartbeat import Heartbeat
from .listener import Listener
from .transports.base import Transport


class Session:
    """One worker session after another, under one name. Registering is the claim loop's; any thread may say that the session was lost."""

    def __init__(self, transport: Transport, registration: Registration, heartbeat: Heartbeat, listener: Listener) -> None:
        self._transport = transport
        self._registration = registration
        self._heartbeat = heartbeat
        self._listener = listener
        self._is_lost = threading.Event()
        self._numbers: Registered | None = None

    def open(self, pause: Callable[[float], bool]) -> Registered | None:
        """The live session, registering as often as it takes. `pause` waits some seconds and says whether to give up; then None."""
        backoff = Backoff()
        while self._numbers is None or self._is_lost.is_set():
            try:
                self._register()
            except (Unavailable, SessionLost) as error:
                wait = backoff.next(getattr(error, "retry_after", None))
                self._listener.warning(f"the worker could not register ({error}); trying again in {wait:.1f} s")
                if pause(wait):
                    return None
        return self._numbers

    def lost(self) -> None:
        """The server does not know the session any more."""
        self._is_lost.set()

    @property
    def worker_id(self) -> str | None:
        """The session's id, or None before the first registration."""
        return self._numbers.worker_id if self._numbers is not None else None

    @property
    def lease_life(self) -> float:
        """Seconds from a lease's last extension until it may be another's at the earliest."""
        return (self._numbers.lease_ttl_ms + self._numbers.recovery_ms) / 1000 if self._numbers is not None else float("inf")

    def _register(self) -> None:
        self._is_lost.clear()
        self._numbers = self._transport.register(self._registration)
        self._heartbeat.begin(self._numbers.heartbeat_ms / 1000)
        self._listener.registered(self._registration, self._numbers)
