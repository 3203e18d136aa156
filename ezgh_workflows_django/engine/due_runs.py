"""The duty of admission: queued runs whose time has come. They begin, or stand in line where their workflow has limits."""

from __future__ import annotations

import uuid
from datetime import datetime

from ..models import Run
from ..protocol.states import RunStatus
from . import admission, duty, runs, slots
from .locking import Held
from .transactions import database


def run_once(now: datetime, limit: int) -> int:
    """Let up to `limit` queued runs whose time has come begin or stand in line; returns how many were dealt with."""
    due = Run.objects.using(database()).filter(status=RunStatus.QUEUED, due_at__lte=now).order_by("due_at")
    return duty.work_off(due, limit, _come_due, lambda run_id, _: _postpone(run_id, now), run="pk")


def _come_due(held: Held, _: uuid.UUID) -> None:
    run = held.run
    if run.status != RunStatus.QUEUED or run.start_at > held.now:
        return
    if not slots.is_limited(run):
        admission.admit(held)
    elif run.deadline_at is not None and run.deadline_at <= held.now:
        runs.expire(held)
    elif not slots.is_in_line(run):
        admission.line_up(held)
    else:  # it was resumed, and has kept its place
        admission.keep_place(held)


def _postpone(run_id: uuid.UUID, now: datetime) -> None:
    duty.move_free(Run.objects.using(database()).filter(pk=run_id, status=RunStatus.QUEUED, due_at__lte=now), due_at=duty.later(now))
