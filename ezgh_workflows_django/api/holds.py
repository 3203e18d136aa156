"""Requests that are held: where they hang, how many a process holds, and how all of them end when it is told to go.

One `Holds` per event loop. Its claims are looked for by one dispatcher an app, its runs by one look for all of them.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import weakref
from collections.abc import Iterable
from types import FrameType
from typing import Any, Final

from ..conf import app_settings
from ..engine import leases, wakeups
from .dispatcher import Dispatcher
from .endings import Endings
from .threads import threads
from .ticking import ticking

logger = logging.getLogger("ezgh_workflows.api")

TICK_EVERY: Final = 1.0

_of_loop: dict[asyncio.AbstractEventLoop, Holds] = {}


def holds() -> Holds:
    """Those of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _of_loop.get(loop)
    if found is None:
        for other in [other for other in _of_loop if other.is_closed()]:
            del _of_loop[other]
        found = _of_loop[loop] = Holds(loop)
    return found


class Holds:
    """What one event loop holds. Everything here runs on that loop, but for what `threads` does."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._dispatchers: dict[int, Dispatcher] = {}
        self._ticker: asyncio.Task[None] | None = None
        self.endings = Endings()
        self.is_closing = False
        wakeups.bell.also(self._rung_elsewhere)
        close_on_shutdown(self)

    @property
    def count(self) -> int:
        """How many requests hang here."""
        return sum(dispatcher.count for dispatcher in self._dispatchers.values()) + self.endings.count

    @property
    def has_room(self) -> bool:
        """Whether one more request may be held."""
        return not self.is_closing and self.count < app_settings.MAX_HELD

    def dispatcher(self, app_id: int) -> Dispatcher:
        """The one that looks for work for the claims of an app."""
        self._keep_ticking()
        found = self._dispatchers.get(app_id)
        if found is None:
            found = self._dispatchers[app_id] = Dispatcher(app_id)
        return found

    def knows_empty(self, app_id: int, call: leases.Claim) -> bool:
        """Whether a look for such a claim has just found nothing, and nobody rang since. Asked from any thread."""
        found = self._dispatchers.get(app_id)
        return found is not None and found.knows_empty(call)

    def watch_runs(self) -> Endings:
        """Where requests wait for runs to be over."""
        self._keep_ticking()
        return self.endings

    def close(self) -> None:
        """Answer every request that is held with what there is: nothing. Later ones are not held. Called on the loop."""
        self.is_closing = True
        for dispatcher in self._dispatchers.values():
            dispatcher.close()
        self.endings.close()

    def close_soon(self) -> None:
        """As `close`, from anywhere, a signal handler included."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.close)

    def _keep_ticking(self) -> None:
        """Timers go on while everybody only waits: nobody else may be there to look after them."""
        if self._ticker is None or self._ticker.done():
            self._ticker = self._loop.create_task(self._tick(), name="ezgh-workflows-tick")

    async def _tick(self) -> None:
        while not self.is_closing and self.count:
            await threads.run(wakeups.listener.ensure)
            await threads.run(ticking.tick_if_due)
            await asyncio.sleep(TICK_EVERY)

    def _rung_elsewhere(self, app_ids: Iterable[int]) -> None:
        """A bell rang, in whichever thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung, tuple(app_ids))

    def _rung(self, app_ids: Iterable[int]) -> None:
        for app_id in app_ids:
            if app_id in self._dispatchers:
                self._dispatchers[app_id].ring()


_watching: weakref.WeakSet[Holds] = weakref.WeakSet()
_installed = False


def close_on_shutdown(held: Holds) -> None:
    """End these holds when the process is told to stop (SIGTERM, SIGINT), before the server waits for its requests to end.

    Only from the main thread, where the servers run their loops and signals can be caught; the handler that was there goes on after it.
    """
    global _installed
    _watching.add(held)
    if _installed or threading.current_thread() is not threading.main_thread():
        return
    _installed = True
    for number in (signal.SIGTERM, signal.SIGINT):
        _chain(number)


def close_all() -> None:
    """End every hold of this process."""
    for held in list(_watching):
        held.close_soon()


def _chain(number: signal.Signals) -> None:
    before: Any = signal.getsignal(number)

    def handler(received: int, frame: FrameType | None) -> None:
        close_all()
        if callable(before):
            before(received, frame)
        elif before == signal.SIG_DFL:
            signal.signal(received, signal.SIG_DFL)
            signal.raise_signal(received)

    signal.signal(number, handler)
