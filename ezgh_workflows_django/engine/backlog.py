"""The duty of the backlog, occurrences that wait: when the run is over that one waited for, it has its turn.

The run's end is the mark, whoever made it; nothing is written for it, and no verb waits for another run's lock. The process that made the
end looks at once, after its commit; the tick does where that process was lost.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Case, F, OuterRef, QuerySet, Subquery, When
from django.db.models.functions import Greatest

from ..models import Run, Schedule
from . import firing
from .transactions import database


def run_once(now: datetime, limit: int) -> int:
    """See to up to `limit` schedules in which an occurrence has its turn; returns how many were looked at."""
    return firing.see_to_each(free().filter(free_at__lte=now).values_list("pk", flat=True)[:limit], now)


def free() -> QuerySet[Any]:
    """The schedules whose oldest waiting occurrence has its turn, the longest free first: since `free_at`.

    One that was put off after an error is due at that moment, not at its next occurrence: its turn does not come sooner.
    """
    # From the schedules that wait to their runs, one by one: the other way round a database may walk through all runs that ended.
    over = Run.objects.using(database()).filter(pk=OuterRef("waits_for"), ended_at__isnull=False).values("ended_at")[:1]
    waiting = Schedule.objects.using(database()).filter(waits_for__isnull=False)
    due_at = Case(When(due_at=F("next_at"), then=F("over_at")), default=F("due_at"))
    return waiting.annotate(over_at=Subquery(over)).filter(over_at__isnull=False).annotate(free_at=Greatest("over_at", due_at)).order_by("free_at")


def after_end(run: Run) -> None:
    """Right after the commit in which a run of a schedule ended."""
    waiting = Schedule.objects.using(database()).filter(waits_for=run.pk).values_list("pk", flat=True)
    for schedule_id in waiting:
        firing.see_to(schedule_id)
