"""Tells the server how bodies ended, in groups, until each outcome has landed or is refused. Decides nothing about retries of steps."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from .. import clock
from ..errors import SessionLost, Unavailable
from ..protocol.failures import Refused
from ..protocol.outcomes import Answer, Outcome, Report
from ..protocol.states import FailureClass, Refusal
from .backoff import LeaseBackoff
from .cancellation import Why
from .failures import timed_out
from .hands import Hands, Held, Phase
from .listener import Listener
from .transports.base import Transport

WINDOW: Final = 0.002
"""Seconds that an outcome waits at most for others, while other bodies are at work."""

MAX_GROUP: Final = 100
"""Outcomes in one call at most."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """One outcome on its way. `seconds` is how long the body took; `is_late` marks a mere acknowledgement, which is expected to be refused.

    `is_corrected` says that this one stands for another that could not be stored.
    """

    held: Held
    outcome: Outcome
    seconds: float
    is_late: bool = False
    is_corrected: bool = False


class Reporter:
    """Takes outcomes from any thread; sends them from its own (`run`)."""

    def __init__(
        self, transport: Transport, hands: Hands, listener: Listener, *, on_landed: Callable[[Sequence[str]], object], on_lost_session: Callable[[], object]
    ) -> None:
        self._transport = transport
        self._hands = hands
        self._listener = listener
        self._on_landed = on_landed
        self._on_lost_session = on_lost_session
        self._pending: deque[_Ending] = deque()
        self._sending = 0
        self._is_closing = False
        self._has_given_up = False
        self._changed = threading.Condition()

    def ended(self, held: Held, outcome: Outcome, answer: Answer | None = None) -> None:
        """A body is over. What it brought counts unless it was left behind, or had been told to stop for another reason than a long outage.

        With an `answer` the outcome has landed, in one transaction with the body.
        """
        if answer is not None:
            self._landed_already(held, outcome, answer)
        elif self._hands.end(held):
            self.tell(held, _settled(held, outcome))
        else:
            self._put(_Ending(held, Outcome.returned("the body that was left behind has ended"), _seconds(held), is_late=True))

    def tell(self, held: Held, outcome: Outcome) -> None:
        """Send an outcome; the caller has settled the lease's phase."""
        self._put(_Ending(held, outcome, _seconds(held)))

    def run(self) -> None:
        """Send what comes, until `close`. Raises `Rejected`, and whatever is a bug."""
        try:
            self._send_all()
        finally:
            self.close(give_up=True)  # nobody shall wait for what can't be sent any more

    def wait_until_sent(self, timeout: float) -> bool:
        """Block until nothing is on its way, at most `timeout` seconds; says whether that was reached."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_idle() or self._has_given_up, timeout)
            return self._is_idle()

    def close(self, *, give_up: bool = False) -> None:
        """End `run` once all is sent; with `give_up`, without waiting for that."""
        with self._changed:
            self._is_closing = True
            self._has_given_up = give_up
            self._changed.notify_all()

    def _send_all(self) -> None:
        backoff = LeaseBackoff()
        while group := self._gather():
            try:
                answers = self._transport.report([Report(ending.held.lease.id, ending.outcome) for ending in group])
            except (Unavailable, SessionLost) as error:
                self._again(group, error, backoff)
                continue
            if unanswered := self._landed(group, answers):
                self._again(unanswered, Unavailable("the server did not answer for their leases"), backoff)
            else:
                backoff.reset()

    def _is_idle(self) -> bool:
        return not self._pending and not self._sending

    def _put(self, ending: _Ending) -> None:
        with self._changed:
            self._pending.append(ending)
            self._changed.notify_all()

    def _gather(self) -> list[_Ending]:
        """The next group; empty when it is time to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._is_closing)
            if 0 < len(self._pending) < self._hands.occupied and not self._is_closing:
                self._changed.wait_for(lambda: len(self._pending) >= self._hands.occupied, WINDOW)
            if self._has_given_up:
                return []
            group = [self._pending.popleft() for _ in range(min(MAX_GROUP, len(self._pending)))]
            self._sending = len(group)
            return group

    def _again(self, group: list[_Ending], error: Unavailable | SessionLost, backoff: LeaseBackoff) -> None:
        """Put a group back at the front, and wait: a finished body is never run again because of a lost reply."""
        if isinstance(error, SessionLost):
            self._on_lost_session()
        wait = backoff.next(getattr(error, "retry_after", None))
        self._listener.warning(f"{len(group)} outcomes could not be sent ({error}); trying again in {wait:.1f} s")
        with self._changed:
            self._pending.extendleft(reversed(group))
            self._sending = 0
            self._changed.wait_for(lambda: self._has_given_up, wait)

    def _landed(self, group: Sequence[_Ending], answers: Sequence[Answer]) -> list[_Ending]:
        """Be done with what was answered; gives the endings that were not, which are on their way still."""
        by_lease = {answer.lease_id: answer for answer in answers}
        answered = [(ending, by_lease[ending.held.lease.id]) for ending in group if ending.held.lease.id in by_lease]
        corrected = [again for again in (_corrected(ending, answer) for ending, answer in answered) if again is not None]
        over = [ending.held for ending, _ in answered if all(ending.held is not again.held for again in corrected)]
        self._hands.drop(over)
        self._on_landed([held.lease.id for held in over])
        for ending, answer in answered:
            self._speak(ending, answer)
        unanswered = [ending for ending in group if ending.held.lease.id not in by_lease]
        with self._changed:
            self._pending.extend(corrected)
            self._sending = len(unanswered)
            self._changed.notify_all()
        return unanswered

    def _landed_already(self, held: Held, outcome: Outcome, answer: Answer) -> None:
        self._hands.end(held)
        self._hands.drop([held])
        self._on_landed([held.lease.id])
        self._listener.finished(held.lease, outcome, _seconds(held), answer)

    def _speak(self, ending: _Ending, answer: Answer) -> None:
        refused = answer.refused
        if refused is None or (refused.reason == Refusal.ALREADY_APPLIED and not ending.is_late):
            self._listener.finished(ending.held.lease, ending.outcome, ending.seconds, answer)
        if refused is not None and not ending.is_late:
            self._speak_of(refused, ending)

    def _speak_of(self, refused: Refused, ending: _Ending) -> None:
        lease, outcome = ending.held.lease, ending.outcome
        named = f"{lease.workflow}/{lease.step} attempt {lease.attempt} of run {lease.run_id}"
        if refused.reason == Refusal.ALREADY_APPLIED:
            if _differs(refused, outcome):
                self._listener.warning(f"{named}: the server already has another outcome of this lease, which counts")
        elif refused.reason == Refusal.NOT_STARTED:
            self._listener.error(f"{named}: the server says that this attempt was never started; this is a bug in the worker: {refused.message}")
        elif refused.reason in EXPECTED:
            self._listener.warning(f"{named}: the outcome {outcome.class_ or outcome.status} was refused, {refused.reason}: {refused.message}")
        else:
            self._listener.error(f"{named}: the outcome {outcome.class_ or outcome.status} was refused, {refused.reason}: {refused.message}")


EXPECTED: Final = frozenset({Refusal.FENCED, Refusal.RUN_TERMINAL, "unknown_lease"})
"""Refusals that end an attempt without anything being wrong with the worker."""

INVALID: Final = frozenset({"invalid", "too_large", "payload_too_large"})
"""Refusals of the outcome itself: the step fails with the refusal's text instead."""

_TOLD_TO_STOP: Final = {
    Why.FENCED: "the lease was lost and the body has ended",
    Why.RUN_TERMINAL: "the run ended and the body has ended",
    Why.CUT_OFF: "the worker was cut off from the server for longer than its lease lived, and the body has ended",
    Why.SHUTDOWN: "the worker stopped; the body was told to and has ended",
}


def _settled(held: Held, outcome: Outcome) -> Outcome:
    """What counts as the outcome of a body that has just ended: not its own, where it had been told to stop.

    A worker that was only cut off may hold its lease still: what the body came to by itself is sent as it is, and the server decides.
    """
    why = held.cancelled.why
    if why is None or (why is Why.CUT_OFF and outcome.class_ != FailureClass.RETURNED):
        return outcome
    told = timed_out(held.lease, body_ended=True) if why is Why.TIMEOUT else Outcome.returned(_TOLD_TO_STOP[why])
    return replace(told, usage=outcome.usage, spans=outcome.spans)


def _corrected(ending: _Ending, answer: Answer) -> _Ending | None:
    """The outcome to send instead of one that the server can't store, if any: a failure with the same notes, or without any where they are to blame."""
    refused = answer.refused
    if refused is None or refused.reason not in INVALID or ending.is_late:
        return None
    told = ending.outcome
    if not ending.is_corrected:
        outcome = Outcome.failed(FailureClass.PERMANENT, refused.message, usage=told.usage, spans=told.spans)
    elif told.usage or told.spans:
        outcome = replace(told, usage=(), spans=())
    else:
        return None
    return _Ending(ending.held, outcome, ending.seconds, is_corrected=True)


def _differs(refused: Refused, outcome: Outcome) -> bool:
    stored = (refused.outcome or {}).get("status")
    return stored is not None and stored != outcome.ends_as


def _seconds(held: Held) -> float:
    return 0.0 if held.phase is Phase.TAKEN else max(0.0, clock.monotonic() - held.started_at)
