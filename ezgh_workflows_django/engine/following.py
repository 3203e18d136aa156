"""The duty of timetables: the schedules of each workflow are what its newest stored definition says.

Storing a definition only marks its timetable; here the schedules follow, in a transaction of their own that locks the timetable, then its
schedules. What changes when a schedule fires never makes it fire at once: its next occurrence is the first after the change (case B83).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..models import App, Definition, Schedule, Timetable, Worker
from ..protocol import codec
from . import announcing, catalog, duty, occurrences
from .clock import Now, read_at
from .locking import locked
from .transactions import database, verb


@dataclass(frozen=True, slots=True)
class Wanted:
    """A cron of a definition, with its place there. `payload` and `labels` are JSON, as they are stored."""

    number: int
    expression: str
    timezone: str
    payload: str | None
    labels: str
    overlap: str
    catch_up: str


def run_once(now: datetime, limit: int) -> int:
    """Let the schedules of up to `limit` marked timetables follow; returns how many were looked at."""
    due = Timetable.objects.using(database()).filter(due_at__lte=now).order_by("due_at").values_list("pk", flat=True)
    return duty.one_by_one(list(due[:limit]), follow, lambda pk: _postpone(pk, now), lambda pk: f"timetable {pk}")


@verb
def follow(timetable_id: int) -> None:
    """Bring the schedules of a timetable in line. Where somebody holds it, or one of them, it is passed over: its mark stays."""
    timetable = locked(Timetable.objects.using(database()).annotate(now=Now()).filter(pk=timetable_id), skip_locked=True).first()
    if timetable is None:
        return
    schedules = Schedule.objects.using(database()).filter(timetable=timetable).order_by("pk")
    rows = list(locked(schedules, skip_locked=True))
    if len(rows) < schedules.count():
        return
    now = read_at(timetable)
    app = App.objects.using(database()).get(pk=timetable.app_id)
    definition = catalog.newest(app, timetable.workflow)
    wanted = [_wanted(number, stored) for number, stored in enumerate(catalog.plan(definition.version, definition.pk).cron)]
    found, is_on = match(rows, wanted), fires(app, now)
    for each in wanted:
        _bring_in_line(found.get(each.number) or _new(timetable, now), each, definition, is_on, now)
    for row in rows:
        if row not in found.values() and row.removed_at is None:
            _remove(row, now)
    timetable.due_at = None
    timetable.save(using=database(), update_fields=["due_at"])


def match(rows: Sequence[Schedule], wanted: Sequence[Wanted]) -> dict[int, Schedule]:
    """Which schedule becomes which cron, by the cron's number; a cron without one is new, a schedule without one goes.

    Expression and time zone tell first, so that a cron that moves in its list stays what it was; then the place. What was removed may come back.
    """
    alike: tuple[Callable[[Schedule, Wanted], bool], ...] = (
        lambda row, each: row.removed_at is None and _fires_alike(row, each) and row.number == each.number,
        lambda row, each: row.removed_at is None and _fires_alike(row, each),
        lambda row, each: row.removed_at is None and row.number == each.number,
        _fires_alike,
    )
    found: dict[int, Schedule] = {}
    for is_alike in alike:
        for each in wanted:
            free = (row for row in rows if row not in found.values() and is_alike(row, each))
            if each.number not in found and (row := next(free, None)) is not None:
                found[each.number] = row
    return found


def fires(app: App, now: datetime) -> bool:
    """Whether schedules of the app fire: those of a developer's own only while a live worker session there wants it."""
    return not app.is_dev or announcing.live_workers(now).filter(app=app, cron=True).exists()


def heed(workers: Iterable[Worker], now: datetime) -> None:
    """Worker sessions have come or gone: where they want a developer's schedules fired, whether these fire is looked at anew."""
    apps = {worker.app_id for worker in workers if worker.cron}
    if apps:
        Timetable.objects.using(database()).filter(app__in=apps, app__name__startswith=App.DEV_PREFIX).update(due_at=now)


def _wanted(number: int, stored: Mapping[str, Any]) -> Wanted:
    return Wanted(
        number=number,
        expression=stored["expression"],
        timezone=stored.get("timezone", "UTC"),
        payload=codec.dumps(stored["payload"], limit=None, what="payload") if "payload" in stored else None,
        labels=codec.dumps(stored.get("labels", {}), limit=None, what="labels"),
        overlap=stored.get("overlap", "skip"),
        catch_up=stored.get("catch_up", "last"),
    )


def _fires_alike(row: Schedule, wanted: Wanted) -> bool:
    return (row.expression, row.timezone) == (wanted.expression, wanted.timezone)


def _new(timetable: Timetable, now: datetime) -> Schedule:
    return Schedule(timetable=timetable, app_id=timetable.app_id, workflow=timetable.workflow, created_at=now)


def _bring_in_line(row: Schedule, wanted: Wanted, definition: Definition, is_on: bool, now: datetime) -> None:
    changed = row.pk is None or row.removed_at is not None or not _fires_alike(row, wanted)
    if changed and row.pk is not None:
        occurrences.miss_due(row, definition.created_at, now, "the cron was changed before it could fire")
    for name in ("number", "expression", "timezone", "payload", "labels", "overlap", "catch_up"):
        setattr(row, name, getattr(wanted, name))
    row.definition, row.removed_at = definition, None
    if not is_on or row.is_paused:
        occurrences.rest(row)
    elif changed:
        occurrences.wake(row, definition.created_at)
    elif row.next_at is None:
        occurrences.wake(row, now)
    row.save(using=database())


def _remove(row: Schedule, now: datetime) -> None:
    occurrences.miss_due(row, now, now, "the cron was removed before it could fire")
    occurrences.drop_waiting(row, "the cron was removed before its turn came")
    row.removed_at = now
    occurrences.rest(row)
    row.save(using=database())


def _postpone(timetable_id: int, now: datetime) -> None:
    Timetable.objects.using(database()).filter(pk=timetable_id).update(due_at=duty.later(now))
