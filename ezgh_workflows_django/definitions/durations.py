"""Durations: from what a user writes (a timedelta, or a number of seconds) to whole milliseconds. Knows no policy, no clock."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Final

Duration = timedelta | int | float
"""A span of time as users write it; a plain number is seconds."""

DAY_MS: Final = 86_400_000
MAX_TIMEOUT_MS: Final = DAY_MS
"""One pass of a body: at most 24 hours."""
MAX_SPAN_MS: Final = 3_650 * DAY_MS
"""A sleep, a delay, a wait's timeout, a deadline: at most ten years."""


def milliseconds(duration: Duration) -> int:
    """Whole milliseconds, rounded up, so that what is above zero stays above zero. Raises `ValueError` for what is no duration."""
    if isinstance(duration, timedelta):
        return -(-(duration // timedelta(microseconds=1)) // 1_000)
    if isinstance(duration, bool) or not isinstance(duration, (int, float)):
        raise ValueError(f"{duration!r} is no duration: give a timedelta, or a number of seconds")
    if isinstance(duration, float) and not math.isfinite(duration):
        raise ValueError(f"{duration!r} is no duration")
    return math.ceil(duration * 1_000)


def optional_milliseconds(duration: Duration | None) -> int | None:
    """As `milliseconds`; `None` stays `None`."""
    return None if duration is None else milliseconds(duration)


def from_milliseconds(ms: int | None) -> timedelta | None:
    """The timedelta of that many milliseconds; `None` stays `None`. Raises `ValueError` beyond what a timedelta holds."""
    try:
        return None if ms is None else timedelta(milliseconds=ms)
    except OverflowError as error:
        raise ValueError(f"{ms} ms is no duration") from error


def in_words(ms: int) -> str:
    """A duration for people: `30s`, `5m`, `1h30m`, `3d`, `250ms`."""
    if ms < 1_000:
        return f"{ms}ms"
    left, parts = ms, []
    for unit, size in (("d", DAY_MS), ("h", 3_600_000), ("m", 60_000)):
        count, left = divmod(left, size)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts + ([f"{left / 1_000:g}s"] if left else []))
