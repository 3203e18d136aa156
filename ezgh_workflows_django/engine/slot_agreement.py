"""What must always hold of slots and lines (I4, I6), as questions to the database, and what `workflows_check --fix` may do about it.

`invariants` lists the questions beside its own, and looks a second time at what they find. Pure reads, but for `mend`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Final

from django.db.models import Count, F, QuerySet

from ..models import Definition, Rate, Run
from . import catalog, limits, slots
from .agreement import Finding
from .clock import Now
from .limits import Limits
from .transactions import database, verb

BATCH: Final = 500
"""How many buckets one statement names."""

_SLACK: Final = timedelta(seconds=10)
"""How long an admission that saw the definition before the newest one may take."""


def over_limit(now: datetime) -> Iterator[Finding]:
    """I6: no bucket has more runs at work than the limit under which the last of them was let in. A limit that is lowered ends nobody."""
    newest = cache(_newest)
    held = Run.objects.using(database()).filter(slots.HOLD_SLOTS, bucket__isnull=False).order_by()
    counts = held.values_list("app_id", "workflow", "bucket").annotate(n=Count("pk")).filter(n__gt=1)
    for app_id, workflow, bucket, count in counts:
        bounds, since = newest(app_id, workflow)
        if bounds.slots is None or count <= bounds.slots:
            continue
        begun = sorted(held.filter(bucket=bucket).values_list("started_at", "pk", "slot_key"))
        at, pk, key = begun[-1]
        if at is not None and at >= since:
            yield "I6", f"run {pk}", f"it is one of {count} runs of workflow {workflow}, key {key!r}, at work at once: {bounds.slots} are allowed; cancel some"


def forgotten(now: datetime) -> Iterator[Finding]:
    """I4, I6: whoever stands in line has somebody to wait for: a full bucket, a turn to come, or a look that is due."""
    for pk in _forgotten():
        yield "I4", f"run {pk}", "it stands in line, there is room for it, and nobody will look: `--fix` mends it"
    for pk in _untimed().values_list("pk", flat=True)[:BATCH]:
        yield "I4", f"run {pk}", "it stands in line past no deadline: nothing is due for the one it has"


def late(before: datetime) -> Iterator[Finding]:
    """I6: marks are looked at, and turns given, within a few ticks."""
    for run in Run.objects.using(database()).filter(slot_at__lt=before).only("pk", "slot_at")[:BATCH]:
        yield "I6", f"run {run.pk}", f"it has been marked for its slot since {run.slot_at}: does maintenance run?"
    for rate in Rate.objects.using(database()).filter(due_at__lt=before)[:BATCH]:
        yield "I6", f"workflow {rate.workflow}", f"a turn of its rate has been due since {rate.due_at}: does maintenance run?"


@verb
def mend() -> int:
    """Let maintenance look where it would not have looked; returns how many runs that is for."""
    found = Run.objects.using(database()).filter(pk__in=_forgotten())
    return found.update(slot_at=Now()) + _untimed().update(due_at=F("deadline_at"))


def _untimed() -> QuerySet[Run]:
    return Run.objects.using(database()).filter(slots.STAND_IN_LINE, deadline_at__isnull=False, due_at=None)


def _forgotten() -> list[uuid.UUID]:
    """The first in line wherever there is room and nobody will look."""
    unmarked = Run.objects.using(database()).filter(slots.STAND_IN_LINE, slot_at=None).order_by()
    told = set(Definition.objects.using(database()).filter(due_at__isnull=False).values_list("app_id", "workflow"))
    due_rates = set(Rate.objects.using(database()).filter(due_at__isnull=False).values_list("pk", flat=True))
    lines = [row for row in unmarked.values_list("app_id", "workflow", "bucket", "line").distinct() if row[:2] not in told and row[3] not in due_rates]
    found: list[uuid.UUID] = []
    for begin in range(0, len(lines), BATCH):
        found += _with_room(lines[begin : begin + BATCH])
    return found


def _with_room(lines: Sequence[tuple[int, str, uuid.UUID | None, uuid.UUID | None]]) -> Iterator[uuid.UUID]:
    buckets = {bucket for _, _, bucket, _ in lines if bucket is not None}
    held = slots.held(buckets)
    marked = set(Run.objects.using(database()).filter(bucket__in=buckets, slot_at__isnull=False).values_list("bucket", flat=True))
    for app_id, workflow, bucket, line in lines:
        bound = None if bucket is None else limits.newest(app_id, workflow).slots
        if bucket in marked or (bound is not None and bucket is not None and held.get(bucket, 0) >= bound):
            continue
        first = slots.in_line().filter(app=app_id, workflow=workflow, bucket=bucket, line=line, slot_at=None).values_list("pk", flat=True).first()
        if first is not None:
            yield first


def _newest(app_id: int, workflow: str) -> tuple[Limits, datetime]:
    since = Definition.objects.using(database()).filter(app=app_id, workflow=workflow).order_by(*catalog.NEWEST).values_list("created_at", flat=True)[0]
    return limits.newest(app_id, workflow), since + _SLACK
