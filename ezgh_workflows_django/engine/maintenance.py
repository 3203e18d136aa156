"""The engine's own duties, and the tick that sees to them.

One statement asks for the earliest moment anything is due; one process ticks at a time, by a guarded write of the tick's row.
Idempotent, in small batches, safe in any number of processes at once; the next tick carries on where one was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import QuerySet, Subquery

from ..conf import app_settings
from ..models import Definition, Event, Lease, Rate, Run, Schedule, Step, Tick, Timetable, Worker
from ..protocol.states import RunStatus
from . import backlog, due_runs, events, figures, firing, following, kin, marks, new_limits, reclaim, retention, runs, timers, turns, workers
from .clock import Now, read_at
from .transactions import database, verb

BATCH = 200
ROUNDS = 25
"""How many batches of one duty a tick deals with at most, so that no duty keeps the others waiting."""

TICK_ROW = 1
FRESH = timedelta(seconds=5)
"""A tick that finds nothing due writes its row only this often."""


@dataclass(frozen=True, slots=True)
class Duty:
    """One duty: when something of its own is due, and what is done about it. `patient` ones rest while a gap is made good.

    A `steady` one comes round whatever happens, and never moves a run: it makes no tick late, and nobody sleeps until it.
    """

    name: str
    earliest: Callable[[], QuerySet[Any]]
    keep: Callable[[], timedelta]
    run_once: Callable[[datetime, int], int]
    patient: bool = False
    steady: bool = False


@dataclass(frozen=True, slots=True)
class Ticked:
    """What a tick found: the database's moment, the next moment anything is due, and how many rows were dealt with.

    `lenient_until` is when leases are looked at again, after a gap in which nobody's heartbeats could land.
    """

    now: datetime
    next_due: datetime | None
    handled: int
    lenient_until: datetime | None = None


def _nothing() -> timedelta:
    return timedelta(0)


DUTIES: Final[tuple[Duty, ...]] = (
    Duty("timers", lambda: Step.objects.filter(timer_at__isnull=False).order_by("timer_at").values("timer_at")[:1], _nothing, timers.run_once),
    Duty("admission", lambda: _due_runs().filter(status=RunStatus.QUEUED).values("due_at")[:1], _nothing, due_runs.run_once),
    Duty("deadlines", lambda: _due_runs().exclude(status=RunStatus.QUEUED).values("due_at")[:1], _nothing, runs.run_once),
    Duty("leases", lambda: Lease.objects.filter(due_at__isnull=False).order_by("due_at").values("due_at")[:1], _nothing, reclaim.run_once, patient=True),
    Duty("kin", lambda: Run.objects.filter(kin_at__isnull=False).order_by("kin_at").values("kin_at")[:1], _nothing, kin.run_once),
    Duty("limits", lambda: Definition.objects.filter(due_at__isnull=False).order_by("due_at").values("due_at")[:1], _nothing, new_limits.run_once),
    Duty("slots", lambda: Run.objects.filter(slot_at__isnull=False).order_by("slot_at").values("slot_at")[:1], _nothing, marks.run_once),
    Duty("rates", lambda: Rate.objects.filter(due_at__isnull=False).order_by("due_at").values("due_at")[:1], _nothing, turns.run_once),
    Duty("timetables", lambda: Timetable.objects.filter(due_at__isnull=False).order_by("due_at").values("due_at")[:1], _nothing, following.run_once),
    Duty("backlog", lambda: backlog.free().values("free_at")[:1], _nothing, backlog.run_once),
    Duty("schedules", lambda: Schedule.objects.filter(due_at__isnull=False).order_by("due_at").values("due_at")[:1], _nothing, firing.run_once),
    Duty("events", lambda: Event.objects.filter(due_at__isnull=False).order_by("due_at").values("due_at")[:1], _nothing, events.run_once),
    Duty(
        "workers",
        lambda: Worker.objects.filter(left_at=None).order_by("seen_at").values("seen_at")[:1],
        lambda: app_settings.ANNOUNCEMENT_TTL,
        workers.forget_lost,
        patient=True,
    ),
    Duty(
        "retention",
        lambda: Run.objects.filter(ended_at__isnull=False).order_by("ended_at").values("ended_at")[:1],
        lambda: app_settings.RETENTION,
        retention.run_once,
    ),
    Duty(
        "event retention",
        lambda: Event.objects.filter(run=None, due_at=None).order_by("created_at").values("created_at")[:1],
        lambda: app_settings.EVENT_RETENTION,
        retention.run_once,
    ),
    Duty("figures", figures.earliest, lambda: figures.MINUTE + figures.SETTLES, figures.run_once, steady=True),
)


def tick() -> Ticked:
    """See to everything that is due. One statement where nothing is, and a write every five seconds."""
    row, due = _look()
    late = [moment for moment in due.values() if moment is not None and moment <= row.now]
    lenient_until = _lenient_until(row)
    if not late and row.now - row.ticked_at < _freshness():
        return Ticked(row.now, _next(due, row.now), 0, lenient_until)
    if not _take_turn(row, [moment for moment in _unsteady(due) if moment <= row.now]):
        return Ticked(row.now, _next(due, row.now), 0, lenient_until)
    handled = 0
    for each in DUTIES:
        moment = due[each.name]
        if moment is not None and moment <= row.now and not (each.patient and lenient_until and row.now < lenient_until):
            handled += _work_off(each, row.now)
    return Ticked(row.now, _next(due, row.now), handled, lenient_until)


def status() -> Tick | None:
    """The tick's row, for health and metrics; `now` is on it. None before the first tick."""
    return Tick.objects.using(database()).annotate(now=Now()).filter(pk=TICK_ROW).first()


def _look() -> tuple[Any, dict[str, datetime | None]]:
    moments = {f"due_{index}": Subquery(each.earliest()) for index, each in enumerate(DUTIES)}
    row: Any = Tick.objects.using(database()).annotate(now=Now(), **moments).filter(pk=TICK_ROW).first()
    if row is None:
        ensure_row()
        return _look()
    stored = {each.name: getattr(row, f"due_{index}") for index, each in enumerate(DUTIES)}
    return row, {each.name: None if stored[each.name] is None else stored[each.name] + each.keep() for each in DUTIES}


@verb
def ensure_row() -> None:
    """Make the tick's row where it is missing."""
    Tick.objects.using(database()).get_or_create(pk=TICK_ROW, defaults={"ticked_at": Now(), "summed_until": Now()})


@verb
def _take_turn(row: Any, late: list[datetime]) -> bool:
    """Whether this process is the one that ticks now: the row is as it was read."""
    lateness_ms = round((row.now - min(late)).total_seconds() * 1000) if late else 0
    turn = Tick.objects.using(database()).filter(pk=TICK_ROW, ticked_at=row.ticked_at)
    return turn.update(ticked_at=row.now, lenient_until=_lenient_until(row), lateness_ms=lateness_ms) == 1


def _lenient_until(row: Any) -> datetime | None:
    """After a gap longer than a lease lives nobody's heartbeats could land: the healthy get one TTL to be heard of again."""
    now = read_at(row)
    if now - row.ticked_at > app_settings.LEASE_TTL:
        return now + app_settings.LEASE_TTL
    until: datetime | None = row.lenient_until
    return until if until is not None and until > now else None


def _freshness() -> timedelta:
    return min(FRESH, app_settings.LEASE_TTL / 4)


def _work_off(each: Duty, now: datetime) -> int:
    handled = 0
    for _ in range(ROUNDS):
        count = each.run_once(now, BATCH)
        handled += count
        if count < BATCH:
            break
    return handled


def _due_runs() -> QuerySet[Run]:
    return Run.objects.filter(due_at__isnull=False).order_by("due_at")


def _next(due: dict[str, datetime | None], now: datetime) -> datetime | None:
    """The next moment something will be due, after `now`."""
    return min((moment for moment in _unsteady(due) if moment > now), default=None)


def _unsteady(due: dict[str, datetime | None]) -> list[datetime]:
    """The moments of those duties that are due only where there is something to do."""
    return [moment for each in DUTIES if not each.steady and (moment := due[each.name]) is not None]
