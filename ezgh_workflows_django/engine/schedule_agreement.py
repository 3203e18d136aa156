"""What must always hold of schedules (I9), as questions to the database, and what `workflows_check --fix` may do about it. Pure reads, but for `mend`.

`invariants` lists the questions beside its own, and looks a second time at what they find.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from ..models import App, Became, Occurrence, Run, Schedule, Timetable
from .agreement import Finding
from .clock import Now
from .transactions import database, verb

_RECENT: Final = timedelta(days=1)


def findings(now: datetime, limit: int) -> Iterator[Finding]:
    """What is broken: at most `limit` of each kind."""
    recent = Run.objects.using(database()).filter(Q(ended_at=None) | Q(ended_at__gte=now - _RECENT), occurrence__isnull=False)
    for row in recent.values("occurrence").annotate(n=Count("pk")).filter(n__gt=1)[:limit]:
        yield "I9", f"occurrence {row['occurrence']}", f"it has started {row['n']} runs: cancel those that are too many"
    for occurrence in Occurrence.objects.using(database()).filter(became=Became.STARTED, run_id=None)[:limit]:
        yield "I9", f"occurrence {occurrence.pk} of schedule {occurrence.schedule_id}", "it was started and names no run"
    current = Schedule.objects.using(database()).current()
    for place in current.values("timetable", "number").annotate(n=Count("pk")).filter(n__gt=1)[:limit]:
        yield "I9", f"cron {place['number']} of timetable {place['timetable']}", f"it has {place['n']} schedules, each of which fires: pause all but one"
    for schedule in _unlooked(now)[:limit]:
        yield "I9", f"schedule {schedule.pk}", "it has something to fire and nothing will look at it: `workflows_check --fix` makes it due"
    for schedule in _at_rest()[:limit]:
        yield "I9", f"schedule {schedule.pk}", "it is neither paused nor removed, and has no next occurrence: `workflows_check --fix` reckons it anew"


def overdue(late: datetime, limit: int) -> Iterator[Finding]:
    """What has been due since before `late`."""
    for schedule in Schedule.objects.using(database()).filter(due_at__lt=late)[:limit]:
        yield "I9", f"schedule {schedule.pk}", f"it has been due since {schedule.due_at}: does maintenance run?"
    for timetable in Timetable.objects.using(database()).filter(due_at__lt=late)[:limit]:
        yield "I9", f"timetable {timetable.pk}", f"its schedules are to follow a definition since {timetable.due_at}: does maintenance run?"


@verb
def mend() -> int:
    """Make due what nothing would have looked at; returns how many schedules that were. They fire by the rules, as after downtime."""
    unlooked = list(_unlooked(None).values_list("pk", flat=True))
    at_rest = dict(_at_rest().values_list("pk", "timetable"))
    Schedule.objects.using(database()).filter(pk__in=unlooked).update(due_at=Now())
    Timetable.objects.using(database()).filter(pk__in=set(at_rest.values())).update(due_at=Now())
    return len(unlooked) + len(at_rest)


def _unlooked(now: datetime | None) -> QuerySet[Schedule]:
    """Schedules that fire and are not due to be looked at, for their next occurrence or for one that waits. `now` None: in doubt they are."""
    waiting = Occurrence.objects.using(database()).filter(schedule=OuterRef("pk"), became=Became.WAITING)
    about_to_look = Q(pk=None) if now is None else Q(due_at__lte=now)
    forgotten = Q(waits_for=None) & Exists(waiting) & ~about_to_look
    return Schedule.objects.using(database()).filter(Q(due_at=None) | forgotten, next_at__isnull=False)


def _at_rest() -> QuerySet[Schedule]:
    """Schedules that should fire and don't. In a developer's app they may rest; after a last occurrence, within 50 years, none does."""
    rows = Schedule.objects.using(database()).current().filter(next_at=None, paused_at=None, timetable__due_at=None)
    return rows.exclude(app__name__startswith=App.DEV_PREFIX)
