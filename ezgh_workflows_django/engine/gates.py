"""The locks that admissions take turns by. A gate guards the counting of many buckets: which ones is chosen by hash, so they need no row each.

Lock order of an admission: the rate's row, gates by number, then runs, which it never waits for. A gate is held for one short transaction of
the engine's own. Doors are locked by starts that may be refused, in their callers' transactions, and by nothing else: there they are waited
for without standing in the database's queue, so that no deadlock undoes a caller's transaction. SQLite has one writer, who needs neither.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection
from typing import Final

from django.db import connections

from ..errors import StartBusy
from ..models import Gate
from . import writer
from .locking import locked
from .transactions import database

GATES: Final = 128
_LOOK_AGAIN_SECONDS: Final = 0.02


def ensure() -> None:
    """Make the gates and doors that are missing. `migrate` does: to make a row that others want too leaves locks behind on MariaDB."""
    if not _has_locks():
        return
    there = set(Gate.objects.using(database()).values_list("number", flat=True))
    missing = [Gate(number=number) for number in range(2 * GATES) if number not in there]
    Gate.objects.using(database()).bulk_create(missing, ignore_conflicts=True)


def lock(buckets: Collection[uuid.UUID]) -> None:
    """Wait for the gates of these buckets."""
    if not _has_locks():
        return
    numbers = {_gate(bucket) for bucket in buckets}
    if len(_locked(numbers)) < len(numbers):
        ensure()
        _locked(numbers)


def lock_free(buckets: Collection[uuid.UUID]) -> set[uuid.UUID]:
    """Lock the gates of those of these buckets that nobody holds; returns these buckets."""
    if not _has_locks():
        return set(buckets)
    numbers = {_gate(bucket) for bucket in buckets}
    free = set(_locked(numbers, skip_locked=True))
    if len(free) < len(numbers):
        _ensure_some(numbers)
    return {bucket for bucket in buckets if _gate(bucket) in free}


def lock_door(bucket: uuid.UUID, within: float, what: str) -> None:
    """Be the only start that is being let into a bucket, until this transaction ends. Raises `StartBusy` after `within` seconds; `what` names it."""
    until = time.monotonic() + within
    try:
        if not _has_locks():
            return writer.become_writer(connections[database()], within)
        while not _locked([_door(bucket)], skip_locked=True):
            if time.monotonic() >= until:
                raise writer.WriterBusy
            _ensure_some({_door(bucket)})
            time.sleep(_LOOK_AGAIN_SECONDS)
    except writer.WriterBusy as error:
        message = f"another transaction has been starting a run of {what} for over {within:g} s, so nobody can tell yet whether a slot is free: try again"
        raise StartBusy(message) from error
    return None


def _ensure_some(numbers: Collection[int]) -> None:
    if Gate.objects.using(database()).filter(number__in=numbers).count() < len(numbers):
        ensure()


def _gate(bucket: uuid.UUID) -> int:
    return bucket.int % GATES


def _door(bucket: uuid.UUID) -> int:
    return GATES + bucket.int % GATES


def _has_locks() -> bool:
    return connections[database()].features.has_select_for_update


def _locked(numbers: Collection[int], *, skip_locked: bool = False) -> list[int]:
    rows = locked(Gate.objects.using(database()).filter(number__in=numbers).order_by("number"), skip_locked=skip_locked)
    return list(rows.values_list("number", flat=True))
