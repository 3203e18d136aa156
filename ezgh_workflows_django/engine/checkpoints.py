"""Storing what a body's inner steps came to: the first write of a name wins, a failure is tried again as its policy says.

A call is refused as any other of its lease; it keeps no lease alive, but for one that was orphaned: its worker has come back.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from ..definitions import names
from ..definitions.policies import Retry
from ..definitions.shape import shape_faults
from ..definitions.validation import retry_faults
from ..definitions.wire import RETRY_SCHEMA, read_retry
from ..errors import InvalidPayload
from ..models import Checkpoint, Lease
from ..protocol import codec
from ..protocol import notes as noted
from ..protocol.durable import MAX_NAME, Record, Stored
from ..protocol.failures import Failure, Refused
from ..protocol.states import CheckpointKind
from . import groups, outcomes, payloads, progress, refusals, state, usage
from .duty import BAD_ROW
from .locking import Held
from .transactions import database


@dataclass(frozen=True, slots=True)
class _Ready:
    """A record whose values have been encoded and checked, so that storing it can't fail on them."""

    record: Record
    output: str | None
    failure: Failure | None
    retry: Retry
    state: dict[str, Any] | None
    retry_after: timedelta
    notes: noted.Notes


def checkpoint(records: Sequence[Record]) -> list[Stored]:
    """Store what inner steps came to; one answer each, in order. Locks each lease's run; those of one lease are one transaction.

    What can't be stored (not JSON, a class of the engine's own) is answered `invalid`, what is too large `payload_too_large`, alone.
    """
    answers: dict[int, Stored] = {}
    ready: dict[str, dict[int, _Ready]] = {}
    for place, record in enumerate(records):
        try:
            ready.setdefault(record.lease_id, {})[place] = _prepare(record)
        except InvalidPayload as error:
            answers[place] = _refused(record, refusals.unfit(error))
    told = groups.each({lease_id: each for lease_id, each in ready.items() if each}, _apply, lambda lease_id, refused: _refuse_all(ready[lease_id], refused))
    for each in told.values():
        answers.update(each)
    return [answers[place] for place in range(len(records))]


def _apply(held: Held, lease: Lease, ready: dict[int, _Ready]) -> dict[int, Stored]:
    refused = refusals.of_outcome(lease, body_ran=True)
    if refused is not None:
        refusals.note(held, lease, refused, "checkpoint")
        return _refuse_all(ready, refused)
    progress.live_again(held, lease)
    stored = {row.name: row for row in Checkpoint.objects.using(database()).filter(step=lease.step, name__in={each.record.name for each in ready.values()})}
    return {place: _store(held, lease, stored, each) for place, each in ready.items()}


def _store(held: Held, lease: Lease, stored: dict[str, Checkpoint], ready: _Ready) -> Stored:
    record = ready.record
    row = stored.get(record.name)
    if row is not None and row.kind != CheckpointKind.STEP:
        return _refused(record, Refused("invalid", f"{record.name} was stored as a {row.kind}, and can't be stored as a {record.kind}"))
    if row is not None and (not row.is_open or _is_known(record, row)):
        return _answer(record, row, repeated=True)
    try:
        due = usage.bill(held, lease, ready.notes)
        state.patch(held, ready.state)
    except InvalidPayload as error:
        return _refused(record, refusals.unfit(error))
    if row is None:
        row = Checkpoint(run=held.run, step=lease.step, name=record.name, pos=record.pos, kind=record.kind, created_at=held.now)
        held.work.insert([row])
        stored[record.name] = row
    usage.keep(held, lease, due, record.name)
    if lease.step.reclaims or not lease.step.has_checkpoints:  # something new is stored, so the body gets on
        held.work.move(lease.step, reclaims=0, has_checkpoints=True)
    if ready.failure is None:
        held.work.move(row, output=ready.output, failure=None, met_at=held.now, due_at=None)
        _tell(held, lease, "checkpoint.stored", row)
    else:
        _fail(held, lease, row, ready, ready.failure)
    return _answer(record, row)


def _is_known(record: Record, row: Checkpoint) -> bool:
    """Whether this failure has been counted: its answer was lost, and it comes again."""
    return record.failure is not None and record.failures is not None and record.failures < row.failures


def _fail(held: Held, lease: Lease, row: Checkpoint, ready: _Ready, failure: Failure) -> None:
    """An inner step failed: it is tried again as its policy says, or that is its result."""
    policy, failures = ready.retry, row.failures + 1
    failure = replace(failure, attempts=failures)
    text = codec.dumps(failure.to_json(), limit=None, what="failure")
    if not policy.covers(failure.class_) or failures >= policy.max_attempts:
        held.work.move(row, failure=text, failures=failures, met_at=held.now, due_at=None)
        return _tell(held, lease, "checkpoint.failed", row, failure=failure.to_json())
    delay = timedelta(milliseconds=policy.delay_ms(failures, random.random()))  # noqa: S311 - spreads retries, no secret
    retry_at = held.now + max(delay, ready.retry_after)
    held.work.move(row, failure=text, failures=failures, due_at=retry_at)
    return _tell(held, lease, "checkpoint.retry_scheduled", row, failure=failure.to_json(), retry_at=retry_at)


def _tell(held: Held, lease: Lease, kind: str, row: Checkpoint, **told: Any) -> None:
    held.work.record(held.run, kind, step=lease.step.name, attempt=lease.attempt, worker=lease.worker_name, name=row.name, pos=row.pos, **told)


def _answer(record: Record, row: Checkpoint, *, repeated: bool = False) -> Stored:
    failure: Any = payloads.from_text(row.failure)
    return Stored(
        lease_id=record.lease_id,
        name=row.name,
        output=payloads.from_text(row.output),
        failure=None if failure is None else Failure.from_json(failure),
        at=row.met_at,
        retry_at=row.due_at if row.is_open else None,
        repeated=repeated,
    )


def _prepare(record: Record) -> _Ready:
    fault = names.text_fault(record.name, MAX_NAME) or ("is empty" if not record.name else None)
    if fault:
        raise InvalidPayload("name", f"a checkpoint's name {fault}")
    if record.kind != CheckpointKind.STEP:
        raise InvalidPayload("kind", f"a worker stores a {CheckpointKind.STEP}; a {record.kind} is made by suspend or children")
    if not 0 <= record.pos < 2**31:
        raise InvalidPayload("pos", f"{record.pos} is no place in a body")
    return _Ready(
        record=record,
        output=payloads.to_text(record.output, f"output of {record.name}") if record.failure is None else None,
        failure=None if record.failure is None else outcomes.checked_failure(record.failure),
        retry=_policy(record),
        state=state.checked(record.state),
        retry_after=outcomes.checked_delay(record.retry_after_ms),
        notes=noted.read(record.usage, record.spans),
    )


def _policy(record: Record) -> Retry:
    """The policy a record brings; none tries nothing again. Raises `InvalidPayload`."""
    wire = record.retry or {}
    try:
        faults = shape_faults(wire, RETRY_SCHEMA, "the policy") or list(retry_faults(policy := read_retry(wire)))
    except BAD_ROW as error:
        raise InvalidPayload("retry", f"it is no policy: {type(error).__name__}: {error}") from None
    if faults:
        raise InvalidPayload("retry", "; ".join(faults))
    return policy


def _refuse_all(ready: dict[int, _Ready], refused: Refused) -> dict[int, Stored]:
    return {place: _refused(each.record, refused) for place, each in ready.items()}


def _refused(record: Record, refused: Refused) -> Stored:
    return Stored(lease_id=record.lease_id, name=record.name, refused=refused)
