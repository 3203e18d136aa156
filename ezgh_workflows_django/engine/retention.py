"""The duty of retention: what ended long ago goes, in batches, each run under its lock. Never a live run, never one just retried."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet

from ..conf import app_settings
from ..models import Checkpoint, Event, JournalEntry, Lease, Receipt, Run, RunLabel, SpanRecord, Step, UsageRecord, Wait
from . import duty
from .locking import Held
from .transactions import database

HANGING_ON_RUNS = (JournalEntry, UsageRecord, SpanRecord, Lease, Checkpoint, Wait, Receipt, RunLabel, Step, Event)


def run_once(now: datetime, limit: int) -> int:
    """Delete up to `limit` runs past `RETENTION` and as many events past `EVENT_RETENTION`; returns how many were looked at."""
    return prune(now, limit, app_settings.RETENTION) + _prune_events(now, limit)


def prune(now: datetime, limit: int, keep: timedelta) -> int:
    """Delete up to `limit` runs that are `due`; returns how many were looked at. A run that somebody holds is passed over."""
    return delete(list(due(now, keep)[:limit].values_list("pk", flat=True)), now, keep)


def delete(run_ids: Iterable[uuid.UUID], now: datetime, keep: timedelta) -> int:
    """Delete those of these runs that are `due` under their locks: a retry may have opened one a moment ago, and it may have ended anew."""
    return duty.each([(pk, pk) for pk in run_ids], lambda held, pk: _delete(held) if due(now, keep).filter(pk=pk).exists() else None, lambda _: None)


def due(now: datetime, keep: timedelta) -> QuerySet[Run]:
    """The runs that ended more than `keep` before `now`, the oldest first; one with a key stays `IDEMPOTENCY_TTL`.

    A child stays while its parent is at work, which reads what it came to, and a parent while one of its children is (I15).
    """
    old = Q(ended_at__lte=now - keep) & (Q(idempotency_key=None) | Q(ended_at__lte=now - app_settings.IDEMPOTENCY_TTL))
    runs = Run.objects.using(database())
    needed = Exists(runs.filter(pk=OuterRef("parent"), ended_at=None)) | Exists(runs.filter(parent=OuterRef("pk"), ended_at=None))
    return runs.filter(old, kin_at=None, slot_at=None).exclude(needed).order_by("ended_at")


def _delete(held: Held) -> None:
    run_id: uuid.UUID = held.run.pk
    for model in HANGING_ON_RUNS:
        model._default_manager.using(database()).filter(run=run_id)._raw_delete(database())
    Run.objects.using(database()).filter(pk=run_id)._raw_delete(database())


def _prune_events(now: datetime, limit: int) -> int:
    """Events nobody can take any more; a signal goes with its run."""
    old = Event.objects.using(database()).filter(run=None, due_at=None, created_at__lte=now - app_settings.EVENT_RETENTION)
    keys = list(old.order_by("created_at").values_list("pk", flat=True)[:limit])
    Receipt.objects.using(database()).filter(event__in=keys).delete()
    Event.objects.using(database()).filter(pk__in=keys).delete()
    return len(keys)
