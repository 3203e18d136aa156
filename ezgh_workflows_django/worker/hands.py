"""The leases in this worker's hands: which, in what phase, how many bodies run. One lock decides who says how an attempt ended.

Talks to no server and runs no body; the others ask it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Any

from .. import clock
from ..protocol.messages import Beat, Lease
from .cancellation import Cancelled, Why
from .context import Context
from .serving import Holding


class Phase(Enum):
    """How far an attempt is."""

    TAKEN = auto()  # claimed, its body has not begun
    RUNNING = auto()
    LEFT = auto()  # its outcome was settled while its body goes on
    ENDED = auto()  # its body is over, or never ran


class Held:
    """One lease in hand. Moments are those of the worker's clock, in seconds.

    `extended_at` is when the last call that surely extended the lease was sent, `fired_at` when its body was told to stop, `suspected_at`
    when it first looked as if the lease could no longer be this worker's.
    """

    __slots__ = ("_on_progress", "cancelled", "context", "extended_at", "fired_at", "holding", "lease", "phase", "progress", "started_at", "suspected_at")

    def __init__(self, lease: Lease, holding: Holding | None, taken_at: float, on_progress: Callable[[Held], object] | None = None) -> None:
        self.lease = lease
        self.holding = holding
        self.cancelled = Cancelled()
        self.context = Context(lease, cancelled=self.cancelled, on_progress=self._show)
        self.extended_at = taken_at
        self.started_at = taken_at
        self.fired_at: float | None = None
        self.suspected_at: float | None = None
        self.phase = Phase.TAKEN
        self.progress: Any = None
        self._on_progress = on_progress
        self.cancelled.on_fire(self._fired)  # its own words may fire it, too

    def fire(self, why: Why) -> None:
        """Tell the body to stop; only the first reason counts."""
        self.cancelled.fire(why)

    def extend(self, sent_at: float) -> None:
        """A call that extended the lease was sent then."""
        self.extended_at = max(self.extended_at, sent_at)
        self.suspected_at = None

    def _fired(self) -> None:
        self.fired_at = clock.monotonic()

    def _show(self, progress: Any) -> None:
        self.progress = progress
        if self._on_progress is not None:
            self._on_progress(self)


class Hands:
    """All leases in hand, up to `size` bodies at once. A lease stays in hand until its outcome has landed, or was refused."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._held: dict[str, Held] = {}
        self._occupied = 0
        self._changes = 0
        self._is_woken = False
        self._changed = threading.Condition()

    def take(self, held: Iterable[Held]) -> None:
        """Leases were claimed: each takes up a body's place."""
        with self._changed:
            for one in held:
                self._held[one.lease.id] = one
                self._occupied += 1

    def begin(self, held: Held) -> None:
        """Its body is about to run."""
        with self._changed:
            held.phase = Phase.RUNNING
            held.started_at = clock.monotonic()

    def end(self, held: Held) -> bool:
        """Its body is over. Says whether the outcome is still to be told: False where it was settled without the body."""
        return self._settle(held, Phase.ENDED)

    def leave(self, held: Held) -> bool:
        """Go on without waiting for its body. Says whether this was in time: False where the body has just ended."""
        return self._settle(held, Phase.LEFT)

    def drop(self, held: Iterable[Held]) -> None:
        """Their outcomes have landed or were refused: they need no heartbeat any more."""
        with self._changed:
            for one in held:
                self._held.pop(one.lease.id, None)
            self._notify()

    def get(self, lease_id: str) -> Held | None:
        """The lease of that id, while it is in hand."""
        return self._held.get(lease_id)

    def all(self) -> Sequence[Held]:
        """Every lease in hand."""
        with self._changed:
            return list(self._held.values())

    def running(self) -> Sequence[Held]:
        """Those whose body is at work and whose outcome is not settled."""
        return [held for held in self.all() if held.phase is Phase.RUNNING]

    def beats(self) -> Sequence[Beat]:
        """One heartbeat for each lease in hand."""
        return [Beat(held.lease.id, held.progress) for held in self.all()]

    @property
    def occupied(self) -> int:
        """How many bodies are taken on and not over."""
        return self._occupied

    @property
    def is_empty(self) -> bool:
        """Whether no lease is in hand: nothing runs, nothing is to be reported."""
        return not self._held

    def wait_for_room(self, timeout: float) -> int:
        """How many more bodies there is room for; blocks at most `timeout` seconds, or until `wake`, while there is none."""
        with self._changed:
            if self._room() <= 0 and not self._is_woken:
                self._changed.wait_for(lambda: self._room() > 0 or self._is_woken, timeout)
            return self._room()

    def gather_room(self, enough: int, timeout: float) -> int:
        """As `wait_for_room`, for a little more room: bodies that end within moments of each other are replaced by one claim."""
        with self._changed:
            if 0 < self._room() < enough:
                self._changed.wait_for(lambda: self._room() >= enough or self._is_woken, timeout)
            return self._room()

    def wait_until_free(self, timeout: float) -> bool:
        """Block until no body is at work or waits to be, at most `timeout` seconds; says whether that was reached."""
        with self._changed:
            return self._changed.wait_for(lambda: self._occupied == 0, timeout)

    def wait_for_change(self, seen: int, timeout: float) -> None:
        """Block until something was dropped or ended since `changes` was `seen`, at most `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes != seen, timeout)

    @property
    def changes(self) -> int:
        """A number that grows with each end and each drop."""
        return self._changes

    def wake(self) -> None:
        """End the waits for room or for a change, now and from now on (shutdown)."""
        with self._changed:
            self._is_woken = True
            self._notify()

    def _settle(self, held: Held, phase: Phase) -> bool:
        with self._changed:
            if held.phase in (Phase.LEFT, Phase.ENDED):
                return False
            held.phase = phase
            self._occupied -= 1
            self._notify()
            return True

    def _room(self) -> int:
        # Outcomes that will not land count too, or a server that gives and never takes would fill the memory.
        return min(self.size - self._occupied, 3 * self.size - len(self._held))

    def _notify(self) -> None:
        self._changes += 1
        self._changed.notify_all()
