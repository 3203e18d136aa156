"""Who is next: those in line, in order, whose buckets have a slot left. Counts from the rows, under the buckets' gates; lets nobody in."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Final

from django.db.models import QuerySet

from ..models import Run
from . import catalog, gates, slots
from .duty import BAD_ROW

WINDOW: Final = 100
"""How many of a line are read at once while those whose buckets are full are passed over."""


class BadRun(Exception):
    """A run in line that can't be dealt with: it is to be set aside, so that it stops itself only."""

    def __init__(self, run_id: uuid.UUID) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id}")


class Free:
    """The slots that buckets have left, each counted once, while this transaction holds its gate. `busy` are those whose gate was another's."""

    def __init__(self, limit: int | None) -> None:
        self.busy: set[uuid.UUID] = set()
        self._limit = limit
        self._left: dict[uuid.UUID, int] = {}

    def count(self, buckets: Collection[uuid.UUID], *, waits: bool) -> None:
        """Lock the gates of these buckets, waiting for them or not, and count."""
        new = set(buckets) - self._left.keys() - self.busy
        if self._limit is None or not new:
            return
        if waits:
            gates.lock(new)
        else:
            free = gates.lock_free(new)
            self.busy |= new - free
            new = free
        held = slots.held(new)
        self._left |= {bucket: self._limit - held.get(bucket, 0) for bucket in new}

    def take(self, bucket: uuid.UUID | None) -> bool:
        """Take a slot of a bucket, if it has one left; a run that is counted in none needs none."""
        if bucket is None or self._limit is None:
            return True
        if self._left.get(bucket, 0) <= 0:
            return False
        self._left[bucket] -= 1
        return True

    def is_full(self, bucket: uuid.UUID) -> bool:
        """Whether a bucket was counted, and has no slot left."""
        return bucket in self._left and self._left[bucket] <= 0

    @property
    def shut(self) -> list[uuid.UUID]:
        """The buckets that nobody can be let into now."""
        return [*self.busy, *(bucket for bucket in self._left if self.is_full(bucket))]


def choose(rows: QuerySet[Run], free: Free, room: int) -> list[uuid.UUID]:
    """The first of these rows that there are slots for, at most `room`. Raises `BadRun` where a run's definition can't be read."""
    chosen: list[uuid.UUID] = []
    while len(chosen) < room:
        left = rows.exclude(bucket__in=free.shut).exclude(pk__in=chosen)
        found = list(left.values_list("pk", "bucket", "version", "definition_id")[:WINDOW])
        free.count({bucket for _, bucket, *_ in found if bucket is not None}, waits=False)
        for pk, bucket, version, definition_id in found:
            if len(chosen) < room and free.take(bucket):
                _check_readable(pk, version, definition_id)
                chosen.append(pk)
        if len(found) < WINDOW:
            break
    return chosen


def _check_readable(pk: uuid.UUID, version: str, definition_id: int) -> None:
    try:
        catalog.plan(version, definition_id)
    except BAD_ROW as error:
        raise BadRun(pk) from error
