"""The engine's own duties, and the tick that sees to them.

One statement asks for the earliest moment anything is due; of those who ask at one moment one ticks, by a guarded write of the tick's row.
While it is at work another may find more that is due, and tick beside it: idempotent, in small batches, each row under its own lock, a tick
is safe in any number of processes at once; the next one carries on where one was lost. A duty that fails,
whatever it raises, is logged and passed over: the others have their turn, and it is tried again with the next tick.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import DatabaseError, InterfaceError, connections
from django.db.models import QuerySet, Subquery

from ..conf import app_settings
from ..models import Definition, Event, Lease, Rate, Run, Schedule, Step, Tick, Timetable, Worker
from ..protocol.states import RunStatus
from . import backlog, due_runs, events, figures, firing, following, kin, marks, new_limits, pulse, reclaim, retention, runs, timers, turns, workers
from .clock import Now, read_at
from .pulse import TICK_ROW, Pulse
from .transactions import database, verb

logger = logging.getLogger("ezgh_workflows.maintenance")

BATCH = 100
ROUNDS = 50
"""How many batches of one duty a tick deals with at most, so that no duty keeps the others waiting."""


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

    `lenient_until` is when leases are looked at again, after a gap in which nobody's heartbeats could land. `has_more`: so much was due that
    some of it is left to the next tick.
    """

    now: datetime
    next_due: datetime | None
    handled: int
    lenient_until: datetime | None = None
    has_more: bool = False


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
    Duty("retention", retention.earliest, lambda: app_settings.RETENTION, retention.run_once),
    Duty(
        "event retention",
        lambda: Event.objects.filter(run=None, due_at=None).order_by("created_at").values("created_at")[:1],
        lambda: app_settings.EVENT_RETENTION,
        retention.run_once,
    ),
    Duty("figures", figures.earliest, lambda: figures.MINUTE + figures.SETTLES, figures.run_once, steady=True),
)


def tick() -> Ticked:
    """See to everything that is due, the most urgent first. One statement where nothing is, and a write every five seconds.

    What is left after a while is the next tick's. Raises what the database does where it can't be reached.
    """
    row, due = _look()
    late = [moment for moment in due.values() if moment is not None and moment <= row.now]
    lenient_until = pulse.lenient_until(row, read_at(row))
    if not late and row.now - row.ticked_at < pulse.freshness():
        return Ticked(row.now, _next(due, row.now), 0, lenient_until)
    if not _take_turn(row, [moment for moment in _unsteady(due) if moment <= row.now]):
        return Ticked(row.now, _next(due, row.now), 0, lenient_until)
    handled = 0
    with pulse.of_tick(row.now, lenient_until) as mine:
        for each in DUTIES:
            moment = due[each.name]
            if moment is not None and moment <= row.now and not (each.patient and mine.is_lenient):
                handled += _try_to_work_off(each, mine)
    return Ticked(row.now, _next(due, row.now), handled, mine.lenient_until, mine.has_more)


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
    return turn.update(ticked_at=row.now, lenient_until=pulse.lenient_until(row, read_at(row)), lateness_ms=lateness_ms) == 1


def _try_to_work_off(each: Duty, mine: Pulse) -> int:
    try:
        return _work_off(each, mine)
    except (DatabaseError, InterfaceError):
        if not _is_there():
            raise
        logger.exception("the duty of %s failed; the next tick tries again", each.name)
    except Exception:  # no duty must ever stop the others (spec: engine.md "Time")
        logger.exception("the duty of %s failed; the next tick tries again", each.name)
    return 0


def _work_off(each: Duty, mine: Pulse) -> int:
    handled = 0
    for _ in range(ROUNDS):
        count = each.run_once(mine.now, BATCH)
        handled += count
        mine.look()
        if count < BATCH:
            return handled
        if mine.is_turn_over:
            break
    mine.has_more = True
    return handled


def _is_there() -> bool:
    """Whether the other duties have a database to work on, on a new connection if need be. Raises what it does where it can't be reached."""
    connection = connections[database()]
    if connection.connection is not None and connection.is_usable():
        return True
    if connection.in_atomic_block:
        return False
    connection.close()
    connection.ensure_connection()
    return True


def _due_runs() -> QuerySet[Run]:
    return Run.objects.filter(due_at__isnull=False).order_by("due_at")


def _next(due: dict[str, datetime | None], now: datetime) -> datetime | None:
    """The next moment something will be due, after `now`."""
    return min((moment for moment in _unsteady(due) if moment > now), default=None)


def _unsteady(due: dict[str, datetime | None]) -> list[datetime]:
    """The moments of those duties that are due only where there is something to do."""
    return [moment for each in DUTIES if not each.steady and (moment := due[each.name]) is not None]
