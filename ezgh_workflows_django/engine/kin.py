"""What an end means for the runs above and below it: children that are left behind are cancelled, a parent that waits is told.

An end only marks its run (`Run.kin_at`), in its own transaction; everything here is a transaction of another run, and carried on by
maintenance where the process that made the end was lost.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from ..models import Checkpoint, Run
from ..protocol.states import TERMINAL_STEP
from . import children, duty, progress, pulse
from .locking import hold_free, insist
from .transactions import batched, database, verb

logger = logging.getLogger("ezgh_workflows.maintenance")

BATCH = 100
"""How many children the caller's process cancels after its commit; maintenance does the rest."""

TOGETHER = 100
"""How many children are cancelled in one transaction, which takes as many statements as cancelling one."""

ROUNDS = 20
"""How many batches of one run's children a tick cancels at most."""

LEFT = "the run that started it no longer waits for it"
"""Why a child was cancelled."""

AGAIN = timedelta(seconds=1)
"""When maintenance looks again at a run it could not finish with: a child was held by somebody."""


def after_end(runs: Sequence[Run]) -> None:
    """Right after the commit of something that ended in these runs: the first children left behind go, a parent whose last child this was is told.

    The mark stays for maintenance where there is more to do or somebody holds the parent; where that has other children at work, it is theirs to tell.
    """
    parents: dict[children.Siblings, None] = {}
    for run in {run.pk: run for run in runs}.values():
        if run.has_children:
            cancel_left_behind(run.pk, BATCH)
        siblings = children.siblings_of(run)
        if siblings is not None and run.is_terminal:
            parents[siblings] = None
    for siblings in parents:
        insist(partial(children.tell_parent, siblings))


def run_once(now: datetime, limit: int) -> int:
    """The duty of kin: see to up to `limit` runs that are marked; returns how many marks that took away or put off.

    A run that somebody holds keeps its mark, and is passed over: it does not count.
    """
    due = Run.objects.using(database()).filter(kin_at__lte=now).order_by("kin_at")
    return duty.in_pages(due, limit, lambda runs: _see_to(runs, now, limit), run="pk")


def _see_to(due: Sequence[Run], now: datetime, limit: int) -> tuple[int, set[uuid.UUID]]:
    """See to the kin of these; returns how many marks could be changed, and the runs whose could not."""
    done = [run for run in due if not run.has_children or _try_to(_cancel_all, run.pk, limit)]
    untold = {run.pk for run in _tell_parents(done)}
    told = [run for run in done if run.pk not in untold]
    moved = _clear(told) | _postpone([run for run in due if run not in told], now)
    return len(moved), {run.pk for run in due} - moved


def _tell_parents(done: Iterable[Run]) -> list[Run]:
    """Tell the parents of those that are over; returns those whose could not be told now, because somebody holds them for one."""
    families: dict[children.Siblings, list[Run]] = {}
    for run in done:
        siblings = children.siblings_of(run) if run.is_terminal else None
        if siblings is not None:
            families.setdefault(siblings, []).append(run)
    return [run for siblings, runs in families.items() if not _try_to(children.tell_parent, siblings) for run in runs]


def _cancel_all(run_id: uuid.UUID, limit: int) -> bool:
    """Cancel the children a run has left behind, batch after batch, but for a bound; says whether none is left."""
    for _ in range(ROUNDS):
        ended, left = cancel_left_behind(run_id, limit)
        if not left or not ended or pulse.is_turn_over():  # without any that ended, what is left is held by somebody
            return not left
    return False


def left_behind(run_id: uuid.UUID) -> QuerySet[Run]:
    """The children of a run that are at work for a step that is over, or has begun anew."""
    wanted = Checkpoint.objects.using(database()).filter(pk=OuterRef("parent_checkpoint")).exclude(step__status__in=TERMINAL_STEP)
    return Run.objects.using(database()).filter(~Exists(wanted), parent=run_id, ended_at=None)


def cancel_left_behind(run_id: uuid.UUID, limit: int) -> tuple[int, int]:
    """Cancel up to `limit` children that a run has left behind, some at a time; returns how many were, and how many of those seen are still at work.

    One that somebody holds is passed over: the next tick comes to it.
    """
    keys = list(left_behind(run_id).order_by("pk").values_list("pk", flat=True)[: limit + 1])
    ended = sum(_cancel_together(chunk) for chunk in batched(keys[:limit], TOGETHER))
    return ended, len(keys) - ended


def _cancel_together(keys: Sequence[uuid.UUID]) -> int:
    """Cancel those of these that nobody holds; returns how many. One that can't be read is left, and keeps none of the others at work."""
    try:
        count, now = _cancel(keys)
    except duty.BAD_ROW:
        if len(keys) > 1:
            return sum(_cancel_together([key]) for key in keys)
        logger.exception("run %s could not be cancelled, though the run that started it no longer waits for it; tried again in %s", keys[0], AGAIN)
        return 0
    if now is not None:
        pulse.beat(now)
    return count


@verb
def _cancel(keys: Sequence[uuid.UUID]) -> tuple[int, datetime | None]:
    """How many were free to be cancelled, and when that was."""
    held, work = hold_free(keys)
    if work is None:
        return 0, None
    live = [of_run for of_run in held.values() if not of_run.run.is_terminal]
    for of_run in live:
        work.record(of_run.run, "run.cancel_requested", by="parent", reason=LEFT)
    progress.cancel_all(live, LEFT)
    work.finish()
    return len(held), work.now


def _try_to(act: Callable[..., bool], *arguments: Any) -> bool:
    """Whether something could be done for one run; what fails stops itself only (spec: engine.md "Time")."""
    try:
        return act(*arguments)
    except Exception:
        logger.exception("could not see to the kin of %s; left alone for %s", arguments[0], AGAIN)
        return False


def _clear(runs: Iterable[Run]) -> set[uuid.UUID]:
    """Take the marks that were read away; one that was set anew meanwhile stays, and so does one whose run somebody holds."""
    marks = Q()
    for run in runs:
        marks |= Q(pk=run.pk, kin_at=run.kin_at)
    return duty.move_free(Run.objects.using(database()).filter(marks), kin_at=None) if marks else set()


def _postpone(runs: Sequence[Run], now: datetime) -> set[uuid.UUID]:
    """What could not be finished is looked at again later, so that it keeps nobody else waiting."""
    rows = Run.objects.using(database()).filter(pk__in=[run.pk for run in runs], kin_at__lte=now)
    return duty.move_free(rows, kin_at=now + AGAIN) if runs else set()
