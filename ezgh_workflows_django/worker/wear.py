"""How long a process that runs bodies may live: so many tasks, so much memory. Looks and says so; ends nothing."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..protocol.messages import Lease
from ..protocol.outcomes import Answer, Outcome
from .listener import Guarded, Listener

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PEAK_UNIT: Final = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """After how many tasks, or over how many bytes of resident memory, a process is to be replaced; None: never."""

    tasks: int | None = None
    memory: int | None = None

    def reached(self, tasks: int) -> str | None:
        """Which limit this process has reached, in words; None while it has reached none."""
        if self.tasks is not None and tasks >= self.tasks:
            return f"{tasks} tasks are done"
        if self.memory is not None and (used := memory_used()) > self.memory:
            return f"{used / 1024**2:.0f} MB of memory are in use, over {self.memory / 1024**2:.0f}"
        return None


class Wear(Guarded):
    """A listener before another, which says once, by `on_spent`, that this process has reached a limit, and which."""

    def __init__(self, listener: Listener, limits: Limits, on_spent: Callable[[str], object]) -> None:
        super().__init__(listener)
        self._limits = limits
        self._on_spent = on_spent
        self._tasks = 0
        self._is_spent = False

    def finished(self, lease: Lease, outcome: Outcome, seconds: float, answer: Answer | None) -> None:
        """As the listener's own; one task more."""
        super().finished(lease, outcome, seconds, answer)
        self._tasks += 1
        self._look()

    def alive(self) -> None:
        """As the listener's own; memory may have grown."""
        super().alive()
        self._look()

    def _look(self) -> None:
        reached = None if self._is_spent else self._limits.reached(self._tasks)
        if reached is not None:
            self._is_spent = True
            self._on_spent(reached)


def memory_used() -> int:
    """The bytes of this process that are in memory; where the system does not say, the most there ever were."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _PEAK_UNIT
