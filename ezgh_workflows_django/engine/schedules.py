"""Schedules as people see them: pausing, resuming, running one now; and what there is to know of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final

from django.db.models import Max, QuerySet

from ..definitions.occurrences import after
from ..errors import InvalidArgument, UnknownSchedule
from ..models import App, Occurrence, Project, Run, Schedule
from ..protocol import codec
from . import following, occurrences, trail
from .clock import Now, read_at
from .keys import Caller, Identity, actor_of
from .locking import locked
from .transactions import database, verb

READ: Final = "workflows.schedules.read"
UPDATE: Final = "workflows.schedules.update"

MAX_REASON: Final = 500
SHOWN_AHEAD: Final = 5
"""How many of a schedule's next occurrences are shown."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A schedule, when it fires next (nothing while it rests), and its last occurrence that anything became of."""

    schedule: Schedule
    ahead: tuple[datetime, ...]
    last: Occurrence | None


def of_apps(apps: Iterable[App] | QuerySet[App]) -> QuerySet[Schedule]:
    """The schedules of these apps that their newest definitions have, by app, workflow and place."""
    rows = Schedule.objects.using(database()).current().filter(app__in=apps)
    return rows.select_related("app", "definition").defer("definition__spec", "definition__input_schemas").order_by("app", "workflow", "number", "pk")


def find(text: str, project: Project, app_id: int | None = None) -> Schedule:
    """A schedule of a project, or of one app of it, by its id. Raises `UnknownSchedule`."""
    rows = of_apps(App.objects.using(database()).filter(project=project, **({} if app_id is None else {"pk": app_id})))
    found = rows.filter(pk=int(text)).first() if text.isascii() and text.isdecimal() and len(text) < 19 else None
    if found is None:
        raise UnknownSchedule(f"there is no schedule {text[:64]!a}")
    return found


def facts_of(schedules: Iterable[Schedule]) -> list[Facts]:
    """What there is to know of these, in their order: two statements, however many they are."""
    schedules = list(schedules)
    newest = Occurrence.objects.using(database()).filter(schedule__in=schedules).values("schedule").annotate(newest=Max("pk")).values_list("newest", flat=True)
    last = {row.schedule_id: row for row in Occurrence.objects.using(database()).filter(pk__in=list(newest))}
    return [Facts(schedule, ahead(schedule), last.get(schedule.pk)) for schedule in schedules]


def ahead(schedule: Schedule, count: int = SHOWN_AHEAD) -> tuple[datetime, ...]:
    """When it fires next, the next times in order; nothing while it rests."""
    if schedule.next_at is None:
        return ()
    return (schedule.next_at, *islice(after(schedule.expression, schedule.timezone, schedule.next_at), count - 1))


@verb
def pause(schedule_id: int, *, by: Caller, reason: str = "") -> Schedule:
    """Let a schedule fire no more until it is resumed; runs at work go on, occurrences that wait go on waiting. Locks the schedule.

    What is paused already stays as it is. Raises `UnknownSchedule`, `InvalidArgument`, `NotPermitted`.
    """
    if len(reason) > MAX_REASON or codec.clean_text(reason, MAX_REASON) != reason:
        raise InvalidArgument("reason", f"at most {MAX_REASON} characters, no NUL and no lone surrogate")
    schedule, now = _hold(schedule_id, by)
    if schedule.is_paused:
        return schedule
    schedule.paused_at, schedule.paused_reason = now, reason
    occurrences.rest(schedule)
    schedule.save(using=database())
    _tell(schedule, now, "PauseSchedule", by, reason=reason)
    return schedule


@verb
def resume(schedule_id: int, *, by: Caller) -> Schedule:
    """End a pause: it fires at its first occurrence after now, and catches up with none of the pause (case B83). Locks the schedule.

    What is not paused stays as it is. Raises `UnknownSchedule`, `NotPermitted`.
    """
    schedule, now = _hold(schedule_id, by)
    if not schedule.is_paused:
        return schedule
    schedule.paused_at, schedule.paused_reason = None, ""
    if following.fires(schedule.app, now):
        occurrences.wake(schedule, now)
    schedule.save(using=database())
    _tell(schedule, now, "ResumeSchedule", by)
    return schedule


@verb
def run(schedule_id: int, *, by: Caller) -> Run:
    """Start what the schedule starts, now: whether or not it is paused, and whatever is at work. Its occurrences stay as they are.

    Locks the schedule. Raises `UnknownSchedule`, `NotPermitted`, and what a start raises.
    """
    schedule, now = _hold(schedule_id, by)
    started = occurrences.start_by_hand(schedule, ":".join(actor_of(by)), now)
    _tell(schedule, now, "RunSchedule", by, run=str(started.pk))
    return started


def _hold(schedule_id: int, by: Caller) -> tuple[Schedule, datetime]:
    """The schedule's row, locked, for who may change it."""
    if isinstance(by, Identity):
        by.need(UPDATE)
    schedule = locked(Schedule.objects.using(database()).current().annotate(now=Now()).filter(pk=schedule_id)).first()
    if schedule is None or (isinstance(by, Identity) and not by.reaches(schedule.app)):
        raise UnknownSchedule(f"there is no schedule {schedule_id}")
    return schedule, read_at(schedule)


def _tell(schedule: Schedule, now: datetime, action: str, by: Caller, **data: Any) -> None:
    what = {"app": schedule.app.name, "workflow": schedule.workflow, "cron": schedule.expression}
    trail.record(schedule.app.project_id, now, action, actor=actor_of(by), target=("schedule", str(schedule.pk)), **what, **data)
