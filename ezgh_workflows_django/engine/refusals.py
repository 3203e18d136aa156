"""The four refusals: whether a worker's call on a lease is accepted, decided by how this lease ended (spec: engine.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidPayload, PayloadTooLarge
from ..models import Lease, RefusedCall
from ..protocol.failures import Refused
from ..protocol.states import LIVE_LEASE, Delivery, LeaseStatus, Refusal
from . import payloads, progress
from .locking import Held

BY_WORKER = "worker"
BY_RUN = "run"
BY_ENGINE = "engine"

_HANDED_BACK = frozenset({LeaseStatus.RETURNED})


def of_lease(lease: Lease) -> Refused | None:
    """Why a call on this lease is refused, or None while it is live."""
    if lease.status in LIVE_LEASE:
        return None
    if lease.ended_by == BY_WORKER and lease.status not in _HANDED_BACK:
        return Refused(Refusal.ALREADY_APPLIED, f"lease {lease.pk} has already ended as {lease.status} by its own call", _outcome(lease))
    if lease.ended_by == BY_RUN:
        return Refused(Refusal.RUN_TERMINAL, f"run {lease.run_id} is over; drop the work of lease {lease.pk}")
    return Refused(Refusal.FENCED, f"lease {lease.pk} was {lease.status}; its step is no longer yours, drop the work")


def of_outcome(lease: Lease, *, body_ran: bool) -> Refused | None:
    """As `of_lease`, for the end of a body: an at-most-once body must have been declared by `started`."""
    refused = of_lease(lease)
    if refused is not None:
        return refused
    if lease.delivery == Delivery.AT_MOST_ONCE and lease.status == LeaseStatus.OFFERED and body_ran:
        return Refused(Refusal.NOT_STARTED, f"lease {lease.pk} is at_most_once and was never started: call started before the body")
    return None


def unfit(error: InvalidPayload) -> Refused:
    """Why a call that brings what can't be kept is refused: it is too large, or something else is wrong with it."""
    return Refused("payload_too_large" if isinstance(error, PayloadTooLarge) else "invalid", str(error))


def note(held: Held, lease: Lease, refused: Refused, call: str) -> None:
    """Journal a refusal and count it, once per lease and reason; nothing else of the run changes."""
    said = set(filter(None, lease.refusals.split(",")))
    if refused.reason in said:
        return
    held.work.move(lease, refusals=",".join(sorted(said | {refused.reason})))
    if refused.reason == Refusal.NOT_STARTED:
        held.work.move(lease, may_have_run=True)
    held.work.insert([RefusedCall(app_id=held.run.app_id, workflow=held.run.workflow, reason=refused.reason, at=held.now)])
    held.work.record(
        held.run, "lease.refused", step=lease.step.name, attempt=lease.attempt, worker=lease.worker_name, reason=refused.reason, call=call, token=lease.token
    )


def acknowledge(held: Held, lease: Lease) -> None:
    """A refused outcome says that a body which was cut short has really ended."""
    if lease.cut_at is not None and lease.acknowledged_at is None:
        progress.acknowledge(held, lease)


def _outcome(lease: Lease) -> Mapping[str, Any] | None:
    stored: Mapping[str, Any] | None = payloads.from_text(lease.outcome)
    return stored
