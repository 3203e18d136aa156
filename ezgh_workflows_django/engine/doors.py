"""Refusing starts: where a workflow says `on_limit="reject"`, a start that finds no slot leaves nothing and says so.

Looked at inside the start, in its caller's transaction: whoever is being started in a bucket counts at once, before it is committed or let
in. Two starts of one bucket therefore wait for each other, until the first one's transaction ends; nobody else does.
"""

from __future__ import annotations

import uuid
from typing import Final

from ..definitions.plan import Plan
from ..errors import ConcurrencyLimit
from ..models import Run
from . import gates, limits, slots
from .limits import Limits
from .transactions import database

BUSY_AFTER_SECONDS: Final = 5


class Doors:
    """The slots that are left to the starts of one call, each bucket counted once."""

    def __init__(self) -> None:
        self._left: dict[uuid.UUID, int | None] = {}

    def close_behind(self, run: Run, plan: Plan) -> bool:
        """Let no other transaction start a run in this one's bucket, where a start may be refused; says whether it did now. Raises `StartBusy`."""
        if run.bucket is None or run.bucket in self._left or not _refuses(run, plan):
            return False
        gates.lock_door(run.bucket, BUSY_AFTER_SECONDS, slots.in_words(run))
        self._left[run.bucket] = _count(run)
        return True

    def let_in(self, run: Run) -> None:
        """Take one of the slots that are left. Raises `ConcurrencyLimit` where none is."""
        left = None if run.bucket is None else self._left.get(run.bucket)
        if run.bucket is None or left is None:
            return
        if left <= 0:
            raise ConcurrencyLimit(f"{slots.in_words(run)}: all slots are taken, and it refuses what finds none: start it again once one is free")
        self._left[run.bucket] = left - 1


def _refuses(run: Run, plan: Plan) -> bool:
    """A run that is due later is not refused now: it waits for a slot when its time has come. Nor is a child by its start (`admission`)."""
    return Limits.of(plan).on_limit == limits.REJECT and run.start_at <= run.created_at and run.parent_id is None


def _count(run: Run) -> int | None:
    """The slots that are left; None where the newest definition has no limit any more."""
    bound = limits.newest(run.app_id, run.workflow).slots
    if bound is None:
        return None
    taken = Run.objects.using(database()).filter(slots.HOLD_SLOTS | slots.STAND_IN_LINE, bucket=run.bucket).order_by()
    return bound - taken.values("pk")[:bound].count()
