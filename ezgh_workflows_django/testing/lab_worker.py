"""A worker of a lab: the real calls of the protocol and the real executor, one body at a time, nothing in the background."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

from ..definitions.graph import Workflow
from ..engine import workers
from ..engine.direct import DirectEngine
from ..protocol.messages import Beat, ClaimRequest, Extension, Outcome, Registration, Report
from ..protocol.states import Refusal
from ..worker.cancellation import Why
from ..worker.executor import unservable
from ..worker.failures import timed_out
from ..worker.serving import Serving
from .turns import Turn

BATCH = 10

_numbers = itertools.count(1)
_WHY = {Refusal.RUN_TERMINAL: Why.RUN_TERMINAL}


class LabWorker:
    """One worker session. `turns` are its bodies that wait on `ctx`."""

    def __init__(self, name: str, workflows: Sequence[Workflow], app: str, now: Callable[[], datetime]) -> None:
        self.name = name
        self.turns: list[Turn] = []
        self.drops_reply = False
        self._now = now
        self._engine = DirectEngine()
        self._serving = Serving(workflows)
        registration = Registration(worker=name, app=app, definitions=self._serving.definitions(), sdk="lab")
        self._worker_id = self._engine.register(registration).worker_id
        self._heard_at = now()

    def work(self) -> bool:
        """Whatever this worker can do now: go on with bodies whose wait is over, claim and begin others. Says whether there was anything."""
        happened = [self._go_on(turn) for turn in list(self.turns)]
        return any(happened) | self._claim()

    def beat(self) -> None:
        """Heartbeats of every body at hand; one whose lease is lost is told to stop. The session itself is heard of."""
        workers.seen({uuid.UUID(self._worker_id): self._heard_at}, self._now())
        self._heard_at = self._now()
        if self.turns:
            for answer in self._engine.heartbeat([Beat(turn.lease.id, turn.progress) for turn in self.turns]):
                self._heed(answer)

    def moments(self) -> Iterator[datetime | None]:
        """When something of its bodies is due: a wait on `ctx` that ends, a timeout."""
        for turn in self.turns:
            yield turn.wakes_at
            yield _times_out_at(turn)

    def abandon(self) -> None:
        """Let go of everything, unsaid."""
        for turn in self.turns:
            turn.abandon()
        self.turns = []

    def _claim(self) -> bool:
        serves = self._serving.serves()
        request = ClaimRequest(worker_id=self._worker_id, claim_id=f"{self._worker_id}-{next(_numbers)}", max=BATCH, serves=serves)
        leases = self._engine.claim(request).leases
        if not leases:
            return False
        held = {lease.id: lease for lease in leases if self._serving.find(lease) is not None}
        self._report([Report(lease.id, unservable(lease)) for lease in leases if lease.id not in held])
        begun = [answer for answer in self._engine.started(list(held)) if answer.refused is None] if held else []
        for answer in begun:
            lease = held[answer.lease_id]
            turn = Turn(lease, self._serving.find(lease), self._now)
            self.turns.append(turn)
            self._take(turn)
        return True

    def _go_on(self, turn: Turn) -> bool:
        due = _times_out_at(turn)
        if due is not None and due <= self._now():
            turn.cancelled.fire(Why.TIMEOUT)
        if not turn.cancelled.is_set() and (turn.wakes_at is None or turn.wakes_at > self._now()):
            return False
        self._take(turn)
        return True

    def _take(self, turn: Turn) -> None:
        turn.take()
        if turn.has_ended or turn.cancelled.is_set():
            self.turns.remove(turn)
            self._report([Report(turn.lease.id, _outcome(turn))])
            if not turn.has_ended:
                turn.abandon()

    def _report(self, reports: list[Report]) -> None:
        if not reports:
            return
        self._engine.report(reports)
        if self.drops_reply:
            self.drops_reply = False
            self._engine.report(reports)

    def _heed(self, answer: Extension) -> None:
        if answer.refused is None:
            return
        turn = next(turn for turn in self.turns if turn.lease.id == answer.lease_id)
        turn.cancelled.fire(_WHY.get(Refusal(answer.refused.reason), Why.FENCED))


def _times_out_at(turn: Turn) -> datetime | None:
    if turn.lease.timeout_ms is None or turn.cancelled.is_set():
        return None
    return turn.started_at + timedelta(milliseconds=turn.lease.timeout_ms)


def _outcome(turn: Turn) -> Outcome:
    """What a body came to; once it was told to stop, what it brings no longer counts."""
    if not turn.cancelled.is_set() and turn.outcome is not None:
        return turn.outcome
    if turn.cancelled.why is Why.TIMEOUT:
        return timed_out(turn.lease, body_ended=turn.has_ended, context=turn.context)
    return Outcome.returned(f"the body was told to stop: {turn.cancelled.why}")
