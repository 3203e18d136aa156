"""The duty of slots: runs that are marked, because they stand in line or had a slot. Carries on where the process that marked them was lost."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from django.db.models import Q

from ..models import Run
from . import admission, duty
from .transactions import database

_NEEDED: Final = (
    *("pk", "app_id", "workflow", "version", "definition_id", "status", "paused_from", "parent_id", "episode"),
    *("bucket", "line", "slot_key", "queue_order", "slot_at"),
)
"""What a look needs of a marked run."""


def run_once(now: datetime, limit: int) -> int:
    """Look where up to `limit` marked runs have come or gone; returns how many marks that took away or put off.

    A run that somebody holds keeps its mark, and is passed over: it does not count.
    """
    due = Run.objects.using(database()).filter(slot_at__lte=now).order_by("slot_at").only(*_NEEDED)
    return duty.in_pages(due, limit, lambda runs: _see_to(runs, now), run="pk")


def _see_to(due: Sequence[Run], now: datetime) -> tuple[int, set[uuid.UUID]]:
    """Look for these; returns how many marks could be changed, and the runs whose could not."""
    moved: set[uuid.UUID] = set()
    for (app_id, workflow), marked in admission.families(due).items():
        moved |= _clear(marked) if admission.try_to_look(app_id, workflow, marked) else _look_later(marked, now)
    return len(moved), {run.pk for run in due} - moved


def _clear(marked: Sequence[Run]) -> set[uuid.UUID]:
    """Take the marks away as they were read: one that was made anew meanwhile stays, and so does one whose run somebody holds."""
    marks = Q()
    for status, slot_at in {(run.status, run.slot_at) for run in marked}:
        marks |= Q(status=status, slot_at=slot_at, pk__in=[run.pk for run in marked if (run.status, run.slot_at) == (status, slot_at)])
    return duty.move_free(Run.objects.using(database()).filter(marks), slot_at=None)


def _look_later(marked: Sequence[Run], now: datetime) -> set[uuid.UUID]:
    """What could not be finished is looked at again a little later, so that it keeps nobody else waiting."""
    rows = Run.objects.using(database()).filter(pk__in=[run.pk for run in marked], slot_at__lte=now)
    return duty.move_free(rows, slot_at=now + admission.AGAIN)
