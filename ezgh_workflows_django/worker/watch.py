"""Time, as far as the worker judges it: bodies past their timeout, leases that can't be this worker's any more.

`run_once` does one look; `run` looks when something is due. Uses the worker's monotonic clock only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .. import clock
from ..protocol.outcomes import Outcome
from ..protocol.states import FailureClass
from .bodies import Runner
from .cancellation import Why
from .failures import timed_out
from .hands import Hands, Held, Phase
from .listener import Listener
from .reporter import Reporter

GRACE: Final = 1.0
"""Seconds that a body is given to end by itself once it was told that its time is up."""

CONFIRM: Final = 1.0
"""Seconds between the two looks that must agree before a lease is taken for lost: a body that held the GIL delays the news of heartbeats, too."""

LONGEST_SLEEP: Final = 60.0


@dataclass(frozen=True, slots=True)
class Stuck:
    """How many threads are lost to bodies that ignored their timeout, and whether any is left to work with."""

    count: int
    is_exhausted: bool


class Watch:
    """Tells bodies to stop, and goes on without those that do not. `lease_life` gives the seconds a lease lives after its last extension."""

    def __init__(
        self,
        hands: Hands,
        bodies: Runner,
        reporter: Reporter,
        listener: Listener,
        *,
        lease_life: Callable[[], float],
        on_stuck: Callable[[Stuck], object],
        grace: float = GRACE,
    ) -> None:
        self._hands = hands
        self._bodies = bodies
        self._reporter = reporter
        self._listener = listener
        self._lease_life = lease_life
        self._on_stuck = on_stuck
        self._grace = grace
        self._is_closing = False
        self._wakes_at = 0.0
        self._changed = threading.Condition()

    def began(self, held: Held) -> None:
        """A body begins: look in time for what it is due for."""
        if self._due(held) < self._wakes_at:
            self.wake()

    def wake(self) -> None:
        """Look at once."""
        with self._changed:
            self._wakes_at = 0.0
            self._changed.notify()

    def close(self) -> None:
        """End `run`."""
        self._is_closing = True
        self.wake()

    def run(self) -> None:
        """Look whenever something is due, until `close`."""
        while not self._is_closing:
            with self._changed:
                self._wakes_at = clock.monotonic() + LONGEST_SLEEP
            due = self.run_once(clock.monotonic())
            with self._changed:
                if self._is_closing or not self._wakes_at:
                    continue
                self._wakes_at = min(self._wakes_at, due)
                self._changed.wait(max(0.0, self._wakes_at - clock.monotonic()))

    def run_once(self, now: float) -> float:
        """Do what is due at `now`; gives the moment of the next thing due."""
        due = now + LONGEST_SLEEP
        for held in self._hands.running():
            self._look_at(held, now)
            if held.phase is Phase.RUNNING:
                due = min(due, self._due(held))
        return due

    def _look_at(self, held: Held, now: float) -> None:
        if held.fired_at is None:
            self._look_at_lease(held, now)
        if now < _times_out_at(held):
            return
        held.fire(Why.TIMEOUT)
        if held.fired_at is not None and now >= max(held.fired_at, _times_out_at(held)) + self._grace:
            self.leave(held, timed_out(held.lease, body_ended=False, context=held.context))

    def _look_at_lease(self, held: Held, now: float) -> None:
        if now < held.extended_at + self._lease_life():
            return
        if held.suspected_at is None:
            held.suspected_at = now
        elif now >= held.suspected_at + CONFIRM:
            self._listener.warning(
                f"step {held.lease.step} of run {held.lease.run_id}: no heartbeat has landed for {now - held.extended_at:.0f} s; its body is told to stop"
            )
            held.fire(Why.CUT_OFF)

    def leave(self, held: Held, outcome: Outcome) -> None:
        """Settle an attempt without its body, which goes on. Does nothing where the body has just ended."""
        if not self._hands.leave(held):
            return
        if not self._bodies.leave(held):
            self._reporter.tell(held, Outcome.returned("no thread came free for the body; it did not run"))
        elif held.cancelled.why in LOST:
            self._hands.drop([held])
        else:
            self._reporter.tell(held, outcome)
        self._on_stuck(Stuck(self._bodies.stuck, self._bodies.is_exhausted))

    def hand_back(self, held: Held) -> None:
        """The worker stops and the body does not: its attempt is given back, its body left to the end of the process."""
        used, spans = held.context.usage, held.context.spans
        self.leave(held, Outcome.failed(FailureClass.RETURNED, "the worker stopped before the body ended", body_ended=False, usage=used, spans=spans))

    def _due(self, held: Held) -> float:
        """When this body is next to be looked at."""
        timeout = _times_out_at(held)
        if held.fired_at is not None:
            return max(held.fired_at, timeout) + self._grace
        lost = held.extended_at + self._lease_life() if held.suspected_at is None else held.suspected_at + CONFIRM
        return min(timeout, lost)


LOST: Final = frozenset({Why.FENCED, Why.RUN_TERMINAL})
"""Reasons after which the server wants no outcome of this lease."""


def _times_out_at(held: Held) -> float:
    return float("inf") if held.lease.timeout_ms is None else held.started_at + held.lease.timeout_ms / 1000
