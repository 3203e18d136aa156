"""The duty of slots: runs that are marked, because they stand in line or had a slot. Carries on where the process that marked them was lost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from django.db.models import Q, QuerySet

from ..models import Run
from . import admission
from .locking import locked
from .transactions import database, verb

_NEEDED: Final = (
    *("pk", "app_id", "workflow", "version", "definition_id", "status", "paused_from", "parent_id", "episode"),
    *("bucket", "line", "slot_key", "queue_order", "slot_at"),
)
"""What a look needs of a marked run."""


def run_once(now: datetime, limit: int) -> int:
    """Look where up to `limit` marked runs have come or gone; returns how many were looked at."""
    due = list(Run.objects.using(database()).filter(slot_at__lte=now).order_by("slot_at").only(*_NEEDED)[:limit])
    for (app_id, workflow), marked in admission.families(due).items():
        if admission.try_to_look(app_id, workflow, marked):
            _clear(marked)
        else:
            _look_later(marked, now)
    return len(due)


@verb
def _clear(marked: Sequence[Run]) -> None:
    """Take the marks away as they were read: one that was made anew meanwhile stays, and so does one whose run somebody holds."""
    marks = Q()
    for status, slot_at in {(run.status, run.slot_at) for run in marked}:
        marks |= Q(status=status, slot_at=slot_at, pk__in=[run.pk for run in marked if (run.status, run.slot_at) == (status, slot_at)])
    _free(marks).update(slot_at=None)


@verb
def _look_later(marked: Sequence[Run], now: datetime) -> None:
    """What could not be finished is looked at again a little later, so that it keeps nobody else waiting."""
    _free(Q(pk__in=[run.pk for run in marked], slot_at__lte=now)).update(slot_at=now + admission.AGAIN)


def _free(which: Q) -> QuerySet[Run]:
    """Those of these runs that nobody holds, locked."""
    rows = Run.objects.using(database()).filter(which).order_by("pk")
    return Run.objects.using(database()).filter(pk__in=list(locked(rows, skip_locked=True).values_list("pk", flat=True)))
