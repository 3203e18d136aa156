"""The duty of limits: a newer definition may let more of those in line begin, who are told so by a mark."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

from ..errors import UnknownRun
from ..models import Definition
from . import admission, slots
from .locking import hold, hold_free
from .transactions import batched, database, verb


def run_once(now: datetime, limit: int) -> int:
    """Mark those who stand in line under up to `limit` new definitions; returns how many definitions were looked at."""
    due = list(Definition.objects.using(database()).filter(due_at__lte=now).order_by("due_at").only("pk", "app_id", "workflow", "due_at")[:limit])
    for definition in due:
        keys = list(slots.in_line().filter(app=definition.app_id, workflow=definition.workflow).values_list("pk", flat=True))
        held = [pk for chunk in batched(keys, admission.BATCH) for pk in _mark_free(chunk)]
        for pk in held:
            _mark(pk)
        Definition.objects.using(database()).filter(pk=definition.pk, due_at=definition.due_at).update(due_at=None)
    return len(due)


@verb
def _mark_free(keys: Sequence[uuid.UUID]) -> list[uuid.UUID]:
    """Mark those of these runs that nobody holds; returns the others."""
    held, work = hold_free(keys)
    for each in held.values():
        if slots.is_in_line(each.run):
            each.work.move(each.run, slot_at=each.now)
    if work is not None:
        work.finish()
    return [pk for pk in keys if pk not in held]


@verb
def _mark(run_id: uuid.UUID) -> None:
    try:
        held = hold(run_id)
    except UnknownRun:
        return
    if slots.is_in_line(held.run):
        held.work.move(held.run, slot_at=held.now)
        held.work.finish()
