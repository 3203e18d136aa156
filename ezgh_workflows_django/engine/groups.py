"""Calls on many leases at once: one transaction for those whose runs are free, one of its own for each of the others."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from django.db import DatabaseError

from ..errors import InvalidPayload
from ..models import Lease
from ..protocol.messages import Refused
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
    except (DatabaseError, LostRace, InvalidPayload) as error:
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
    answers = {lease_id: apply(held[runs[lease_id]], _with_step(held, leases[lease_id]), items[lease_id]) for lease_id in free}
    work.finish()
    return answers


def _alone(lease_id: str, run_id: uuid.UUID, item: I, apply: Apply[I, A], refuse: Refuse[A]) -> A:
    try:
        return _in_its_own_transaction(lease_id, run_id, item, apply)
    except InvalidPayload as error:
        return refuse(lease_id, Refused("invalid", str(error)))


@verb
def _in_its_own_transaction(lease_id: str, run_id: uuid.UUID, item: I, apply: Apply[I, A]) -> A:
    held = hold(run_id)
    [lease] = _leases([lease_id])
    answer = apply(held, _with_step({run_id: held}, lease), item)
    held.work.finish()
    return answer


def _with_step(held: Mapping[uuid.UUID, Held], lease: Lease) -> Lease:
    """The lease with its step's one row of this transaction: two leases of one run see each other's changes."""
    of_run = held[lease.run_id]
    of_run.adopt_new([lease.step])
    lease.step = of_run.steps([lease.step.name])[0]
    return lease


def _leases(lease_ids: Sequence[str]) -> list[Lease]:
    return list(Lease.objects.using(database()).select_related("step").filter(pk__in=lease_ids))


def _runs_of(items: Mapping[str, I]) -> dict[str, uuid.UUID]:
    """The run of each lease that exists; a text that is no id names nothing."""
    ids = [lease_id for lease_id in items if is_uuid(lease_id)]
    found = Lease.objects.using(database()).filter(pk__in=ids).values_list("pk", "run_id")
    by_id = {str(pk): run_id for pk, run_id in found}
    return {lease_id: by_id[lease_id] for lease_id in items if lease_id in by_id}


def is_uuid(text: str) -> bool:
    """Whether a text is an id as this engine writes them."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _unknown(lease_id: str) -> Refused:
    return Refused("unknown_lease", f"there is no lease {lease_id[:64]}")
