"""When a lab has something to do next. What its own heartbeats put off in time is not due: nobody stops for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

from django.db.models import Min, QuerySet

from ..engine import maintenance
from ..engine.transactions import database
from ..models import Lease, Step, Worker


def moments(now: datetime, leases: Collection[str], sessions: Collection[str]) -> Iterator[datetime]:
    """The next moments after `now` of every duty and of the claims, but for those of these leases and worker sessions, which live on."""
    kept = {
        "leases": Lease.objects.filter(due_at__isnull=False).exclude(pk__in=leases).order_by("due_at").values("due_at")[:1],
        "workers": Worker.objects.filter(left_at=None).exclude(pk__in=sessions).order_by("seen_at").values("seen_at")[:1],
    }
    for duty in (each for each in maintenance.DUTIES if not each.steady):
        earliest = _value(kept[duty.name] if duty.name in kept else duty.earliest())
        if earliest is not None and earliest + duty.keep() > now:
            yield earliest + duty.keep()
    claimable = Step.objects.using(database()).filter(claim_order__isnull=False, available_at__gt=now)
    available_at: datetime | None = claimable.aggregate(earliest=Min("available_at"))["earliest"]
    if available_at is not None:
        yield available_at


def _value(rows: QuerySet[Any]) -> datetime | None:
    found: list[dict[str, datetime]] = list(rows.using(database()))
    return next(iter(found[0].values())) if found else None
