"""Calls on many leases at once: one transaction for those whose runs are free, one of its own for each of the others."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from django.db import DatabaseError

from ..errors import InvalidPayload, UnknownRun
from ..models import Lease
from ..protocol.failures import Refused
from . import refusals, workers
from .clock import Now
from .duty import BAD_ROW
from .locking import Held, hold, hold_free
from .transactions import LostRace, database, is_conflict, verb

logger = logging.getLogger("ezgh_workflows.engine")

I = TypeVar("I")  # noqa: E741 - an item of a call
A = TypeVar("A")
Apply = Callable[[Held, Lease, I], A]
Refuse = Callable[[str, Refused], A]


def each(items: Mapping[str, I], apply: Apply[I, A], refuse: Refuse[A]) -> dict[str, A]:
    """Apply a call to every lease, by lease id; an item that can't be stored is answered alone.

    Locks the runs of the group with SKIP LOCKED, in id order; waits only for one run at a time.
    """
    runs = _runs_of(items)
    answers = {lease_id: refuse(lease_id, _unknown(lease_id)) for lease_id in items if lease_id not in runs}
    if len(runs) > 1:
        answers.update(_together(items, runs, apply))
    for lease_id in runs:
        if lease_id not in answers:
            answers[lease_id] = _alone(lease_id, runs[lease_id], items[lease_id], apply, refuse)
    return answers


def _together(items: Mapping[str, I], runs: Mapping[str, uuid.UUID], apply: Apply[I, A]) -> dict[str, A]:
    try:
        return _in_one_transaction(items, runs, apply)
    except (DatabaseError, LostRace, *BAD_ROW) as error:
        if not is_conflict(error):
            logger.warning("a group of %d calls could not be stored together, doing each alone: %s", len(runs), error)
        return {}


@verb
def _in_one_transaction(items: Mapping[str, I], runs: Mapping[str, uuid.UUID], apply: Apply[I, A]) -> dict[str, A]:
    held, work = hold_free(runs.values())
    if work is None:
        return {}
    free = [lease_id for lease_id, run_id in runs.items() if run_id in held]
    leases = {str(lease.pk): lease for lease in _leases(free)}
    before = {run_id: _fate(of_run) for run_id, of_run in held.items()}
    answers: dict[str, A] = {}
    for lease_id in free:
        of_run = held[runs[lease_id]]
        lease = leases[lease_id] if _fate(of_run) == before[runs[lease_id]] else _read_again(of_run, lease_id)
        answers[lease_id] = apply(of_run, _with_step(of_run, lease), items[lease_id])
    work.finish()
    return answers


def _fate(of_run: Held) -> tuple[str, str | None]:
    """Where the run stands, and how it is to end."""
    return of_run.run.status, of_run.run.ending_as


def _read_again(of_run: Held, lease_id: str) -> Lease:
    """The lease of a run that another item of this very call has brought down: its leases were ended with it."""
    of_run.work.flush()
    [lease] = _leases([lease_id])
    return lease


def _alone(lease_id: str, run_id: uuid.UUID, item: I, apply: Apply[I, A], refuse: Refuse[A]) -> A:
    try:
        return _in_its_own_transaction(lease_id, run_id, item, apply)
    except InvalidPayload as error:
        return refuse(lease_id, refusals.unfit(error))
    except UnknownRun:  # deleted since its lease was looked up
        return refuse(lease_id, _unknown(lease_id))
    except BAD_ROW as error:
        logger.exception("what is stored of lease %s, run %s, could not be dealt with", lease_id, run_id)
        return refuse(lease_id, Refused("invalid", f"what is stored of lease {lease_id} could not be dealt with: {type(error).__name__}: {error}"))


@verb
def _in_its_own_transaction(lease_id: str, run_id: uuid.UUID, item: I, apply: Apply[I, A]) -> A:
    held = hold(run_id)
    [lease] = _leases([lease_id])
    answer = apply(held, _with_step(held, lease), item)
    held.work.finish()
    return answer


def _with_step(of_run: Held, lease: Lease) -> Lease:
    """The lease with its step's one row of this transaction: two leases of one run see each other's changes."""
    of_run.adopt_new([lease.step])
    lease.step = of_run.steps([lease.step.name])[0]
    return lease


def _leases(lease_ids: Sequence[str]) -> list[Lease]:
    return list(Lease.objects.using(database()).select_related("step").filter(pk__in=lease_ids))


def _runs_of(items: Mapping[str, I]) -> dict[str, uuid.UUID]:
    """The run of each lease that exists; a text that is no id names nothing. Whoever asks for one is heard of by this."""
    ids = [lease_id for lease_id in items if is_uuid(lease_id)]
    leases = Lease.objects.using(database()).filter(pk__in=ids).annotate(now=Now())
    found = list(leases.values_list("pk", "run_id", "worker_id", "worker__seen_at", "now"))
    if found:
        workers.seen({worker_id: seen_at for _, _, worker_id, seen_at, _ in found}, max(now for *_, now in found))
    by_id = {str(pk): run_id for pk, run_id, *_ in found}
    return {lease_id: by_id[lease_id] for lease_id in items if lease_id in by_id}


def is_uuid(text: str) -> bool:
    """Whether a text is an id as this engine writes them."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _unknown(lease_id: str) -> Refused:
    return Refused("unknown_lease", f"there is no lease {lease_id[:64]}")
