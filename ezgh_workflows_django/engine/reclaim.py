"""The duty of leases: offers nobody took up, workers gone silent, timeouts nobody reported, bodies cut short and never heard of again.

Every write is guarded by the lease as it stands under its run's lock and its own: a heartbeat or an outcome that came first wins.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Final

from django.db import connections
from django.db.models import Q

from ..conf import app_settings
from ..definitions.durations import in_words
from ..models import Lease
from ..protocol.failures import Failure
from ..protocol.states import Delivery, FailureClass, LeaseStatus
from . import announce, duty, outcomes, progress, runs
from .locking import Held, locked
from .refusals import BY_ENGINE
from .transactions import database


def run_once(now: datetime, limit: int) -> int:
    """Deal with up to `limit` leases whose moment has come, the earliest first; returns how many were dealt with."""
    due = Lease.objects.using(database()).filter(due_at__lte=now).order_by("due_at")
    return duty.work_off(due, limit, see_to, lambda _, lease_id: _postpone(lease_id, now))


def see_to(held: Held, lease_id: uuid.UUID) -> None:
    """Deal with a lease if its moment has come; what the run's deadline was due before is the deadline's."""
    lease = _locked(lease_id)
    if lease is None or lease.due_at is None or lease.due_at > held.now:
        return None
    if runs.is_past_deadline(held, lease.due_at):
        from . import due_order  # it times leases out, and so stands on this module

        return due_order.meet_deadline(held)
    held.adopt_new([lease.step])
    lease.step = held.steps([lease.step.name])[0]
    return _ACTS.get(LeaseStatus(lease.status), _settle)(held, lease)


def _locked(lease_id: uuid.UUID) -> Lease | None:
    """The lease under its own lock, so that no heartbeat lands between this look and the write; None where one is at it: it is passed over."""
    leases = Lease.objects.using(database()).filter(pk=lease_id)
    if connections[database()].features.has_select_for_update and not locked(leases, skip_locked=True).values_list("pk"):
        return None
    return leases.select_related("step").first()


def _requeue_offer(held: Held, lease: Lease) -> None:
    """Nobody took the offer up: a lost delivery costs seconds, and no budget."""
    if lease.delivery == Delivery.AT_MOST_ONCE and lease.may_have_run:
        return _reclaim(held, lease)
    progress.end_lease(held, lease, LeaseStatus.RECLAIMED, BY_ENGINE, cut=False)
    held.work.record(held.run, "lease.offer_expired", step=lease.step.name, attempt=lease.attempt, worker=lease.worker_name)
    progress.make_ready(held, lease.step, held.now)
    return None


def _overdue(held: Held, lease: Lease) -> None:
    """A started lease is past its timeout or without heartbeats: whichever came first."""
    if lease.timeout_at is not None and lease.timeout_at <= min(lease.expires_at, held.now):
        return _time_out(held, lease)
    window_ends = held.now + app_settings.RECOVERY_WINDOW
    due_at = window_ends if lease.timeout_at is None else min(window_ends, lease.timeout_at)
    held.work.move(lease, status=LeaseStatus.ORPHANED, orphaned_at=held.now, due_at=due_at)
    late_ms = (held.now - lease.expires_at).total_seconds() * 1000
    held.work.record(held.run, "lease.orphaned", step=lease.step.name, attempt=lease.attempt, worker=lease.worker_name, late_ms=round(late_ms))
    return None


def _abandoned(held: Held, lease: Lease) -> None:
    """An orphan's recovery window is over, or its timeout is due: whichever came first."""
    window_ends = (lease.orphaned_at or held.now) + app_settings.RECOVERY_WINDOW
    if lease.timeout_at is not None and lease.timeout_at <= min(window_ends, held.now):
        return _time_out(held, lease)
    return _reclaim(held, lease)


def _time_out(held: Held, lease: Lease) -> None:
    progress.end_lease(held, lease, LeaseStatus.TIMED_OUT, BY_ENGINE, cut=True)
    message = f"attempt {lease.attempt} timed out after {in_words(lease.timeout_ms)}; its worker {lease.worker_name} did not report it"
    failure = Failure(class_=FailureClass.TIMEOUT, message=message)
    held.work.record(held.run, "lease.timed_out", step=lease.step.name, attempt=lease.attempt, worker=lease.worker_name)
    if lease.delivery == Delivery.AT_MOST_ONCE:  # its body may still run
        progress.fail(held, lease.step, failure)
    else:
        outcomes.retry_or_fail(held, lease.step, failure, by=lease)


def _reclaim(held: Held, lease: Lease) -> None:
    """The recovery window is over: the old holder is fenced, the step goes by its delivery."""
    progress.end_lease(held, lease, LeaseStatus.RECLAIMED, BY_ENGINE, cut=False)
    held.work.record(held.run, "lease.reclaimed", step=lease.step.name, attempt=lease.attempt, worker=lease.worker_name, token=lease.token)
    held.work.after(lambda: announce.lease_reclaimed(held.run, lease.step.name, lease))
    reclaims = lease.step.reclaims + 1
    held.work.move(lease.step, reclaims=reclaims)
    if lease.delivery == Delivery.AT_MOST_ONCE:
        lost = f"attempt {lease.attempt} was lost with worker {lease.worker_name}, and an at_most_once step is not run again"
        return progress.fail(held, lease.step, Failure(class_=FailureClass.ORPHANED, message=lost))
    if reclaims > app_settings.MAX_RECLAIMS:
        poison = f"{reclaims} workers were lost while they ran it (MAX_RECLAIMS is {app_settings.MAX_RECLAIMS}); the last was {lease.worker_name}"
        return progress.fail(held, lease.step, Failure(class_=FailureClass.POISON, message=poison))
    return progress.make_ready(held, lease.step, held.now, started_at=None)


def _settle(held: Held, lease: Lease) -> None:
    """A lease that is over: its body was cut short and never heard of again. Where it was not, nothing waits for it."""
    if lease.cut_at is not None and lease.acknowledged_at is None:
        progress.acknowledge(held, lease)
    else:
        held.work.move(lease, due_at=None)


def _postpone(lease_id: uuid.UUID, now: datetime) -> None:
    awaited = Q(live_step__isnull=False) | Q(cut_at__isnull=False, acknowledged_at=None)
    duty.move_free(Lease.objects.using(database()).filter(awaited, pk=lease_id, due_at__lte=now), due_at=duty.later(now))


_ACTS: Final[dict[LeaseStatus, Callable[[Held, Lease], None]]] = {
    LeaseStatus.OFFERED: _requeue_offer,
    LeaseStatus.STARTED: _overdue,
    LeaseStatus.ORPHANED: _abandoned,
}
"""By the status a due lease has; every other one is over."""
