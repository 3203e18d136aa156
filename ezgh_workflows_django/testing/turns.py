"""Bodies in threads of their own, one at work at a time: the kit gives a body the turn and takes it back.

A body has the turn until it ends or waits on `ctx.cancelled`. It works on the test's own database connection.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta

from asgiref.sync import async_to_sync
from django.conf import settings
from django.db import connections
from django.utils import timezone, translation

from ..protocol.messages import Lease
from ..protocol.outcomes import Answer, Outcome
from ..worker.cancellation import Cancelled
from ..worker.context import Context
from ..worker.executor import Execution
from ..worker.manner import Overran
from ..worker.serving import Holding
from ..worker.suspension import Unwound
from .keeper import LabKeeper

PATIENCE = 5.0
"""Real seconds that a body may keep the turn."""

LONGEST_WAIT = timedelta(days=3650)


class BodyStuck(AssertionError):
    """A body kept the turn for over five seconds: it waits for something that is not the lab's, such as a sleep or a socket."""


class Abandoned(Unwound):
    """Unwinds a body whose lab is over; no `except Exception` holds it."""


class Late(BaseException):
    """Unwinds an inner step's function whose time is up: a worker leaves it behind in its thread, and a lab has one at work at a time."""


_ends_at: ContextVar[datetime | None] = ContextVar("ezgh_workflows_inner_step_ends_at", default=None)
"""When the time of the inner step's function that runs here is up, by the lab's clock."""


class LabCancelled(Cancelled):
    """A body's `ctx.cancelled`: waiting on it gives the turn back, and lasts until the lab's clock has moved or it fires."""

    def __init__(self, turn: Turn, now: Callable[[], datetime]) -> None:
        super().__init__()
        self._turn = turn
        self._now = now

    def wait(self, timeout: float | None = None) -> bool:
        """As `Cancelled.wait`; `timeout` is seconds of the lab's clock."""
        wanted = None if timeout is None else self._now() + timedelta(seconds=max(0.0, min(timeout, LONGEST_WAIT.total_seconds())))
        ends_at = _ends_at.get()
        until = min((moment for moment in (wanted, ends_at) if moment is not None), default=None)
        while not self.is_set() and (until is None or self._now() < until):
            self._turn.give_back(until)
        if not self.is_set() and ends_at is not None and ends_at <= self._now():
            raise Late
        return self.is_set()

    @contextmanager
    def limited(self, seconds: float | None) -> Iterator[None]:
        """Around an inner step's function: whatever it came to after that many seconds, by the lab's clock or a real one, raises `Overran`."""
        if seconds is None:
            yield
            return
        ends_at, really_ends_at = self._now() + timedelta(seconds=seconds), time.monotonic() + seconds
        entered = _ends_at.set(ends_at)
        try:
            yield
        except (Exception, Late):
            if self._now() < ends_at and time.monotonic() < really_ends_at:
                raise
        finally:
            _ends_at.reset(entered)
        if self._now() >= ends_at or time.monotonic() >= really_ends_at:
            raise Overran


class Turn:
    """One body's thread. `answer` is the server's, where the body and its outcome were one transaction.

    `wakes_at` is the lab's moment its wait on `ctx` ends by itself, where it waits and has one.
    """

    def __init__(self, lease: Lease, holding: Holding | None, now: Callable[[], datetime]) -> None:
        self.lease = lease
        self.started_at = now()
        self.cancelled = LabCancelled(self, now)
        self.context = Context(lease, cancelled=self.cancelled, on_progress=self._show)
        self.progress: object = None
        self.outcome: Outcome | None = None
        self.answer: Answer | None = None
        self.wakes_at: datetime | None = None
        self._holding = holding
        self._abandoned = False
        self._is_stuck = False
        self._cancel: Callable[[], object] | None = None
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._connections = {alias: connections[alias] for alias in connections}
        self._thread = threading.Thread(target=self._run, name=f"lab {self.name}", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """The body, as people name it."""
        return f"{self.lease.workflow}/{self.lease.step}"

    @property
    def has_ended(self) -> bool:
        """Whether the body is over."""
        return self.outcome is not None

    def take(self) -> None:
        """Let the body work until it ends or waits. Raises `BodyStuck`."""
        for connection in self._connections.values():
            connection.inc_thread_sharing()
        try:
            self._cancel_coroutine()
            self._go.release()
            if not self._back.acquire(timeout=PATIENCE):
                self._is_stuck = True
                raise BodyStuck(
                    f"the body of {self.name} (run {self.lease.run_id}) has not come back for {PATIENCE:g} s: "
                    "it may wait on ctx.cancelled, but on nothing else; nothing outside the lab moves its clock"
                )
        finally:
            for connection in self._connections.values():
                connection.dec_thread_sharing()

    def give_back(self, wakes_at: datetime | None) -> None:
        """Called by the body's thread: wait for the next turn."""
        self.wakes_at = wakes_at
        self._back.release()
        self._go.acquire()
        self.wakes_at = None
        if self._abandoned:
            raise Abandoned

    def abandon(self) -> None:
        """Unwind a body that still waits: its lab is over. One that is stuck unwinds when it next waits on `ctx`."""
        self._abandoned = True
        if not self.has_ended:
            self._go.release()
        if not self.has_ended and not self._is_stuck:
            self._thread.join(PATIENCE)

    def _run(self) -> None:
        self._go.acquire()
        if self._abandoned:
            return
        for alias, connection in self._connections.items():
            connections[alias] = connection
        held = self._holding
        work = Execution(self.lease, held.body if held else None, self.context, held.parents if held else (), scope=_as_configured(), keeper=LabKeeper())
        work.transactional = held is not None and held.transactional
        try:
            outcome = async_to_sync(self._cancellable)(work) if work.is_async else work.run()
            if not self._abandoned:
                self.answer, self.outcome = work.answer, outcome
        finally:
            self._back.release()

    async def _cancellable(self, work: Execution) -> Outcome:
        """Run a coroutine so that `take` can cancel it, as a worker does when its body is told to stop."""
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work.arun())
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            return await task
        finally:
            self._cancel = None

    def _cancel_coroutine(self) -> None:
        """Only as the turn is given: a coroutine that goes on earlier would meet the kit on the connection."""
        cancel = self._cancel
        if cancel is not None and self.cancelled.is_set():
            self._cancel = None
            cancel()

    def _show(self, value: object) -> None:
        self.progress = value


@contextmanager
def _as_configured() -> Iterator[None]:
    """Language and time zone as a worker's bodies find them."""
    with translation.override(settings.LANGUAGE_CODE), timezone.override(None):
        yield
