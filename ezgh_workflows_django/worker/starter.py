"""Between a claim and its bodies: says `started` for whole batches, and runs the bodies of those that were accepted, no others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final

from .. import clock
from ..errors import SessionLost, Unavailable
from ..protocol.failures import Refused
from ..protocol.messages import Extension
from ..protocol.outcomes import Outcome
from ..protocol.states import Refusal
from .backoff import LeaseBackoff
from .bodies import Runner
from .executor import unservable
from .hands import Hands, Held, Phase
from .listener import Listener
from .reporter import EXPECTED, Reporter
from .transports.base import Transport

MAX_GROUP: Final = 100
"""Leases in one call at most."""


class Starter:
    """Takes batches of claimed leases from any thread; starts them from its own (`run`). `on_begin` hears of each body that begins."""

    def __init__(
        self,
        transport: Transport,
        hands: Hands,
        bodies: Runner,
        reporter: Reporter,
        listener: Listener,
        stopping: threading.Event,
        *,
        on_begin: Callable[[Held], object],
        on_dropped: Callable[[Sequence[str]], object],
        on_lost_session: Callable[[], object],
    ) -> None:
        self._transport = transport
        self._hands = hands
        self._bodies = bodies
        self._reporter = reporter
        self._listener = listener
        self._stopping = stopping
        self._on_begin = on_begin
        self._on_dropped = on_dropped
        self._on_lost_session = on_lost_session
        self._batches: SimpleQueue[Sequence[Held] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_over = False

    def put(self, batch: Sequence[Held]) -> None:
        """Start these, soon; hand them back where `run` has ended. The leases are in hand already."""
        with self._lock:
            if not self._is_over:
                self._batches.put(batch)
                return
        self._hand_back(batch)

    def close(self) -> None:
        """End `run` once what was put before is dealt with."""
        self._batches.put(None)

    def run(self) -> None:
        """Start what comes, until `close`. Raises `Rejected`, and whatever is a bug; then nothing that was put stays in hand unstarted."""
        batch: list[Held] = []
        try:
            while batch := self._next():
                for held in batch:
                    if held.holding is None:
                        self._settle(held, unservable(held.lease))
                self._start([held for held in batch if held.holding is not None])
        finally:
            with self._lock:
                self._is_over = True
            self._hand_back([*batch, *self._rest()])

    def _next(self) -> list[Held]:
        """The next batches as one; empty when it is time to end."""
        batch = list(self._batches.get() or ())
        while batch and len(batch) < MAX_GROUP:
            try:
                more = self._batches.get_nowait()
            except Empty:
                break
            if more is None:
                self._batches.put(None)
                break
            batch += more
        return batch

    def _start(self, batch: Sequence[Held]) -> None:
        backoff = LeaseBackoff()
        while batch and not self._stopping.is_set():
            sent_at = clock.monotonic()
            try:
                answers = self._transport.started([held.lease.id for held in batch])
            except (Unavailable, SessionLost) as error:
                # The call may have landed. It is repeated, never given up: a body runs only once the server has said yes.
                self._wait(error, len(batch), backoff)
                continue
            self._answered(batch, answers, sent_at)
            return
        self._hand_back(batch)

    def _rest(self) -> list[Held]:
        """What was put and is not begun with."""
        rest: list[Held] = []
        while True:
            try:
                rest += self._batches.get_nowait() or ()
            except Empty:
                return rest

    def _hand_back(self, batch: Sequence[Held]) -> None:
        for held in batch:
            if held.phase is Phase.TAKEN:
                self._settle(held, Outcome.returned("the worker is stopping; the body did not run"))

    def _wait(self, error: Unavailable | SessionLost, count: int, backoff: LeaseBackoff) -> None:
        if isinstance(error, SessionLost):
            self._on_lost_session()
        wait = backoff.next(getattr(error, "retry_after", None))
        self._listener.warning(f"{count} steps could not be started ({error}); trying again in {wait:.1f} s")
        self._stopping.wait(wait)

    def _answered(self, batch: Sequence[Held], answers: Sequence[Extension], sent_at: float) -> None:
        by_lease = {answer.lease_id: answer for answer in answers}
        for held in batch:
            answer = by_lease.get(held.lease.id)
            refused = Refused("lost", "the server did not answer for this lease") if answer is None else answer.refused
            if refused is None:
                self._begin(held, sent_at)
            else:
                self._drop(held, refused)

    def _begin(self, held: Held, sent_at: float) -> None:
        held.extend(sent_at)
        self._hands.begin(held)
        self._on_begin(held)
        self._bodies.run(held)

    def _drop(self, held: Held, refused: Refused) -> None:
        """Forget a lease that is not ours to start; nothing ran, so there is nothing to acknowledge."""
        self._hands.end(held)
        self._hands.drop([held])
        self._on_dropped([held.lease.id])
        said = f"{held.lease.workflow}/{held.lease.step} of run {held.lease.run_id} was not started, {refused.reason}: {refused.message}"
        if refused.reason in EXPECTED or refused.reason == Refusal.ALREADY_APPLIED:
            self._listener.warning(said)
        else:
            self._listener.error(said)

    def _settle(self, held: Held, outcome: Outcome) -> None:
        if self._hands.end(held):
            self._reporter.tell(held, outcome)
