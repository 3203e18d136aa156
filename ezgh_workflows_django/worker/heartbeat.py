"""Keeps this worker's leases alive from a thread of this process, and takes in what the server answers.

The thread shares the bodies' GIL; `heartbeat_child` is the way that does not. Both fall silent when the worker's loop no longer stamps them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from .. import clock
from ..errors import SessionLost, Unavailable
from ..protocol.failures import Refused
from ..protocol.messages import Extension
from ..protocol.states import Refusal
from .backoff import LeaseBackoff
from .cancellation import Why
from .hands import Hands, Held
from .listener import Listener
from .transports.base import Transport

SILENT_AFTER: Final = 600.0
"""Seconds without a stamp of the worker's loop after which no heartbeat is sent: a dead worker's leases must not live."""


class Heartbeat(Protocol):
    """What the worker needs of its heartbeats, wherever they are sent from."""

    def begin(self, interval: float) -> None:
        """Send one call for all leases every `interval` seconds from now on; again with another interval after a new registration."""

    def hold(self, held: Sequence[Held]) -> None:
        """These leases are in hand; called before their bodies run."""

    def let_go(self, lease_ids: Sequence[str]) -> None:
        """These leases are in hand no more."""

    def progressed(self, held: Held) -> None:
        """A body has something to show, in `held.progress`."""

    def stamp(self) -> None:
        """The worker's loop is alive."""

    def wait_until_up(self, timeout: float) -> bool:
        """Whether leases would be kept alive from now on; blocks at most `timeout` seconds after `begin` for that."""

    def run(self) -> None:
        """A thread's work, until `close`."""

    def close(self) -> None:
        """Send no more."""


class Pulse:
    """What an answer to a heartbeat does to a lease in hand."""

    def __init__(self, hands: Hands, listener: Listener) -> None:
        self._hands = hands
        self._listener = listener

    def extended(self, lease_id: str, sent_at: float) -> None:
        """The lease lives on, counted from when the call was sent."""
        held = self._hands.get(lease_id)
        if held is not None:
            held.extend(sent_at)

    def refused(self, lease_id: str, refused: Refused) -> None:
        """The lease is lost: its body is told to stop, and is acknowledged once it has ended."""
        held = self._hands.get(lease_id)
        why = _WHY.get(refused.reason)
        if held is None or held.fired_at is not None:
            return
        if why is not None:
            self._listener.warning(f"step {held.lease.step} of run {held.lease.run_id} is told to stop, {refused.reason}: {refused.message}")
            held.fire(why)
        elif refused.reason != Refusal.ALREADY_APPLIED:  # that one is for the reporter, which is about to hear it too
            self._listener.error(f"the heartbeat of lease {lease_id} was refused, {refused.reason}: {refused.message}")

    def answered(self, answers: Sequence[Extension], sent_at: float) -> None:
        """Take in the answers to one call."""
        for answer in answers:
            if answer.refused is None:
                self.extended(answer.lease_id, sent_at)
            else:
                self.refused(answer.lease_id, answer.refused)


_WHY: Final = {Refusal.FENCED: Why.FENCED, "unknown_lease": Why.FENCED, Refusal.RUN_TERMINAL: Why.RUN_TERMINAL}


class ThreadHeartbeat:
    """Heartbeats from a thread of the worker's own process. `run` is that thread's work."""

    def __init__(self, transport: Transport, hands: Hands, listener: Listener, *, on_lost_session: Callable[[], object]) -> None:
        self._transport = transport
        self._hands = hands
        self._listener = listener
        self._on_lost_session = on_lost_session
        self._pulse = Pulse(hands, listener)
        self._backoff = LeaseBackoff()
        self._interval: float | None = None
        self._stamped_at = clock.monotonic()
        self._is_closing = False
        self._changed = threading.Event()

    def begin(self, interval: float) -> None:
        """See `Heartbeat`."""
        self._interval = interval
        self._changed.set()

    def hold(self, held: Sequence[Held]) -> None:
        """Nothing to do: each call looks into the worker's hands."""

    def let_go(self, lease_ids: Sequence[str]) -> None:
        """Nothing to do: each call looks into the worker's hands."""

    def progressed(self, held: Held) -> None:
        """Nothing to do: each call looks into the worker's hands."""

    def stamp(self) -> None:
        """See `Heartbeat`."""
        self._stamped_at = clock.monotonic()

    def wait_until_up(self, timeout: float) -> bool:
        """Always: the thread begins before the first claim."""
        return True

    def close(self) -> None:
        """End `run`."""
        self._is_closing = True
        self._changed.set()

    def run(self) -> None:
        """Send heartbeats until `close`."""
        wait = self._interval
        while not self._is_closing:
            if self._changed.wait(wait):
                self._changed.clear()
                wait = self._interval
            else:
                wait = self.run_once(clock.monotonic())

    def run_once(self, now: float) -> float | None:
        """Send one call for all leases in hand; gives the seconds until the next one."""
        beats = self._hands.beats()
        if not beats or self._is_silent(now):
            return self._interval
        try:
            answers = self._transport.heartbeat(beats)
        except (Unavailable, SessionLost) as error:
            return self._wait_after(error)
        self._backoff.reset()
        self._pulse.answered(answers, now)
        return self._interval

    def _wait_after(self, error: Unavailable | SessionLost) -> float:
        if isinstance(error, SessionLost):
            self._on_lost_session()
        wait = self._backoff.next(getattr(error, "retry_after", None))
        self._listener.warning(f"a heartbeat could not be sent ({error}); trying again in {wait:.1f} s")
        return wait

    def _is_silent(self, now: float) -> bool:
        return now - self._stamped_at > SILENT_AFTER
