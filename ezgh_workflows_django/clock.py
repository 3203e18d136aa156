"""The worker's clock: monotonic, for a process's own durations, never stored.

The database's clock, which every stored deadline is judged by, is `engine/clock.py`.
One test switch (`testing.clock`) moves both.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_source: Callable[[], float] = time.monotonic


def monotonic() -> float:
    """Seconds since an arbitrary moment; never goes back."""
    return _source()


def set_source(source: Callable[[], float] | None) -> None:
    """Replace the clock for a test; `None` puts the machine's own back."""
    global _source
    _source = source or time.monotonic
