"""What every maintenance duty does alike: rows that are due, each in a transaction of its own, one bad row stopping itself only."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final, TypeVar

from ..errors import InvalidPayload
from .locking import Held, hold_free
from .transactions import verb

logger = logging.getLogger("ezgh_workflows.maintenance")

K = TypeVar("K")

POSTPONE = timedelta(minutes=5)
"""How long a row that could not be dealt with is left alone."""

BAD_ROW: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, InvalidPayload)
"""What it raises to read, or to reckon with, a row that no verb would have written: it stops itself only (spec: engine.md "Time")."""


def each(rows: Iterable[tuple[K, uuid.UUID]], act: Callable[[Held, K], None], postpone: Callable[[K], None]) -> int:
    """Deal with due rows, each given as its key and its run; returns how many were looked at.

    A run that somebody holds is passed over: the next tick comes to it. A row that fails is logged and postponed.
    """
    return one_by_one(rows, lambda row: _one(row[1], row[0], act), lambda row: postpone(row[0]), lambda row: f"{row[0]} of run {row[1]}")


def one_by_one(keys: Iterable[K], act: Callable[[K], object], postpone: Callable[[K], object], named: Callable[[K], str] = str) -> int:
    """Deal with rows of any kind, given by their keys; returns how many were looked at. One that fails is logged, as `named`, and postponed."""
    count = 0
    for key in keys:
        count += 1
        try:
            act(key)
        except Exception:  # one bad row must never stop the queue (spec: engine.md "Time")
            logger.exception("maintenance could not deal with %s; left alone for %s", named(key), POSTPONE)
            postpone(key)
    return count


@verb
def _one(run_id: uuid.UUID, key: K, act: Callable[[Held, K], None]) -> None:
    held, work = hold_free([run_id])
    if work is not None:
        act(held[run_id], key)
        work.finish()


def later(now: datetime) -> datetime:
    """When a postponed row is looked at again."""
    return now + POSTPONE
