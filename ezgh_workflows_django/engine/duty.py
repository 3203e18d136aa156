"""What every maintenance duty does alike: rows that are due, each in a transaction of its own, one bad row stopping itself only.

Nothing here waits for a run that somebody holds: it is passed over with all its rows, and the next tick comes to it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from django.db.models import Model, QuerySet

from ..errors import InvalidPayload
from . import pulse
from .locking import Held, hold_free, locked
from .transactions import verb

logger = logging.getLogger("ezgh_workflows.maintenance")

K = TypeVar("K")
M = TypeVar("M", bound=Model)
R = TypeVar("R")

POSTPONE = timedelta(minutes=5)
"""How long a row that could not be dealt with is left alone."""

MOST_PASSED: Final = 500
"""How many runs that somebody holds one call passes over at most."""

BAD_ROW: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, InvalidPayload)
"""What it raises to read, or to reckon with, a row that no verb would have written: it stops itself only (spec: engine.md "Time")."""


def work_off(
    due: QuerySet[Any], limit: int, act: Callable[[Held, Any], object], postpone: Callable[[uuid.UUID, Any], object], *, run: str = "run_id", key: str = "pk"
) -> int:
    """Deal with up to `limit` rows of `due`, in its order, each known by its `key` and its `run`; returns how many were dealt with.

    A run that somebody holds is passed over, and those behind it have their turn: it does not count. A row that fails is logged and postponed.
    """

    def see_to(rows: list[tuple[Any, uuid.UUID]]) -> tuple[int, set[uuid.UUID]]:
        count, held = 0, set[uuid.UUID]()
        for row_key, run_id in rows:
            if run_id in held:
                continue
            if _try(run_id, row_key, act, postpone):
                count += 1
            else:
                held.add(run_id)
        return count, held

    return in_pages(due.values_list(key, run), limit, see_to, run=run)


def in_pages(due: QuerySet[Any, R], limit: int, see_to: Callable[[list[R]], tuple[int, set[uuid.UUID]]], *, run: str) -> int:
    """Let `see_to` see to up to `limit` rows of `due`, in its order; it gives how many it dealt with, and the runs that it had to pass over.

    What belongs to these is left out of the next page, so that those behind have their turn. Returns how many were dealt with.
    """
    count = 0
    passed: set[uuid.UUID] = set()
    while count < limit and len(passed) < MOST_PASSED:
        rows = due.exclude(**{f"{run}__in": passed}) if passed else due
        page = list(rows[: limit - count])
        is_last = len(page) < limit - count
        dealt_with, held = see_to(page)
        count += dealt_with
        passed |= held
        if is_last or not held:
            break
    return count


def each(rows: Iterable[tuple[K, uuid.UUID]], act: Callable[[Held, K], object], postpone: Callable[[K], object]) -> int:
    """As `work_off`, for rows that are known already, each given as its key and its run; returns how many were looked at."""
    return len([_try(run_id, key, act, lambda _, key: postpone(key)) for key, run_id in rows])


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
        pulse.look()
    return count


@verb
def move_free(rows: QuerySet[M], **fields: object) -> set[Any]:
    """Change those of these rows that nobody holds, without waiting for the others; returns the keys of those that were."""
    free = set(locked(rows.order_by("pk"), skip_locked=True).values_list("pk", flat=True))
    if free:
        rows.filter(pk__in=free).update(**fields)
    return free


def later(now: datetime) -> datetime:
    """When a postponed row is looked at again."""
    return now + POSTPONE


def _try(run_id: uuid.UUID, key: K, act: Callable[[Held, K], object], postpone: Callable[[uuid.UUID, K], object]) -> bool:
    """Whether a row could be dealt with; false where somebody holds its run."""
    try:
        now = _one(run_id, key, act)
    except Exception:  # one bad row must never stop the queue (spec: engine.md "Time")
        logger.exception("maintenance could not deal with %s of run %s; left alone for %s", key, run_id, POSTPONE)
        postpone(run_id, key)
        return True
    if now is not None:
        pulse.beat(now)
    return now is not None


@verb
def _one(run_id: uuid.UUID, key: K, act: Callable[[Held, K], object]) -> datetime | None:
    """The moment this was done at; None where somebody holds the run."""
    held, work = hold_free([run_id])
    if work is None:
        return None
    act(held[run_id], key)
    work.finish()
    return work.now
