"""A lease as the message its worker gets: what the body needs, read once for all leases of a claim."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from ..conf import app_settings
from ..models import Checkpoint, Lease, Run, Step
from ..protocol import durable, leases_json, messages
from ..protocol.failures import Failure
from ..protocol.states import CheckpointKind, StepKind, StepStatus
from . import catalog, children, ids, inputs, parking, payloads, traces
from .duty import BAD_ROW
from .transactions import database

logger = logging.getLogger("ezgh_workflows.engine")


def describe(leases: Sequence[Lease], now: datetime) -> tuple[list[messages.Lease], list[Lease]]:
    """The leases as messages, and those that this answer has no room for: it stays under `MAX_LEASE_BYTES`, but for its first lease.

    One whose stored values can't be read is in neither: its offer expires, the others are given.
    """
    if not leases:
        return [], []
    runs = Run.objects.using(database()).in_bulk({lease.run_id for lease in leases})
    wanted = {lease.run_id: catalog.plan_of(runs[lease.run_id]) for lease in leases}
    outputs = _ancestor_outputs([(lease, wanted[lease.run_id].ancestors(lease.step.name)) for lease in leases])
    checkpoints = _checkpoints([lease.step for lease in leases if lease.step.has_checkpoints])
    described: list[messages.Lease] = []
    room = room_of_an_answer()
    for place, lease in enumerate(leases):
        message, size = _readable_message(lease, runs[lease.run_id], outputs[lease.pk], checkpoints.get(lease.step_id, []), now)
        if message is None:
            continue
        room -= size + len(",")
        if described and room < 0:  # those behind it wait for the next answer too: none overtakes, and none is read in vain
            return described, list(leases[place:])
        described.append(message)
    return described, []


def room_of_an_answer() -> int:
    """How many bytes the leases of one answer may take."""
    return int(app_settings.MAX_LEASE_BYTES) - len('{"leases":[]}')


def size_of(value: Any) -> int:
    """The bytes of a JSON value in an answer, which is plain ASCII."""
    return len(json.dumps(value, separators=(",", ":")))


def as_lease(run: Run, step: Step) -> messages.Lease:
    """What the next pass of a step's body would be given, or was given last: for replays. Nobody holds such a lease."""
    planned = catalog.plan_of(run).step(step.name)
    moment = step.started_at or step.available_at or run.created_at
    lease = Lease(
        id=uuid.UUID(int=0),
        run_id=run.pk,
        step=step,
        token=step.token,
        attempt=max(1, step.attempts),
        delivery=planned.delivery,
        timeout_ms=planned.timeout_ms or 0,
        expires_at=moment,
    )
    [(_, outputs)] = _ancestor_outputs([(lease, catalog.plan_of(run).ancestors(step.name))]).items()
    return _message(lease, run, outputs, _checkpoints([step]).get(step.pk, []), moment)


def _checkpoints(steps: Sequence[Step]) -> dict[int, list[Checkpoint]]:
    """What is stored of these steps' bodies, in the order they asked for it."""
    found: dict[int, list[Checkpoint]] = {}
    if steps:
        for row in Checkpoint.objects.using(database()).filter(step__in=steps).order_by("pos", "pk"):
            found.setdefault(row.step_id, []).append(row)
    return found


def _checkpoint(row: Checkpoint) -> durable.Checkpoint:
    failure: Any = payloads.from_text(row.failure)
    kind = CheckpointKind(row.kind)
    is_of_children = kind in (CheckpointKind.CHILD, CheckpointKind.BATCH)
    return durable.Checkpoint(
        name=row.name,
        pos=row.pos,
        kind=kind,
        output=children.results(row) if is_of_children and not row.is_open else payloads.from_text(row.output),
        failure=None if failure is None else Failure.from_json(failure),
        timed_out=row.timed_out,
        at=row.met_at,
        is_open=row.is_open,
        failures=row.failures,
        retry_at=row.due_at if row.is_open and kind is CheckpointKind.STEP else None,
        children=row.children,
    )


def _ancestor_outputs(wanted: Sequence[tuple[Lease, tuple[str, ...]]]) -> dict[uuid.UUID, dict[str, str | None]]:
    """The JSON texts of the outputs of each lease's ancestors that succeeded, by name; no statement where none has any."""
    found: dict[uuid.UUID, dict[str, str | None]] = {}
    runs = {lease.run_id for lease, names in wanted if names}
    if runs:
        rows = Step.objects.using(database()).filter(run__in=runs, status=StepStatus.SUCCEEDED).values_list("run_id", "name", "output")
        for run_id, name, output in rows:
            found.setdefault(run_id, {})[name] = output
    return {lease.pk: {name: found[lease.run_id][name] for name in names if name in found.get(lease.run_id, {})} for lease, names in wanted}


def _readable_message(
    lease: Lease, run: Run, outputs: Mapping[str, str | None], stored: Sequence[Checkpoint], now: datetime
) -> tuple[messages.Lease | None, int]:
    """The message, and how many bytes it takes."""
    try:
        message = _message(lease, run, outputs, stored, now)
        return message, size_of(leases_json.to_json(message))
    except BAD_ROW:
        logger.exception("what step %s of run %s needs can't be read; it is not offered", lease.step.name, run.pk)
        return None, 0


def _message(lease: Lease, run: Run, outputs: Mapping[str, str | None], stored: Sequence[Checkpoint], now: datetime) -> messages.Lease:
    step = lease.step
    plan = catalog.plan_of(run)
    planned = plan.step(step.name)
    text = inputs.kept_text(step, plan, run, outputs.get)
    return messages.Lease(
        id=str(lease.pk),
        token=lease.token,
        run_id=str(run.pk),
        workflow=run.workflow,
        version=run.version,
        revision=plan.revision,
        step=step.name,
        attempt=lease.attempt,
        expires_at=lease.expires_at,
        expires_in_ms=max(0, (lease.expires_at - now) // timedelta(milliseconds=1)),
        input=payloads.from_text(text),
        has_input=text is not None,
        steps={name: payloads.from_text(output) for name, output in outputs.items()},
        state=payloads.from_text(run.state),
        labels=payloads.from_text(run.labels),
        correlation_id=run.correlation_id,
        idempotency_key=f"{run.pk}:{step.name}",
        delivery=lease.delivery,
        trace_id=run.trace_id,
        span_id=ids.span_id(run.pk, step.name),
        is_sampled=traces.is_sampled(run),
        timeout_ms=lease.timeout_ms,
        run_started_at=step.begun_at or run.started_at,
        checkpoints=tuple(_checkpoint(row) for row in stored),
        noted=parking.noted_of(step),
        deadline=None if step.kind == StepKind.ON_FAILURE else run.deadline_at,
        failure=_failure(run) if step.kind == StepKind.ON_FAILURE else None,
        last=step.failures + 1 >= planned.retry.max_attempts,
        retries=planned.retry.max_attempts > 1,
    )


def _failure(run: Run) -> Failure | None:
    stored: Any = payloads.from_text(run.failure)
    return None if stored is None else Failure.from_json(stored)
