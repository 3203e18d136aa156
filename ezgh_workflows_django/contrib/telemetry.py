"""Runs and their steps as spans of OpenTelemetry, recorded by the process in which a run ended. Reads; moves nothing.

Only where an SDK is set up in that process; workers record their attempts themselves, under the spans told here (`worker.telemetry`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from django.db.models import Min

from .. import dispatch
from ..engine import payloads, totals, traces
from ..engine.transactions import database
from ..models import JournalEntry, Lease, Run, Step
from ..protocol import amounts
from ..protocol.states import TERMINAL_RUN, RunStatus, StepStatus
from ..worker import telemetry
from ..worker.telemetry import PREFIX, Told

MOST_STEPS: Final = 1_000
"""Of a wider run the first are told."""

_STARTED: Final = "run.started"
_ENDS: Final = tuple(f"run.{status}" for status in TERMINAL_RUN)
_BEGINNINGS: Final = ("step.started", "step.sleeping", "wait.opened")


def connect() -> None:
    """Hear of every run that ends."""
    dispatch.run_finished.connect(_run_finished, dispatch_uid="ezgh_workflows.telemetry")


def _run_finished(sender: Any, *, run_id: str, **_: Any) -> None:
    if not telemetry.is_recording():
        return
    run = Run.objects.using(database()).defer("payload", "state", "labels").filter(pk=run_id).first()
    if run is not None and traces.is_sampled(run):
        for told in spans_of(run):
            telemetry.record(told)


def spans_of(run: Run) -> Iterator[Told]:
    """The span of a run that is over, and those of its steps that began. Of a run that was over before, one for what came since, and those of the
    steps that began only since: no span is told twice, as two spans never have one id.
    """
    if run.ended_at is None:
        return
    began_at, end_before = _told_before(run)
    yield _span_of_run(run, began_at, run.ended_at) if end_before is None else _span_of_episode(run, began_at, run.ended_at)
    known = _begun_before(run, end_before)
    first_starts = _first_starts(run.pk)
    steps = Step.objects.using(database()).filter(run=run, ended_at__isnull=False).defer("input", "output").order_by("position")
    for step in steps[:MOST_STEPS]:
        started_at = first_starts.get(step.pk) or step.started_at
        if started_at is not None and step.ended_at is not None and step.name not in known:
            yield _span_of_step(run, step, started_at, step.ended_at)


def _span_of_run(run: Run, began_at: datetime, ended_at: datetime) -> Told:
    return Told(
        name=run.workflow,
        context=traces.of_run(run),
        parent=traces.caller_of(run),
        started_at=began_at,
        ended_at=ended_at,
        attributes=_of_run(run),
        error=_error(run.status, run.failure),
    )


def _span_of_episode(run: Run, began_at: datetime, ended_at: datetime) -> Told:
    return Told(
        name=f"{run.workflow} episode {run.episode}",
        context=traces.of_step(run, f"episode {run.episode}"),
        parent=traces.of_run(run),
        started_at=began_at,
        ended_at=ended_at,
        attributes=_of_run(run),
        error=_error(run.status, run.failure),
    )


def _span_of_step(run: Run, step: Step, started_at: datetime, ended_at: datetime) -> Told:
    told = {"run_id": str(run.pk), "workflow": run.workflow, "step": step.name, "kind": step.kind, "status": step.status, "attempts": step.attempts}
    return Told(
        name=f"{run.workflow}/{step.name}",
        context=traces.of_step(run, step.name),
        parent=traces.of_run(run),
        started_at=started_at,
        ended_at=ended_at,
        attributes=_named(told | {"cost": _cost(step.usage)}),
        error=_error(step.status, step.failure),
    )


def _of_run(run: Run) -> Mapping[str, Any]:
    told = {"run_id": str(run.pk), "workflow": run.workflow, "version": run.version, "status": run.status, "correlation_id": run.correlation_id or None}
    return _named(told | {"cost": _cost(run.usage)})


def _named(told: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{PREFIX}.{name}": value for name, value in told.items() if value is not None}


def _cost(usage: str | None) -> str | None:
    cost = totals.cost_of(totals.read(usage))
    return None if cost is None else amounts.text_of(cost)


def _error(status: str, failure: str | None) -> str | None:
    """Why it failed, where it did."""
    if status not in (RunStatus.FAILED, RunStatus.TIMED_OUT, StepStatus.FAILED):
        return None
    stored: Any = payloads.from_text(failure) or {}
    return f"{stored.get('class', status)}: {stored.get('message', '')}"


def _told_before(run: Run) -> tuple[datetime, int | None]:
    """When what is told of the run now began, and the place in its journal of its end before this one, if it had one."""
    began_at = run.started_at or run.created_at
    if run.episode == 1:
        return began_at, None
    entries = JournalEntry.objects.using(database()).filter(run=run, kind__in=[_STARTED, *_ENDS]).order_by("seq").values_list("kind", "at", "seq")
    first_starts = [at for kind, at, _ in entries if kind == _STARTED]
    ends = [seq for kind, _, seq in entries if kind in _ENDS]
    if len(ends) > 1:
        return began_at, ends[-2]
    return min([began_at, *first_starts]), None  # it was only paused in between: all of it is one span


def _begun_before(run: Run, end: int | None) -> frozenset[str]:
    """The steps that had begun by that place in the run's journal: they have been told."""
    if end is None:
        return frozenset()
    entries = JournalEntry.objects.using(database()).filter(run=run, seq__lt=end, kind__in=_BEGINNINGS)
    return frozenset(entries.order_by().values_list("step", flat=True).distinct())


def _first_starts(run_id: uuid.UUID) -> dict[int, datetime]:
    """When each step's first attempt began, by the step's key."""
    rows = Lease.objects.using(database()).filter(run=run_id, started_at__isnull=False).values_list("step_id").annotate(Min("started_at")).order_by()
    return dict(rows)
