"""One run of a worker, from its first call to its goodbye: builds the parts, starts their threads, and ends them in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from .. import clock
from ..errors import InvalidArgument, TransportError
from ..protocol.messages import Registration
from .bodies import Bodies, Runner
from .cancellation import Why
from .claims import Claims
from .executor import Middleware
from .hands import Hands
from .heartbeat import Heartbeat, ThreadHeartbeat
from .heartbeat_child import ProcessHeartbeat
from .keeper import MAX_LEFT, Keeping
from .listener import Guarded, Listener
from .processes import ProcessBodies
from .reporter import Reporter
from .serving import Serving
from .session import Session
from .shutdown import Cause, Inbox, Word
from .starter import Starter
from .tending import Tending
from .transports.base import Transport
from .transports.recipe import Recipe
from .watch import GRACE, Stuck, Watch
from .wear import Limits

SEND_PATIENCE: Final = 10.0
"""Seconds that a worker which ends goes on trying to send outcomes, at least."""

JOIN_PATIENCE: Final = 2.0
"""Seconds that a thread which was told to end is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a worker runs under. `grace` is in seconds; `heartbeat` is "thread" or "process"; `recipe` builds the latter's transport.

    With more than one of `processes`, each body has one of its own, which `home` tells what to run and `limits` how long to live.
    """

    registration: Registration
    grace: float
    middleware: tuple[Middleware, ...]
    heartbeat: str
    recipe: Recipe | None
    maintenance: bool
    until_idle: bool
    processes: int = 1
    home: Recipe | None = None
    limits: Limits = field(default_factory=Limits)


class Shift:
    """The parts of a running worker. `start` returns at once; `end` blocks until all is over. `inbox` hears of reasons to end."""

    def __init__(self, transport: Transport, serving: Serving, terms: Terms, listener: Listener, inbox: Inbox) -> None:
        self._transport = transport
        self._terms = terms
        self._inbox = inbox
        self._stopping = threading.Event()
        self._draining = threading.Event()
        self._ending = threading.Event()
        self._listener = listener = Guarded(listener)
        self.hands = hands = Hands(terms.registration.concurrency)
        self.heartbeat = heartbeat = self._heartbeat()
        self._session = session = Session(transport, terms.registration, heartbeat, listener)
        self._reporter = reporter = Reporter(transport, hands, listener, on_landed=heartbeat.let_go, on_lost_session=session.lost)
        self.bodies = bodies = self._runner()
        self._watch = watch = Watch(hands, bodies, reporter, listener, lease_life=lambda: session.lease_life, on_stuck=self._stuck)
        self._starter = starter = Starter(
            transport, hands, bodies, reporter, listener, self._stopping, on_begin=watch.began, on_dropped=heartbeat.let_go, on_lost_session=session.lost
        )
        self._claims = Claims(
            transport,
            session,
            serving,
            hands,
            bodies,
            starter,
            reporter,
            heartbeat,
            listener,
            self._stopping,
            until_idle=terms.until_idle,
            tends=terms.maintenance,
        )
        self._tending = Tending(transport, listener) if terms.maintenance else None
        self._threads: dict[str, threading.Thread] = {}

    def start(self) -> None:
        """Start every thread."""
        self._spawn("reporter", self._reporter.run)
        self._spawn("watch", self._watch.run)
        self._spawn("starter", self._starter.run)
        self._spawn("heartbeat", self.heartbeat.run)
        if self._tending is not None:
            self._spawn("maintenance", self._tending.run)
        self._spawn("claims", self._claim)

    def drain(self) -> None:
        """Take no more work. The inbox hears `IDLE` once what runs has ended, however long that takes; `end` is still to be called."""
        self._draining.set()
        self._stopping.set()
        self.hands.wake()
        self._transport.interrupt()

    def end(self) -> None:
        """Take no more work, give running bodies the grace period, send what is to be sent, say goodbye."""
        until = clock.monotonic() + self._terms.grace
        self._ending.set()
        self._stopping.set()
        self._listener.stopping(self.hands.occupied, self._terms.grace)
        self.hands.wake()
        self._transport.interrupt()
        self._wait_for_bodies(until)
        self._join("claims", max(JOIN_PATIENCE, until - clock.monotonic()))
        self._starter.close()
        self._join("starter", JOIN_PATIENCE)
        if not self._reporter.wait_until_sent(max(SEND_PATIENCE, until - clock.monotonic())):
            self._listener.error("the outcomes of some bodies could not be sent; their leases will be reclaimed")
            self._inbox.put(Word(Cause.UNSENT))
        self._close()

    def _wait_for_bodies(self, until: float) -> None:
        """Heartbeats go on meanwhile, so a cancel still reaches a body, and its lease lives to the end."""
        if self._wait_until_free(until):
            return
        running = self.hands.running()
        for held in running:
            held.fire(Why.SHUTDOWN)
        self._wait_until_free(clock.monotonic() + GRACE)
        for held in running:
            self._watch.hand_back(held)

    def _wait_until_free(self, until: float) -> bool:
        while (left := until - clock.monotonic()) > 0:
            if self.hands.wait_until_free(min(left, 1.0)):
                return True
            self.heartbeat.stamp()  # the claim loop, which did so, has ended
            self._listener.alive()
        return self.hands.occupied == 0

    def _close(self) -> None:
        self.heartbeat.close()
        self._watch.close()
        self._reporter.close(give_up=True)
        if self._tending is not None:
            self._tending.close()
        self._leave()
        for name in self._threads:
            self._join(name, JOIN_PATIENCE)
        self.bodies.close(JOIN_PATIENCE)
        self._transport.release()
        self._transport.close()
        self._listener.ended()

    def _leave(self) -> None:
        if self._session.worker_id is None:
            return
        try:
            self._transport.leave(self._session.worker_id)
        except TransportError as error:
            self._listener.warning(f"the worker could not say goodbye: {error}")

    def _claim(self) -> None:
        self._claims.run()
        while self._draining.is_set() and not self._ending.is_set() and not self.hands.wait_until_free(1.0):
            self.heartbeat.stamp()  # the claim loop, which did so, has ended
            self._listener.alive()
        self._inbox.put(Word(Cause.IDLE))

    def _stuck(self, stuck: Stuck) -> None:
        if stuck.count:
            self._listener.warning(f"{stuck.count} threads are stuck in bodies that did not stop at their timeout")
        if stuck.is_exhausted:
            self._crash(RuntimeError("every thread is stuck in a body that did not stop at its timeout: the worker ends, so that another can take its place"))

    def _runner(self) -> Runner:
        transport, terms = self._transport, self._terms
        if terms.processes > 1 and terms.home is not None:
            ended, release = self._reporter.ended, transport.release
            return ProcessBodies(terms.processes, terms.home, limits=terms.limits, on_end=ended, on_crash=self._crash, release=release)
        return Bodies(
            self.hands.size,
            scope=transport.body_scope,
            middleware=terms.middleware,
            on_end=self._reporter.ended,
            on_crash=self._crash,
            release=transport.release,
            keeping=Keeping(transport, self._listener, on_crash=self._crash, bound=max(MAX_LEFT, 10 * self.hands.size)),
        )

    def _heartbeat(self) -> Heartbeat:
        if self._terms.heartbeat == "thread":
            return ThreadHeartbeat(self._transport, self.hands, self._listener, on_lost_session=lambda: self._session.lost())
        if self._terms.recipe is None:
            raise InvalidArgument("heartbeat", 'heartbeat="process" needs to know how to build the transport again: this one has no recipe')
        return ProcessHeartbeat(self._terms.recipe, self.hands, self._listener, on_lost_session=lambda: self._session.lost())

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._supervised, args=(name, work), name=f"workflows-{name}", daemon=True)
        self._threads[name] = thread
        thread.start()

    def _supervised(self, name: str, work: Callable[[], None]) -> None:
        """One of the worker's own threads: an error in it ends the worker, which must never live on deaf (case B40)."""
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the worker ends with it, and says why
            self._crash(error)
        finally:
            self._transport.release()

    def _crash(self, error: BaseException) -> None:
        self._inbox.put(Word(Cause.CRASH, error))

    def _join(self, name: str, timeout: float) -> None:
        if name in self._threads:
            self._threads[name].join(max(0.0, timeout))
