"""The duty of rates: those in line whose turn has come."""

from __future__ import annotations

from datetime import datetime

from ..models import Rate
from . import admission
from .transactions import database


def run_once(now: datetime, limit: int) -> int:
    """Let in those whose turn has come, under up to `limit` rates; returns how many were looked at."""
    due = list(Rate.objects.using(database()).filter(due_at__lte=now).order_by("due_at")[:limit])
    for rate in due:
        done = admission.try_to_look(rate.app_id, rate.workflow, ())
        same = Rate.objects.using(database()).filter(pk=rate.pk, due_at=rate.due_at)  # a look that knows better has said so
        same.update(due_at=None if done else now + admission.AGAIN)
    return len(due)
