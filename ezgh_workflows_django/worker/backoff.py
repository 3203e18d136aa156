"""How long to wait before trying again. Counts failures; sleeps nowhere."""

from __future__ import annotations

import random
from typing import Final

LONGEST_RETRY_AFTER: Final = 600.0
"""Seconds of a server's `Retry-After` that are honoured at most; a mistaken header must not silence a worker for a day."""


class Backoff:
    """Waits that double from `first` to `cap` seconds, each cut by up to half at random so that a fleet does not return in step."""

    def __init__(self, *, first: float = 0.25, cap: float = 30.0) -> None:
        self._first = first
        self._cap = cap
        self.failures = 0

    def next(self, retry_after: float | None = None) -> float:
        """Seconds to wait after one more failure: what the server asked for, then the back-off."""
        # The exponent is bounded: a power overflows a float after a thousand failures (case B12).
        longest = min(self._cap, self._first * 2.0 ** min(self.failures, 32))
        self.failures += 1
        asked = min(max(retry_after or 0.0, 0.0), LONGEST_RETRY_AFTER)
        return asked + longest * (0.5 + random.random() / 2)  # noqa: S311 - spreads workers, guards nothing

    def reset(self) -> None:
        """A call succeeded: the next failure waits `first` seconds again."""
        self.failures = 0


class LeaseBackoff(Backoff):
    """The same, for calls that a lease depends on: never over 5 seconds in all, whatever the server asks for."""

    LONGEST: Final = 5.0

    def __init__(self) -> None:
        super().__init__(first=0.1, cap=self.LONGEST)

    def next(self, retry_after: float | None = None) -> float:
        """Seconds to wait after one more failure, at most 5."""
        return min(self.LONGEST, super().next(retry_after))
