"""Letting runs begin: at their time and, where their workflow has limits, once there is a slot and a turn for them.

Nobody is let in by the transaction that starts a run or ends one: it only marks the run (`Run.slot_at`). What follows from that is a
transaction of its own: the process that committed looks at once, and maintenance carries on where it was lost (`marks`). A mark goes only
after a look that began when it was there and that left nothing to do, so no slot is forgotten; slots are counted from the rows of runs,
under their buckets' gates, so there are never more than the limit, whoever looks at the same moment.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from django.db.models import Exists, OuterRef, QuerySet

from ..models import Run, Step
from ..protocol.failures import Failure
from ..protocol.states import FailureClass, RunStatus, StepKind, StepStatus
from . import announce, catalog, duty, limits, progress, pulse, rates, runs, slots, superseding
from .choosing import BadRun, Free, choose
from .clock import Now
from .duty import BAD_ROW
from .limits import Limits
from .locking import Held, hold_free
from .transactions import batched, database, verb

logger = logging.getLogger("ezgh_workflows.maintenance")

BATCH: Final = 100
"""How many runs are let in, and buckets looked at, in one transaction; and how many runs' ends and starts a process sees to after its commit."""

ROUNDS: Final = 20
"""How many such transactions maintenance makes for one batch of buckets before it goes on to other things."""

AGAIN: Final = timedelta(seconds=1)
"""When maintenance looks again where somebody held what was needed."""


class _Left(Enum):
    """What a look leaves: nothing to do, more of the same, or what somebody else held."""

    NOTHING = "nothing"
    MORE = "more"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class _Search:
    """Where a look looks: those in line of one workflow, some buckets that are counted first, and the marked runs that brought it here."""

    app_id: int
    workflow: str
    limits: Limits
    rows: QuerySet[Run]
    buckets: Sequence[uuid.UUID]
    marked: Sequence[Run]


def admit(held: Held, steps: Iterable[Step] | None = None) -> None:
    """Let a queued run begin: its first steps open, or these, which nothing blocks."""
    held.work.move(held.run, status=RunStatus.RUNNING, started_at=held.now, due_at=held.run.deadline_at)
    held.work.record(held.run, "run.started")
    held.work.after(lambda: announce.run_started(held.run))
    progress.open_steps(held, held.steps(held.plan.roots) if steps is None else steps)


def line_up(held: Held) -> None:
    """The time of a queued run of a limited workflow has come: it stands in line, behind those who were due before it or matter more."""
    _join(held, held.run.start_at)


def keep_place(held: Held) -> None:
    """A run that stood in line before it was paused stands there again."""
    held.work.move(held.run, due_at=held.run.deadline_at, slot_at=held.now)
    held.work.after_together(after_commit, held.run)


def take_slot_again(held: Held) -> None:
    """A run that was over has begun a new episode: where it needs a slot or a turn for that, it goes to the end of its line.

    One that had shared the slot of a run above it takes one of its own where that run is no longer at work.
    """
    run = held.run
    if run.bucket is None and run.slot_key is not None and run.parent_id is not None:
        own = slots.bucket_of(run.app_id, run.workflow, run.slot_key)
        above = Run.objects.using(database()).filter(pk=run.parent_id).first()
        held.work.move(run, bucket=own if above is None or own not in slots.shared_by(above) else None)
    if slots.is_limited(run):
        held.work.move(run, status=RunStatus.QUEUED)
        _join(held, held.now)


def after_commit(marked: Sequence[Run]) -> None:
    """Right after the commit of what marked these runs: see to the first of them. The marks stay until maintenance has looked too."""
    for (app_id, workflow), group in families(marked).items():
        look(app_id, workflow, group[:BATCH], rounds=1)


def families(marked: Iterable[Run]) -> Mapping[tuple[int, str], list[Run]]:
    """Runs by their workflow, whose limits they share."""
    found: dict[tuple[int, str], list[Run]] = defaultdict(list)
    for run in marked:
        found[run.app_id, run.workflow].append(run)
    return found


def look(app_id: int, workflow: str, marked: Sequence[Run], rounds: int = ROUNDS) -> bool:
    """Let in whoever may be where these runs have come or gone, or, without any, wherever a turn is free. Says whether nothing more can be done now."""
    buckets = _waited_for(marked)
    loose = [run.pk for run in marked if run.bucket is None and slots.is_in_line(run)]
    if marked and not buckets and not loose:
        return True
    bounds = limits.newest(app_id, workflow)
    is_done = superseding.cancel_older(bounds, [run.bucket for run in marked if run.bucket is not None and slots.is_in_line(run)])
    if bounds.turns is not None:
        line = slots.line_of(app_id, workflow)
        is_done &= _move_to(line, [run.pk for run in marked if run.line != line and slots.is_in_line(run)])
        return _carry_out(_Search(app_id, workflow, bounds, slots.in_line().filter(line=line), (), marked), rounds) and is_done
    for chunk in batched(buckets, BATCH):
        is_done &= _carry_out(_Search(app_id, workflow, bounds, slots.in_line().filter(bucket__in=chunk), chunk, marked), rounds)
    for chunk in batched(loose, BATCH):
        is_done &= _carry_out(_Search(app_id, workflow, bounds, slots.in_line().filter(pk__in=chunk), (), marked), rounds)
    return is_done


def try_to_look(app_id: int, workflow: str, marked: Sequence[Run]) -> bool:
    """As `look`, for maintenance: what fails is logged, stops this workflow only, and leaves something to do."""
    try:
        return look(app_id, workflow, marked)
    except Exception:
        logger.exception("could not let runs of workflow %s of app %d in; left alone for a while", workflow, app_id)
        return False


def _join(held: Held, since: datetime) -> None:
    place = held.work.after_together(after_commit, held.run)  # those of one call stand behind each other, though their moment is one
    order = progress.claim_order(since, held.run.priority) + place * timedelta(microseconds=1)
    held.work.move(held.run, queue_order=order, due_at=held.run.deadline_at, slot_at=held.now)


def _waited_for(marked: Sequence[Run]) -> list[uuid.UUID]:
    """The buckets of these runs that somebody stands in line for."""
    found = {run.bucket for run in marked if slots.is_in_line(run)}
    gone = [run.pk for run in marked if run.bucket not in found]
    if gone:
        behind = Run.objects.using(database()).filter(slots.STAND_IN_LINE, bucket=OuterRef("bucket"))
        found.update(Run.objects.using(database()).filter(Exists(behind), pk__in=gone).values_list("bucket", flat=True))
    return sorted(bucket for bucket in found if bucket is not None)


def _carry_out(search: _Search, rounds: int) -> bool:
    for _ in range(rounds):
        try:
            left = _let_in(search)
        except BadRun as bad:
            logger.exception("run %s could not be let in; left alone for %s", bad.run_id, duty.POSTPONE)
            _set_aside(bad.run_id)
            continue
        pulse.look()
        if left is not _Left.MORE:
            return left is _Left.NOTHING
    return False


@verb
def _let_in(search: _Search) -> _Left:
    """One look. Locks the rate's row if there is one, the gates, then those of the chosen runs that nobody holds."""
    bounds = search.limits
    turns = None if bounds.turns is None else rates.hold(slots.line_of(search.app_id, search.workflow), search.app_id, search.workflow, bounds, BATCH)
    free = Free(bounds.slots)
    free.count(search.buckets, waits=True)
    chosen = choose(search.rows, free, BATCH if turns is None else turns.left)
    refused = _refused(search, free, chosen)
    held, work = hold_free([*chosen, *refused])
    in_line = {pk: each for pk, each in held.items() if slots.is_in_line(each.run)}
    late = {pk for pk, each in in_line.items() if each.run.deadline_at is not None and each.run.deadline_at <= each.now}
    ready = [in_line[pk] for pk in chosen if pk in in_line and pk not in late]
    left = _left(len(chosen), len(ready), is_held=bool(free.busy) or len(held) < len(chosen) + len(refused))
    for pk in late:
        runs.expire(in_line[pk])
    for pk in refused:
        if pk in in_line and pk not in late:
            _refuse(in_line[pk])
    _begin(ready, is_last=left is _Left.NOTHING)
    if work is not None:
        work.finish()
    if turns is not None:
        turns.take(len(ready), turns.now if work is None else work.now)
        again = {_Left.NOTHING: turns.next_at if len(ready) == turns.left else None, _Left.MORE: turns.now, _Left.HELD: turns.now + AGAIN}
        turns.look_again(again[left])
    return left


def _left(chosen: int, ready: int, *, is_held: bool) -> _Left:
    if chosen == BATCH and ready:
        return _Left.MORE
    if is_held:
        return _Left.HELD
    return _Left.MORE if ready < chosen else _Left.NOTHING


def _begin(ready: Sequence[Held], *, is_last: bool) -> None:
    """Let these in: the steps that nothing blocks are read in one statement. Where the look leaves nothing, their own marks go with it."""
    steps: dict[uuid.UUID, list[Step]] = defaultdict(list)
    rows = Step.objects.using(database()).filter(run__in=[each.run for each in ready], status=StepStatus.BLOCKED, blockers=0).exclude(kind=StepKind.ON_FAILURE)
    for step in rows.order_by("position", "pk") if ready else ():
        steps[step.run_id].append(step)
    for each in ready:
        each.adopt(steps[each.run.pk])
        try:
            admit(each, steps[each.run.pk])
        except BAD_ROW as error:
            raise BadRun(each.run.pk) from error
        if is_last:
            each.work.move(each.run, slot_at=None)


def _refused(search: _Search, free: Free, chosen: Sequence[uuid.UUID]) -> list[uuid.UUID]:
    """Those of the marked runs that are refused where their bucket is full: children, whose start is not the caller's to see refused."""
    asked = [run for run in search.marked if _is_refusable(run) and run.pk not in chosen and (search.limits.turns is not None or run.bucket in search.buckets)]
    free.count({run.bucket for run in asked if run.bucket is not None}, waits=False)
    return [run.pk for run in asked if run.bucket is not None and free.is_full(run.bucket)]


def _is_refusable(run: Run) -> bool:
    if run.parent_id is None or run.bucket is None or run.episode > 1 or not slots.is_in_line(run):
        return False
    return Limits.of(catalog.plan_of(run)).on_limit == limits.REJECT


def _refuse(held: Held) -> None:
    """A child that finds no slot, and whose workflow does not let it wait, has failed (spec: engine.md "Cron, concurrency")."""
    text = f"{slots.in_words(held.run)} has no slot left, and refuses what finds none"
    progress.fall(held, RunStatus.FAILED, Failure(class_=FailureClass.PERMANENT, message=text), held.run.payload)


def _move_to(line: uuid.UUID, keys: Sequence[uuid.UUID]) -> bool:
    """Let runs that were started without a rate take its turns; says whether all could be moved."""
    return sum(_move_some_to(line, chunk) for chunk in batched(keys, BATCH)) == len(keys)


@verb
def _move_some_to(line: uuid.UUID, keys: Sequence[uuid.UUID]) -> int:
    held, work = hold_free(keys)
    for each in held.values():
        each.work.move(each.run, line=line)
    if work is not None:
        work.finish()
    return len(held)


@verb
def _set_aside(run_id: uuid.UUID) -> None:
    """Take a run out of its line for a while, so that it keeps nobody else waiting."""
    rows = Run.objects.using(database()).filter(slots.STAND_IN_LINE, pk=run_id)
    now = rows.annotate(now=Now()).values_list("now", flat=True).first()
    if now is not None:
        rows.update(queue_order=None, due_at=duty.later(now))
