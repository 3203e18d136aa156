"""How many there were, and how times spread over fixed buckets. Pure; sums of sums are sums, so minutes add up to hours."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0, float("inf"))
"""The upper bounds of the buckets, in seconds: from what a claim takes to what a long run takes."""


@dataclass(slots=True)
class Sum:
    """`count` things; of times also their sum in milliseconds, and how many are in each bucket, by its upper bound."""

    count: int = 0
    total_ms: int = 0
    buckets: Counter[float] = field(default_factory=Counter)

    def tally(self) -> None:
        """One more thing that has no time."""
        self.count += 1

    def observe(self, time: timedelta) -> None:
        """One more time; one below zero, where two clocks disagreed, is zero."""
        seconds = max(0.0, time.total_seconds())
        self.count += 1
        self.total_ms += round(seconds * 1000)
        self.buckets[next(bound for bound in BOUNDS if seconds <= bound)] += 1

    def add(self, other: Sum) -> None:
        """Add another sum to this one."""
        self.count += other.count
        self.total_ms += other.total_ms
        self.buckets.update(other.buckets)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Each bound, and how many times are at most that long."""
        below = 0
        for bound in BOUNDS:
            below += self.buckets[bound]
            yield bound, below

    def quantile(self, share: float) -> float | None:
        """The time, in seconds, that this share of the times is within: even inside its bucket. None without times; beyond the last bound, that bound."""
        total = self.buckets.total()
        if not total:
            return None
        wanted, below, least = share * total, 0, 0.0
        for bound in BOUNDS:
            inside = self.buckets[bound]
            if inside and below + inside >= wanted:
                return least if bound == float("inf") else least + (bound - least) * (wanted - below) / inside
            below, least = below + inside, bound
        return least

    def buckets_text(self) -> str:
        """The buckets as they are stored."""
        return json.dumps({repr(bound): self.buckets[bound] for bound in BOUNDS if self.buckets[bound]})


def read(count: int, total_ms: int, buckets: str) -> Sum:
    """A sum as it is stored. Times in a bucket that a later version has no more are in the next wider one."""
    told: Mapping[str, int] = json.loads(buckets)
    found: Counter[float] = Counter()
    for text, inside in told.items():
        found[next(bound for bound in BOUNDS if float(text) <= bound)] += inside
    return Sum(count, total_ms, found)
