"""Questions about one run, in one place for handles, admin and API: its phase, what it waits for, its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..definitions.plan import Plan
from ..models import Lease, Run, Step, Wait
from ..protocol.messages import Failure
from ..protocol.states import RunStatus, StepStatus
from . import catalog, payloads
from .transactions import database


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """One open wait: its step, the event and key it takes, and until when (None: for ever)."""

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
    """What the run's open waits wait for, the oldest first."""
    waits = Wait.objects.using(database()).filter(run=run).order_by("pk")
    return [WaitingFor(wait.name, wait.event, wait.key, wait.timeout_at) for wait in waits]


def output(run: Run) -> Any:
    """What the run came to: the output of its one last step, or an object of the last steps' outputs by name."""
    plan = catalog.plan_of(run)
    last = [name for name in plan.steps if not plan.children(name)]
    rows = Step.objects.using(database()).filter(run=run, name__in=last).values_list("name", "output")
    outputs = {name: payloads.from_text(text) for name, text in rows}
    return outputs.get(last[0]) if len(last) == 1 else {name: outputs.get(name) for name in last}


def failure(run: Run) -> Failure | None:
    """Why the run failed, or needs attention; None where it did not."""
    stored: Mapping[str, Any] | None = payloads.from_text(run.failure)
    return None if stored is None else Failure.from_json(stored)


def steps(run: Run) -> list[Step]:
    """The run's steps in the order of its definition."""
    return list(Step.objects.using(database()).filter(run=run).order_by("position", "pk"))


def plan(run: Run) -> Plan:
    """The graph and policies the run is pinned to."""
    return catalog.plan_of(run)
