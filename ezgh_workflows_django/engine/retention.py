"""The duty of retention: what ended long ago goes, in batches, each run under its lock. Never a live run, never one just retried.

What is old and must be kept all the same is looked at again later (`Run.kept_since`): it never keeps the duty busy, nor what is behind it waiting.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connections
from django.db.models import Exists, OuterRef, Q, QuerySet

from ..conf import app_settings
from ..models import Checkpoint, Event, JournalEntry, Lease, Receipt, Run, RunLabel, SpanRecord, Step, UsageRecord, Wait
from . import duty
from .locking import Held
from .transactions import database, verb

HANGING_ON_RUNS = (JournalEntry, UsageRecord, SpanRecord, Lease, Checkpoint, Wait, Receipt, RunLabel, Step, Event)


SOONEST: Final = timedelta(minutes=1)
LATEST: Final = timedelta(days=1)
"""A run that must be kept for its kin is looked at again after a thirtieth of `RETENTION`, but not sooner than this and not later than that."""


def earliest() -> QuerySet[Any]:
    """What the retention of the run that is looked at first counts from: `RETENTION` later it may be deleted."""
    return _kept().values("kept_since")[:1]


def run_once(now: datetime, limit: int) -> int:
    """Delete up to `limit` runs past `RETENTION` and as many events past `EVENT_RETENTION`; returns how many were looked at."""
    return _look_at_kept(now, limit) + _prune_events(now, limit)


def prune(now: datetime, limit: int, keep: timedelta) -> int:
    """Delete up to `limit` runs that are `due`; returns how many were looked at. A run that somebody holds is passed over."""
    return duty.work_off(due(now, keep), limit, lambda held, _: _delete_due(held, now, keep), lambda *_: None, run="pk")


def delete(run_ids: Iterable[uuid.UUID], now: datetime, keep: timedelta) -> int:
    """Delete those of these runs that are `due` under their locks: a retry may have opened one a moment ago, and it may have ended anew."""
    return duty.each([(pk, pk) for pk in run_ids], lambda held, _: _delete_due(held, now, keep), lambda _: None)


def due(now: datetime, keep: timedelta) -> QuerySet[Run]:
    """The runs that ended more than `keep` before `now`, the oldest first; one with a key stays `IDEMPOTENCY_TTL`.

    A child stays while its parent is at work, which reads what it came to, and a parent while one of its children is (I15).
    """
    old = Q(ended_at__lte=now - keep) & (Q(idempotency_key=None) | Q(ended_at__lte=now - app_settings.IDEMPOTENCY_TTL))
    runs = Run.objects.using(database())
    needed = Exists(runs.filter(pk=OuterRef("parent"), ended_at=None)) | Exists(runs.filter(parent=OuterRef("pk"), ended_at=None))
    return runs.filter(old, kin_at=None, slot_at=None).exclude(needed).order_by("ended_at")


def _look_at_kept(now: datetime, limit: int) -> int:
    """Delete the next runs; those that must be kept are looked at again when that may be over."""
    keep = app_settings.RETENTION
    rows = _kept().using(database()).filter(kept_since__lte=now - keep)
    return duty.work_off(rows, limit, lambda held, _: _see_to(held, now, keep), lambda run_id, _: _put_off(run_id, now), run="pk")


def _kept() -> QuerySet[Run]:
    """The runs that are over, in the order they are looked at; one that is marked waits for another duty."""
    return Run.objects.filter(kept_since__isnull=False, kin_at=None, slot_at=None).order_by("kept_since")


def _see_to(held: Held, now: datetime, keep: timedelta) -> None:
    if not _delete_due(held, now, keep):
        _keep(held, now, keep)


def _keep(held: Held, now: datetime, keep: timedelta) -> None:
    """Look at this run again when its key has served, where that is why it is kept, else a while later."""
    run = held.run
    if run.ended_at is None:  # no verb leaves such a row
        return held.work.move(run, kept_since=None)
    until = run.ended_at + (keep if run.idempotency_key is None else max(keep, app_settings.IDEMPOTENCY_TTL))
    if until <= now:
        until = now + min(max(keep / 30, SOONEST), LATEST)
    return held.work.move(run, kept_since=until - keep)


def _put_off(run_id: uuid.UUID, now: datetime) -> None:
    """A run that can't be deleted keeps nobody else waiting."""
    over = Run.objects.using(database()).filter(pk=run_id, kept_since__isnull=False)
    duty.move_free(over, kept_since=duty.later(now) - app_settings.RETENTION)


def _delete_due(held: Held, now: datetime, keep: timedelta) -> bool:
    is_due = due(now, keep).filter(pk=held.run.pk).exists()
    if is_due:
        _delete(held)
    return is_due


def _delete(held: Held) -> None:
    run_id: uuid.UUID = held.run.pk
    for model in HANGING_ON_RUNS:
        model._default_manager.using(database()).filter(run=run_id)._raw_delete(database())
    Run.objects.using(database()).filter(pk=run_id)._raw_delete(database())


@verb
def _prune_events(now: datetime, limit: int) -> int:
    """Events nobody can take any more; a signal goes with its run. One that somebody holds is passed over."""
    old = Event.objects.using(database()).filter(run=None, due_at=None, created_at__lte=now - app_settings.EVENT_RETENTION).order_by("created_at")
    if connections[database()].features.has_select_for_update_skip_locked:
        old = old.select_for_update(skip_locked=True)
    keys = list(old.values_list("pk", flat=True)[:limit])
    Receipt.objects.using(database()).filter(event__in=keys)._raw_delete(database())
    Event.objects.using(database()).filter(pk__in=keys)._raw_delete(database())
    return len(keys)
