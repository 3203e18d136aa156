"""The pulse of a tick: while it works it keeps the tick's row fresh, so that only silence is a gap in maintenance, and never a long tick.

Whoever deals with row after row beats between two of them, with the moment it has in hand; written is only every few seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from ..conf import app_settings
from ..models import Tick
from .clock import Now
from .transactions import database, verb

TICK_ROW: Final = 1
FRESH: Final = timedelta(seconds=5)
"""How old the tick's row gets at most while somebody ticks, but for a lease that lives very short."""

TURN: Final = timedelta(seconds=2)
"""How long a tick goes on with more of the same; after that it deals with one batch of each duty that is left, so that nothing waits for a long one."""


@dataclass(slots=True)
class Pulse:
    """What a tick at work knows of the time: since when it works, the last moment it heard of, and until when it leaves leases alone.

    `has_more` once it leaves something that is due to the next tick.
    """

    began_at: datetime
    now: datetime
    lenient_until: datetime | None
    written_at: datetime
    has_more: bool = False

    def beat(self, now: datetime) -> None:
        """The tick is at work at `now`, a moment of the database's clock. Not called inside a verb: it may write, in a transaction of its own."""
        self.now = max(self.now, now)
        if self.now - self.written_at >= freshness():
            self.written_at = self.now
            self.lenient_until = _say(self.now) or self.lenient_until

    def look(self) -> None:
        """`beat`, with the database's moment: one statement."""
        self.beat(Tick.objects.using(database()).annotate(now=Now()).values_list("now", flat=True).get(pk=TICK_ROW))

    @property
    def is_turn_over(self) -> bool:
        """Whether it has gone on for so long that one batch of each duty that is left is enough."""
        return self.now - self.began_at >= TURN

    @property
    def is_lenient(self) -> bool:
        """Whether leases are left alone now."""
        return self.lenient_until is not None and self.now < self.lenient_until


_pulse: ContextVar[Pulse | None] = ContextVar("ezgh_workflows_pulse", default=None)


@contextmanager
def of_tick(now: datetime, lenient_until: datetime | None) -> Iterator[Pulse]:
    """The pulse of a tick that has just taken its turn."""
    mine = Pulse(now, now, lenient_until, now)
    token = _pulse.set(mine)
    try:
        yield mine
    finally:
        _pulse.reset(token)


def beat(now: datetime) -> None:
    """`Pulse.beat` of the tick that is at work here, if one is: a duty may run by itself."""
    mine = _pulse.get()
    if mine is not None:
        mine.beat(now)


def look() -> None:
    """`Pulse.look` of the tick that is at work here, if one is."""
    mine = _pulse.get()
    if mine is not None:
        mine.look()


def leave_rest() -> None:
    """The tick that is at work here, if one is, leaves something that is due to the next one."""
    mine = _pulse.get()
    if mine is not None:
        mine.has_more = True


def is_turn_over() -> bool:
    """`Pulse.is_turn_over` of the tick that is at work here, if one is."""
    mine = _pulse.get()
    return mine is not None and mine.is_turn_over


def is_lenient(now: datetime) -> bool:
    """Whether leases are left alone at `now`. Where no tick is at work here, one statement asks how the last one left it."""
    mine = _pulse.get()
    if mine is not None:
        return mine.is_lenient
    row = Tick.objects.using(database()).filter(pk=TICK_ROW).first()
    return row is not None and lenient_until(row, now) is not None


def lenient_until(row: Tick, now: datetime) -> datetime | None:
    """Until when leases are left alone. After a gap longer than a lease lives nobody's heartbeats could land: the healthy get one TTL to be heard of again."""
    if now - row.ticked_at > app_settings.LEASE_TTL:
        return now + app_settings.LEASE_TTL
    return row.lenient_until if row.lenient_until is not None and row.lenient_until > now else None


def freshness() -> timedelta:
    """How old the tick's row gets at most while somebody ticks."""
    return min(FRESH, app_settings.LEASE_TTL / 4)


@verb
def _say(now: datetime) -> datetime | None:
    """Write that somebody ticks. Returns until when leases are left alone where nobody had said so for longer than a lease lives."""
    row = Tick.objects.using(database()).filter(pk=TICK_ROW)
    until = now + app_settings.LEASE_TTL
    if row.filter(ticked_at__lt=now - app_settings.LEASE_TTL).update(ticked_at=now, lenient_until=until):
        return until
    row.filter(ticked_at__lt=now).update(ticked_at=now)
    return None
