"""Questions about one run, in one place for handles, admin and API: its phase, what it waits for, its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..models import Checkpoint, Lease, Run, Step, Wait
from ..protocol.failures import Failure
from ..protocol.states import RunStatus, StepStatus
from . import catalog, inputs, limits, payloads, slots
from .transactions import database


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """One open wait: its step, the event and key it takes, and until when (None: for ever).

    Of a run in line: what it waits to be let in for, with its slot's key; there is no step in that.
    """

    step: str
    event: str
    key: str
    until: datetime | None

    def __str__(self) -> str:
        keyed = f", key {self.key}" if self.key else ""
        until = "" if self.until is None else f", until {self.until:%a %H:%M}"
        return f"waiting for {self.event}{keyed}{until}"


def phase(run: Run) -> str:
    """How the run ended, else the first that holds of paused, failing, running, retrying, queued, waiting, sleeping."""
    if run.is_terminal or run.status in (RunStatus.PAUSED, RunStatus.FAILING):
        return str(run.status)
    if Lease.objects.using(database()).filter(run=run, live_step__isnull=False).exists():
        return "running"
    steps = Step.objects.using(database()).filter(run=run)
    open_steps = set(steps.exclude(status=StepStatus.BLOCKED).values_list("status", "failures", "reclaims"))
    if any(status == StepStatus.READY and failures + reclaims for status, failures, reclaims in open_steps):
        return "retrying"
    statuses = {status for status, _, _ in open_steps}
    if run.status == RunStatus.QUEUED or StepStatus.READY in statuses:
        return "queued"
    if StepStatus.WAITING in statuses:
        return "waiting"
    return "sleeping" if StepStatus.SLEEPING in statuses else "running"


def waiting_for(run: Run) -> list[WaitingFor]:
    """What the run's open waits wait for, the oldest first; then the child runs that its bodies wait for. A run in line waits for its slot or turn."""
    if slots.is_in_line(run):
        return [WaitingFor("", limits.newest(run.app_id, run.workflow).in_words(run.workflow), run.slot_key or "", run.deadline_at)]
    waits = Wait.objects.using(database()).filter(run=run).order_by("pk")
    return [WaitingFor(wait.name, wait.event, wait.key, wait.timeout_at) for wait in waits] + _children_waited_for(run)


def _children_waited_for(run: Run) -> list[WaitingFor]:
    if not run.has_children or run.is_terminal:
        return []
    parked = Checkpoint.objects.using(database()).filter(run=run, met_at=None, children__gt=0, step__parked__isnull=False).order_by("pos", "pk")
    told = ((row, Run.objects.using(database()).filter(parent_checkpoint=row.pk, ended_at=None).count()) for row in parked)
    return [WaitingFor(row.name, f"{count} of {row.children} child runs", "", None) for row, count in told]


def output(run: Run) -> Any:
    """What the run came to: the output of its one last step, or an object of the last steps' outputs by name."""
    plan = catalog.plan_of(run)
    rows = Step.objects.using(database()).filter(run=run, name__in=plan.leaves).values_list("name", "output")
    return plan.output_of({name: payloads.from_text(text) for name, text in rows})


def failure(run: Run) -> Failure | None:
    """Why the run failed, or needs attention; None where it did not."""
    stored: Mapping[str, Any] | None = payloads.from_text(run.failure)
    return None if stored is None else Failure.from_json(stored)


def steps(run: Run) -> list[Step]:
    """The run's steps in the order of its definition."""
    return list(Step.objects.using(database()).filter(run=run).order_by("position", "pk"))


def input_of(step: Step) -> str | None:
    """The JSON text of what a step was given, wherever that is kept; None where there is nothing, or not yet."""
    if step.status == StepStatus.BLOCKED:
        return step.input
    rows = Step.objects.using(database()).filter(run=step.run_id)
    return inputs.kept_text(step, catalog.plan_of(step.run), step.run, lambda parent: rows.filter(name=parent).values_list("output", flat=True).first())
