"""Where a run of a limited workflow is counted, and whether it holds a slot or stands in line. Questions about rows; lets nobody in.

A run holds a slot of its bucket while it is at work: running, failing, or paused out of either. That is read from its own row, so a slot
can't leak and can't be given back twice: a run that is over has none. A run in line is `queued` and has a place there.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection
from typing import Final

from django.db.models import Count, Q, QuerySet

from ..definitions.plan import Plan
from ..models import Run
from ..protocol.states import RunStatus
from .transactions import database

HOLD_SLOTS: Final = Q(status__in=[RunStatus.RUNNING, RunStatus.FAILING]) | Q(status=RunStatus.PAUSED) & ~Q(paused_from=RunStatus.QUEUED)
STAND_IN_LINE: Final = Q(status=RunStatus.QUEUED, queue_order__isnull=False)


def bucket_of(app_id: int, workflow: str, key: str) -> uuid.UUID:
    """What runs of a workflow with that key are counted in. No part of it can hold a NUL, so no two buckets share a text."""
    return _digest(str(app_id), workflow, key)


def line_of(app_id: int, workflow: str) -> uuid.UUID:
    """The rate whose turns the runs of a workflow take."""
    return _digest(str(app_id), workflow)


def assign(run: Run, plan: Plan, key: str | None, shared: Collection[uuid.UUID] = ()) -> None:
    """Say where a new run is counted and whose turns it takes. A bucket of `shared` is one that a run above it holds a slot of, for both."""
    run.slot_key = key
    if key is not None:
        bucket = bucket_of(run.app_id, run.workflow, key)
        run.bucket = None if bucket in shared else bucket
    run.line = line_of(run.app_id, run.workflow) if plan.rate else None


def shared_by(parent: Run) -> frozenset[uuid.UUID]:
    """The buckets in which a run at work and those above it hold slots, which its children share: one statement a generation."""
    buckets: set[uuid.UUID] = set()
    run: Run | None = parent
    while run is not None:
        if run.slot_key is not None and is_admitted(run) and not run.is_terminal:
            buckets.add(bucket_of(run.app_id, run.workflow, run.slot_key))
        run = None if run.parent_id is None else _above(run.parent_id)
    return frozenset(buckets)


def is_limited(run: Run) -> bool:
    """Whether the run has to be let in: it needs a slot, or a turn."""
    return run.bucket is not None or run.line is not None


def is_in_line(run: Run) -> bool:
    """Whether the run waits to be let in, from now on."""
    return run.status == RunStatus.QUEUED and run.queue_order is not None


def is_admitted(run: Run) -> bool:
    """Whether this episode of the run has begun."""
    return run.status != RunStatus.QUEUED and not (run.is_paused and run.paused_from == RunStatus.QUEUED)


def in_words(run: Run) -> str:
    """The bucket of a run, for people."""
    return f"workflow {run.workflow}, key {run.slot_key}" if run.slot_key else f"workflow {run.workflow}"


def in_line() -> QuerySet[Run]:
    """Every run that waits to be let in, the first of each line before those behind it."""
    return Run.objects.using(database()).filter(STAND_IN_LINE).order_by("queue_order", "pk")


def held(buckets: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
    """How many slots of these buckets are held; one of which none is held is left out."""
    rows = Run.objects.using(database()).filter(HOLD_SLOTS, bucket__in=buckets).order_by()
    return dict(rows.values_list("bucket").annotate(Count("pk")))


def _above(run_id: uuid.UUID) -> Run | None:
    columns = ("pk", "app_id", "workflow", "status", "paused_from", "slot_key", "parent_id")
    return Run.objects.using(database()).only(*columns).filter(pk=run_id).first()


def _digest(*parts: str) -> uuid.UUID:
    return uuid.UUID(bytes=hashlib.blake2b("\0".join(parts).encode(), digest_size=16).digest(), version=5)  # MariaDB takes no UUID without a version
