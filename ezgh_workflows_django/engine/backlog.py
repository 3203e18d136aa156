"""The duty of the backlog, occurrences that wait: when the run is over that one waited for, it has its turn.

The run's end is the mark, whoever made it; nothing is written for it, and no verb waits for another run's lock. The process that made the
end looks at once, after its commit; the tick does where that process was lost.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from ..models import Run, Schedule
from . import firing
from .transactions import database


def run_once(now: datetime, limit: int) -> int:
    """See to up to `limit` schedules in which an occurrence has its turn; returns how many were looked at."""
    return firing.see_to_each(free().values_list("pk", flat=True)[:limit], now)


def free() -> QuerySet[Any]:
    """The schedules whose oldest waiting occurrence has its turn, the longest free first: since `free_at`."""
    # From the schedules that wait to their runs, one by one: the other way round a database may walk through all runs that ended.
    over = Run.objects.using(database()).filter(pk=OuterRef("waits_for"), ended_at__isnull=False).values("ended_at")[:1]
    waiting = Schedule.objects.using(database()).filter(waits_for__isnull=False)
    return waiting.annotate(free_at=Subquery(over)).filter(free_at__isnull=False).order_by("free_at")


def after_end(run: Run) -> None:
    """Right after the commit in which a run of a schedule ended."""
    waiting = Schedule.objects.using(database()).filter(waits_for=run.pk).values_list("pk", flat=True)
    for schedule_id in waiting:
        firing.see_to(schedule_id)
