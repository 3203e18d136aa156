"""The event that tells a body to stop, and the reasons it fires for. Stops nothing by force."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum


class Why(StrEnum):
    """What made a body's work pointless."""

    TIMEOUT = "timeout"
    FENCED = "fenced"  # the lease is another's now
    RUN_TERMINAL = "run_terminal"
    CUT_OFF = "cut_off"  # no heartbeat has landed for so long that the lease can't be this worker's any more
    SHUTDOWN = "shutdown"  # the grace period is over


class Cancelled:
    """An event that fires once, with the first reason it is given. Safe from any thread.

    The testing kit hands bodies a subclass of its own.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []
        self.why: Why | None = None

    def is_set(self) -> bool:
        """Whether the body should stop."""
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the body should stop, at most `timeout` seconds; says whether it should."""
        return self._event.wait(timeout)

    def limited(self, seconds: float | None) -> AbstractContextManager[None]:
        """Around a function of the body that has that many seconds. Here nothing: whoever waits for it looks at the clock."""
        return nullcontext()

    def fire(self, why: Why) -> bool:
        """Tell the body to stop. Says whether this call was the first; a later reason changes nothing."""
        with self._lock:
            if self.why is not None:
                return False
            self.why = why
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        return True

    def on_fire(self, callback: Callable[[], object]) -> None:
        """Call `callback` when it fires, in the thread that fires it; at once if it has fired."""
        with self._lock:
            if self.why is None:
                self._callbacks.append(callback)
                return
        callback()
