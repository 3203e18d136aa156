"""A worker of a lab: the real calls of the protocol and the real executor, one body at a time, nothing in the background."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from ..conf import app_settings
from ..definitions.graph import Workflow
from ..engine import leases, outcomes, progress, workers
from ..engine.transactions import database
from ..models import Lease as LeaseRow
from ..protocol.messages import Beat, ClaimRequest, Extension, Lease, Registration
from ..protocol.outcomes import Answer, Outcome, Report
from ..protocol.states import FailureClass, Refusal
from ..worker.cancellation import Why
from ..worker.executor import unservable
from ..worker.failures import timed_out
from ..worker.reporter import INVALID
from ..worker.serving import Serving
from .turns import Turn

_numbers = itertools.count(1)
_WHY: Final[Mapping[str, Why]] = {Refusal.RUN_TERMINAL: Why.RUN_TERMINAL}


@dataclass(slots=True)
class Line:
    """What the workers of one lab share: its clock, and whether the next answer to an outcome gets lost."""

    now: Callable[[], datetime]
    drops_reply: bool = False


class LabWorker:
    """One worker session. `turns` are its bodies that wait on `ctx`."""

    def __init__(self, name: str, workflows: Sequence[Workflow], app: str, line: Line) -> None:
        self.name = name
        self.turns: list[Turn] = []
        self._line = line
        self._serving = Serving(workflows)
        self.session = workers.register(Registration(worker=name, app=app, definitions=self._serving.definitions(), sdk="lab")).worker_id
        self._heard_at = line.now()

    def work(self) -> bool:
        """Whatever this worker can do now: go on with bodies whose wait is over, claim and begin others. Says whether there was anything."""
        happened = [self._go_on(turn) for turn in list(self.turns)]
        return any(happened) | self._claim()

    def beat(self) -> bool:
        """Heartbeats of every body at hand; one whose lease is lost is told to stop. The session itself is heard of. Says whether any was told."""
        workers.seen({uuid.UUID(self.session): self._heard_at}, self._line.now())
        self._heard_at = self._line.now()
        answers = leases.heartbeat([Beat(turn.lease.id, turn.progress) for turn in self.turns]) if self.turns else ()
        told = [self._heed(answer) for answer in answers]
        return any(told)

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
        claim_id = f"{self.session}-{next(_numbers)}"
        request = ClaimRequest(worker_id=self.session, claim_id=claim_id, max=app_settings.MAX_CLAIM, serves=self._serving.serves())
        claimed = leases.claim(request).leases
        for lease in _in_order(claimed):
            self._begin(lease)
        return bool(claimed)

    def _begin(self, lease: Lease) -> None:
        holding = self._serving.find(lease)
        if holding is None:
            self._report(lease, unservable(lease))
            return
        [answer] = leases.started([lease.id])  # one by one: a step before this one may have ended the run
        if answer.refused is None:
            turn = Turn(lease, holding, self._line.now)
            self.turns.append(turn)
            self._take(turn)

    def _go_on(self, turn: Turn) -> bool:
        due = _times_out_at(turn)
        if due is not None and due <= self._line.now():
            turn.cancelled.fire(Why.TIMEOUT)
        if not turn.cancelled.is_set() and (turn.wakes_at is None or turn.wakes_at > self._line.now()):
            return False
        self._take(turn)
        return True

    def _take(self, turn: Turn) -> None:
        turn.take()
        if turn.has_ended:
            self.turns.remove(turn)
            if turn.answer is None:
                self._report(turn.lease, _outcome(turn))

    def _report(self, lease: Lease, outcome: Outcome) -> None:
        """As a worker does: again where the answer was lost, and as a failure where the outcome can't be stored."""
        answer = self._post(lease, outcome)
        if answer.refused is not None and answer.refused.reason in INVALID:
            self._post_corrected(lease, Outcome.failed(FailureClass.PERMANENT, answer.refused.message, usage=outcome.usage, spans=outcome.spans))

    def _post_corrected(self, lease: Lease, outcome: Outcome) -> None:
        answer = self._post(lease, outcome)
        if answer.refused is not None and answer.refused.reason in INVALID:
            self._post(lease, replace(outcome, usage=(), spans=()))

    def _post(self, lease: Lease, outcome: Outcome) -> Answer:
        [answer] = outcomes.report([Report(lease.id, outcome)])
        if self._line.drops_reply:
            self._line.drops_reply = False
            outcomes.report([Report(lease.id, outcome)])
        return answer

    def _heed(self, answer: Extension) -> bool:
        """Tell the body whose lease was refused; says whether it had not been told before."""
        if answer.refused is None:
            return False
        [turn] = [turn for turn in self.turns if turn.lease.id == answer.lease_id]
        return turn.cancelled.fire(_WHY.get(answer.refused.reason, Why.FENCED))


def _in_order(claimed: Sequence[Lease]) -> list[Lease]:
    """As claims are ordered, those of one moment as their steps were made: claims begin at a partition of chance, and a test must not."""
    rows = LeaseRow.objects.using(database()).filter(pk__in=[lease.id for lease in claimed])
    known = rows.values_list("pk", "step__available_at", "offered_at", "run__priority", "step_id") if claimed else ()
    place = {str(pk): (progress.claim_order(available_at or offered_at, priority), step_id) for pk, available_at, offered_at, priority, step_id in known}
    return sorted(claimed, key=lambda lease: place[lease.id])


def _times_out_at(turn: Turn) -> datetime | None:
    if turn.lease.timeout_ms is None or turn.cancelled.is_set():
        return None
    return turn.started_at + timedelta(milliseconds=turn.lease.timeout_ms)


def _outcome(turn: Turn) -> Outcome:
    """What a body came to; once it was told to stop, what it brings no longer counts."""
    if not turn.cancelled.is_set() and turn.outcome is not None:
        return turn.outcome
    if turn.cancelled.why is Why.TIMEOUT:
        return timed_out(turn.lease, body_ended=True, context=turn.context)
    return Outcome.returned(f"the body was told to stop: {turn.cancelled.why}", usage=turn.context.usage, spans=turn.context.spans)
