"""The port of a durable function to what is outside it: stores its results, starts its children, lends it threads.

`WorkerKeeper` is the worker's own. The testing kit has one of its own, where one thread at a time is at work.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar, overload

from ..errors import Rejected, SessionLost, Unavailable
from ..protocol.durable import Children, Record, Started, Stored
from ..protocol.messages import Lease
from ..protocol.outcomes import Answer, Report
from .backoff import LeaseBackoff
from .cancellation import Cancelled, Why
from .listener import Listener
from .pool import Pool
from .suspension import Unwound
from .transports.base import Transport

Answered = TypeVar("Answered")

IDLE: Final = 20.0
"""Seconds that a lent thread waits for more to do before it ends."""

MAX_LEFT: Final = 100
"""Lent threads that may be stuck at once in calls past their time; ten for each body where that is more. One body's group may leave many at once."""


class Keeper(Protocol):
    """What a durable function's words need of the world. All calls block, and may come from several threads at once.

    Calls go on until they are answered; where the body is told to stop meanwhile they raise `suspension.Unwound`.
    """

    def may_run(self, name: str) -> bool:
        """Whether a thing that no earlier pass asked for may be done; a rehearsal says no, and the pass ends there."""

    def checkpoint(self, record: Record) -> Stored:
        """Store what an inner step came to; gives what is stored under its name now, or the refusal."""

    def children(self, request: Children) -> Started:
        """Start child runs, once; gives them, or the refusal."""

    @overload
    def atomically(self, work: Callable[[], Record]) -> Stored: ...

    @overload
    def atomically(self, work: Callable[[], Report]) -> Answer: ...

    def atomically(self, work: Callable[[], Record] | Callable[[], Report]) -> Stored | Answer:
        """See `Transport.atomically`. Runs `work` in the calling thread."""

    def start(self, call: Callable[[], None]) -> None:
        """Run `call`, which raises nothing, in a thread of its own, surrounded as bodies are; or at once, before this returns."""

    def leave(self, running: Future[Any]) -> None:
        """Go on without a call in such a thread that does not stop: it is counted until it has ended."""


class Keeping:
    """The keepers of one worker, and the threads they lend. With `bound` of these left behind in calls that do not stop, the worker ends."""

    def __init__(self, transport: Transport, listener: Listener, *, on_crash: Callable[[BaseException], object], bound: int = sys.maxsize) -> None:
        self.transport = transport
        self.listener = listener
        self.crashed = on_crash
        self._bound = bound
        self._left: set[Future[Any]] = set()
        self._numbers = itertools.count()
        # As many threads as bodies ask for: one that waits for another, on a bounded pool, could wait for ever.
        self._pool = Pool(sys.maxsize, spare=0, on_crash=on_crash, release=transport.release, name="inner", idle=IDLE)

    def keeper(self, lease: Lease, cancelled: Cancelled) -> WorkerKeeper:
        """The keeper of one attempt."""
        return WorkerKeeper(self, lease, cancelled)

    def start(self, call: Callable[[], None]) -> None:
        """Run `call` in a thread, at once."""
        self._pool.submit(next(self._numbers), call)

    def leave(self, running: Future[Any]) -> None:
        """See `Keeper`."""
        self._left.add(running)
        running.add_done_callback(self._left.discard)
        if self.stuck >= self._bound:
            self.crashed(RuntimeError(f"{self.stuck} threads are stuck in functions of inner steps that did not stop at their timeout: the worker ends"))

    @property
    def stuck(self) -> int:
        """How many threads are still at a call that was left."""
        return len(self._left)

    def close(self, timeout: float) -> None:
        """Let the idle threads end; wait for them at most `timeout` seconds."""
        self._pool.close(timeout)


class WorkerKeeper:
    """`Keeper` on a worker's transport, for one attempt. A call that gets no answer is repeated, at most 5 s apart, until the body is told to stop."""

    def __init__(self, keeping: Keeping, lease: Lease, cancelled: Cancelled) -> None:
        self._keeping = keeping
        self._lease = lease
        self._cancelled = cancelled

    def may_run(self, name: str) -> bool:
        """Always."""
        return True

    def checkpoint(self, record: Record) -> Stored:
        """See `Keeper`."""
        [answer] = self._answered(lambda: self._keeping.transport.checkpoint([record]))
        return answer

    def children(self, request: Children) -> Started:
        """See `Keeper`."""
        return self._answered(lambda: self._keeping.transport.children(request))

    @overload
    def atomically(self, work: Callable[[], Record]) -> Stored: ...

    @overload
    def atomically(self, work: Callable[[], Report]) -> Answer: ...

    def atomically(self, work: Callable[[], Any]) -> Stored | Answer:
        """See `Keeper`. Where the answer is lost, the server knows whether it was committed: it is asked again, and `work` with it."""
        answer: Stored | Answer = self._answered(lambda: self._keeping.transport.atomically(work))
        return answer

    def start(self, call: Callable[[], None]) -> None:
        """See `Keeper`."""
        self._keeping.start(lambda: self._surrounded(call))

    def leave(self, running: Future[Any]) -> None:
        """See `Keeper`."""
        self._keeping.leave(running)

    def _surrounded(self, call: Callable[[], None]) -> None:
        with self._keeping.transport.body_scope(self._lease):
            call()

    def _answered(self, call: Callable[[], Answered]) -> Answered:
        backoff = LeaseBackoff()
        while True:
            try:
                return call()
            except (Unavailable, SessionLost) as error:
                self._wait(error, backoff)
            except Rejected as error:
                self._keeping.crashed(error)  # the server refuses this worker for good: it ends, and says why
                self._cancelled.fire(Why.SHUTDOWN)
                raise Unwound(str(error)) from error

    def _wait(self, error: Unavailable | SessionLost, backoff: LeaseBackoff) -> None:
        wait = backoff.next(getattr(error, "retry_after", None))
        self._keeping.listener.warning(
            f"step {self._lease.step} of run {self._lease.run_id}: a result could not be stored ({error}); trying again in {wait:.1f} s"
        )
        if self._cancelled.wait(wait):
            raise Unwound("the body was told to stop while the server could not be reached") from error
