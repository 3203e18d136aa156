"""The duty of limits: a newer definition may let more of those in line begin, who are told so by a mark.

Reads no definition: the one that a run is pinned to may be the very one that can't be read.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from ..models import Definition
from . import duty, slots
from .transactions import database

AGAIN: Final = timedelta(seconds=1)
"""When maintenance looks again at a line in which somebody held a run."""


def run_once(now: datetime, limit: int) -> int:
    """Mark up to `limit` of those who stand in line under new definitions; returns how many definitions and runs were looked at."""
    due = Definition.objects.using(database()).filter(due_at__lte=now).order_by("due_at").only("pk", "app_id", "workflow", "due_at", "marked_until")
    count = 0
    for definition in due[:limit]:
        if count >= limit:
            break
        count += 1 + _mark_some(definition, now, limit - count)
    return count


def _mark_some(definition: Definition, now: datetime, limit: int) -> int:
    """Mark the next of its line, by their ids; returns how many were looked at. One that somebody holds keeps the place of the next call before itself."""
    line = slots.in_line().filter(app=definition.app_id, workflow=definition.workflow).order_by("pk")
    rows = line if definition.marked_until is None else line.filter(pk__gt=definition.marked_until)
    keys = list(rows.values_list("pk", flat=True)[:limit])
    marked = duty.move_free(slots.in_line().filter(pk__in=keys), slot_at=now)
    first_held = next((place for place, pk in enumerate(keys) if pk not in marked), None)
    same = Definition.objects.using(database()).filter(pk=definition.pk, due_at=definition.due_at)
    if first_held is not None:
        same.update(due_at=now + AGAIN, marked_until=keys[first_held - 1] if first_held else definition.marked_until)
    elif len(keys) == limit:
        same.update(marked_until=keys[-1])
    else:
        same.update(due_at=None, marked_until=None)
    return len(keys)
