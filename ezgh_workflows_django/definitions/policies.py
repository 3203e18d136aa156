"""The policies of steps and workflows, as values. What is wrong with one is said by `validation`, never by a constructor."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from ..protocol.states import HOPELESS_CLASSES
from .durations import Duration, milliseconds
from .starts import MISSING

Key = str | int | UUID
"""A literal key; kept as text."""


@dataclass(frozen=True, slots=True)
class RunView:
    """What a key callable is given of its run. `payload` is a plain JSON value (`None` where there is none)."""

    id: str
    workflow: str
    payload: Any
    labels: Mapping[str, str]
    correlation_id: str


KeyCallable = Callable[[RunView], Key]


@dataclass(frozen=True)
class Retry:
    """How often a step is tried, and how long it rests in between.

    `initial` and `maximum` are timedeltas or seconds; each delay is the last one times `factor`, spread by ± `jitter` of itself.
    `on` is "any" (all classes that can succeed) or the classes that are retried, "any" not among them; `exhausted` is "fail" or "pause", which
    only a step of a graph or a durable function as a whole can, no inner step of one.
    """

    max_attempts: int = 1
    initial: Duration = timedelta(seconds=1)
    factor: float = 2
    maximum: Duration = timedelta(minutes=5)
    jitter: float = 0.1
    on: str | Collection[str] = "any"
    exhausted: str = "fail"

    def covers(self, class_: str) -> bool:
        """Whether a failure of that class may be retried at all."""
        if class_ in HOPELESS_CLASSES:
            return False
        return class_ == self.on or self.on == "any" if isinstance(self.on, str) else class_ in self.on

    def delay_ms(self, failures: int, random: float) -> int:
        """The rest after that many failures (1 or more), in milliseconds: above 0, at most `maximum`. `random` is in [0, 1)."""
        initial, maximum = max(1, milliseconds(self.initial)), max(1, milliseconds(self.maximum))
        exact = maximum if self._is_past_maximum(failures, initial, maximum) else initial * self.factor ** max(0, failures - 1)
        spread = exact * (1 + self.jitter * (2 * random - 1))
        return max(1, min(maximum, round(spread)))

    def _is_past_maximum(self, failures: int, initial: int, maximum: int) -> bool:
        # Compared as logarithms: the power itself overflows a float after a thousand failures (case B12).
        growth = max(0, failures - 1) * math.log(max(self.factor, 1.0))
        return growth >= math.log(maximum) - math.log(initial)


NO_RETRY: Final = Retry()
"""The default policy: one attempt."""


@dataclass(frozen=True)
class Wait:
    """A wait for an event of that name and key.

    `key` is a literal (kept as text) or a callable of the run, computed at the start; `key_expr` is CEL, computed when the wait opens: of steps it
    may read those that come before the wait.
    With neither, it is met by a signal or an event without a key. `timeout` is a timedelta or seconds, `on_timeout` "fail" or "continue".
    An event that came since the run was created counts; `lookback` widens that, `None` closes it.
    """

    event: str
    key: Key | KeyCallable | None = None
    key_expr: str | None = None
    timeout: Duration | None = None
    on_timeout: str = "fail"
    lookback: Duration | None = timedelta(0)


@dataclass(frozen=True)
class Sleep:
    """A pause that holds no worker. `duration` is a timedelta or seconds; 0 is allowed."""

    duration: Duration


@dataclass(frozen=True)
class Cron:
    """A schedule: five fields of cron in a time zone.

    `overlap` is "skip", "queue", "allow" or "cancel_running"; `catch_up` is "last", "all" or "none".
    """

    expression: str
    timezone: str = "UTC"
    payload: Any = MISSING
    labels: Mapping[str, str] | None = None
    overlap: str = "skip"
    catch_up: str = "last"


@dataclass(frozen=True)
class Concurrency:
    """At most `limit` runs at work at once, per key. `on_limit` is "queue", "reject" or "cancel_oldest".

    `key` is a literal or a callable of the run, `key_expr` is CEL; both are computed at the start, when no step has an output and no state is there.
    """

    limit: int
    key: Key | KeyCallable | None = None
    key_expr: str | None = None
    on_limit: str = "queue"


@dataclass(frozen=True)
class RateLimit:
    """At most `limit` admissions in each span `per` (a timedelta or seconds); spaces them, drops nothing."""

    limit: int
    per: Duration


def is_literal_key(key: object) -> bool:
    """Whether `key` is a literal that can be kept as text."""
    return isinstance(key, (str, int, UUID)) and not isinstance(key, bool)


def key_text(key: object) -> str:
    """A key as the text it is compared by. Raises `ValueError` for what is no str, int or UUID."""
    if not is_literal_key(key):
        raise ValueError(f"a key is a str, an int or a UUID, not {type(key).__name__}")
    return str(key)
