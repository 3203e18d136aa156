"""Gives the server's maintenance its turn, about once a second, from a thread of its own."""

from __future__ import annotations

import threading
from typing import Final

from ..errors import Unavailable
from .backoff import Backoff
from .listener import Listener
from .transports.base import Transport

EVERY: Final = 1.0
"""Seconds between two turns."""


class Tending:
    """Calls `transport.tend()` until it is closed. A turn that fails is made up for by the next one."""

    def __init__(self, transport: Transport, listener: Listener) -> None:
        self._transport = transport
        self._listener = listener
        self._closing = threading.Event()
        self._backoff = Backoff(first=EVERY)

    def run(self) -> None:
        """Tend until `close`. Raises `Rejected`, and whatever is a bug."""
        while not self._closing.wait(self.run_once()):
            pass

    def run_once(self) -> float:
        """One turn; gives the seconds until the next one."""
        try:
            self._transport.tend()
        except Unavailable as error:
            wait = self._backoff.next(error.retry_after)
            self._listener.warning(f"maintenance could not run ({error}); trying again in {wait:.1f} s")
            return wait
        self._backoff.reset()
        return EVERY

    def close(self) -> None:
        """End `run`."""
        self._closing.set()
