"""Where bodies run: sync ones in the pool, async ones on the loop, and what is left behind of either. Tells who asked how each ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Protocol

from ..protocol.messages import Lease
from ..protocol.outcomes import Answer, Outcome
from .executor import Execution, Middleware
from .hands import Held
from .keeper import Keeping
from .loop_thread import LoopThread
from .pool import Pool

LOOP_PATIENCE: Final = 0.5
"""Seconds that the event loop is given to take one turn, before the body that ignored its timeout is taken to block it."""


class Runner(Protocol):
    """What the worker needs of whatever runs its bodies: threads of its own (`Bodies`) or other processes (`processes.ProcessBodies`)."""

    def run(self, held: Held) -> None:
        """Run the body of a lease, soon. The lease's step must be held here."""

    def leave(self, held: Held) -> bool:
        """Go on without a body that did not stop. Says whether it had begun; where not, it never will."""

    @property
    def stuck(self) -> int:
        """How many threads, event loops and coroutines are lost to what ignored its timeout, and are still at it."""

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left to run a body in: the process has to be replaced."""

    @property
    def capacity(self) -> int:
        """How many bodies can run at once now."""

    def close(self, timeout: float) -> None:
        """Let go of threads and processes; wait for them at most `timeout` seconds."""


class Bodies:
    """Runs the bodies of leases, at most `size` sync ones at once. `on_end` is called once for each, in the body's own thread: with its
    outcome, and the server's answer where that has landed already. `keeping` lends durable functions what they need.
    """

    def __init__(
        self,
        size: int,
        *,
        scope: Callable[[Lease], AbstractContextManager[Any]],
        middleware: Sequence[Middleware],
        on_end: Callable[[Held, Outcome, Answer | None], object],
        on_crash: Callable[[BaseException], object],
        release: Callable[[], object],
        keeping: Keeping | None = None,
    ) -> None:
        self._size = size
        self._keeping = keeping
        self._scope = scope
        self._middleware = tuple(middleware)
        self._on_end = on_end
        self._on_crash = on_crash
        self._release = release
        self._pool = Pool(size, spare=size, on_crash=on_crash, release=release)
        self._loop: LoopThread | None = None
        self._lost_loops: set[LoopThread] = set()
        self._loop_of: dict[Held, LoopThread] = {}
        self._left: set[Held] = set()
        self._lock = threading.RLock()

    def run(self, held: Held) -> None:
        """Run the body of a lease, soon. The lease's step must be held here."""
        assert held.holding is not None
        holding = held.holding
        keeper = self._keeping.keeper(held.lease, held.cancelled) if self._keeping is not None else None
        scope = self._scope(held.lease)
        work = Execution(held.lease, holding.body, held.context, holding.parents, self._middleware, scope, keeper, holding.transactional)
        if work.is_async:
            with self._lock:  # a loop that is retired meanwhile still gets this one first
                loop = self._loop_of[held] = self._running_loop()
                loop.submit(work.arun, held.cancelled, partial(self._async_ended, held))
        else:
            self._pool.submit(held, partial(self._run, held, work))

    def leave(self, held: Held) -> bool:
        """Go on without a body that did not stop; what blocks a thread or the loop is replaced, up to a bound."""
        if held.holding is not None and held.holding.body.is_async:
            self._leave_on_loop(held)
            return True
        return self._pool.leave(held)

    @property
    def stuck(self) -> int:
        """How many threads, event loops and coroutines are lost to what ignored its timeout, and are still at it."""
        with self._lock:
            coroutines = [held for held in self._left if self._loop_of[held] not in self._lost_loops]
            inner = self._keeping.stuck if self._keeping is not None else 0
            return self._pool.stuck + len(self._lost_loops) + len(coroutines) + inner

    @property
    def is_exhausted(self) -> bool:
        """Whether no thread is left to run a body in, or too much was left behind on event loops: the process has to be replaced."""
        return self._pool.capacity == 0 or len(self._lost_loops) > MAX_LOST_LOOPS or len(self._left) >= 2 * self._size

    @property
    def capacity(self) -> int:
        """How many sync bodies can run at once now."""
        return self._pool.capacity

    def close(self, timeout: float) -> None:
        """Let the idle threads end; wait for them at most `timeout` seconds."""
        self._pool.close(timeout)
        if self._keeping is not None:
            self._keeping.close(timeout)
        with self._lock:
            loops = ({self._loop} if self._loop is not None else set()) | set(self._loop_of.values()) - self._lost_loops
        for loop in loops:
            loop.close(timeout)

    def _run(self, held: Held, work: Execution) -> None:
        outcome = work.run()
        self._on_end(held, outcome, work.answer)

    def _async_ended(self, held: Held, task: asyncio.Task[Outcome]) -> None:
        with self._lock:
            del self._loop_of[held]
            self._left.discard(held)
        never_began = Outcome.returned("the body was told to stop before it began; it did not run")
        self._on_end(held, never_began if task.cancelled() else task.result(), None)

    def _running_loop(self) -> LoopThread:
        if self._loop is None:
            self._loop = LoopThread(on_crash=self._on_crash, release=self._release)
        return self._loop

    def _leave_on_loop(self, held: Held) -> None:
        with self._lock:
            loop = self._loop_of.get(held)
            if loop is None:
                return
            self._left.add(held)
            is_known = loop in self._lost_loops
        if not is_known and loop.is_stuck(LOOP_PATIENCE):
            self._replace(loop)

    def _replace(self, loop: LoopThread) -> None:
        """Another loop takes the next bodies; this one ends once it is free, and what it runs beside the body that blocked it has ended."""
        with self._lock:
            if loop is self._loop:
                self._loop = None
            self._lost_loops.add(loop)
            loop.retire(partial(self._recovered, loop))

    def _recovered(self, loop: LoopThread) -> None:
        with self._lock:
            self._lost_loops.discard(loop)


MAX_LOST_LOOPS: Final = 4
"""Event loops that may be blocked at once and are replaced; with one more, the worker gives up."""
