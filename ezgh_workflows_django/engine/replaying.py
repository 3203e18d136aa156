"""Stored journals of bodies held against code: what replaying them would break, in plain words. Writes nothing, starts nothing.

A recording is one body's input and checkpoints, as JSON: a test keeps it for ever, and `migrate` makes one of a run in flight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from ..definitions.graph import Workflow
from ..definitions.plan import ON_FAILURE
from ..definitions.registry import registry
from ..errors import UnknownStep
from ..models import Definition, Run, Step
from ..protocol import leases_json
from ..protocol.failures import Failure
from ..protocol.messages import Lease
from ..protocol.states import LIVE_RUN, TERMINAL_RUN, StepStatus
from ..worker import rehearsal
from . import describing, payloads, tenancy
from .transactions import database

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Recording:
    """One body's journal: what its next pass is given, and, where the step is over, how it ended."""

    lease: Lease
    status: str
    output: Any = None
    failure: Failure | None = None

    @property
    def where(self) -> str:
        """The body, as people name it."""
        return f"run {self.lease.run_id}, {self.lease.workflow}/{self.lease.step}"

    def to_json(self) -> dict[str, Any]:
        """The form it is kept in, as a test's fixture."""
        ended: dict[str, Any] = {"status": self.status, "output": self.output}
        if self.failure is not None:
            ended["failure"] = self.failure.to_json()
        return {"format": FORMAT, "lease": leases_json.to_json(self.lease), "step": ended}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Recording:
        """Read the kept form. Raises `ValueError` for another format."""
        if value.get("format") != FORMAT:
            raise ValueError(f"this is no recording of format {FORMAT}: write it anew with `workflows_replay --write`")
        ended = value["step"]
        failure = Failure.from_json(ended["failure"]) if "failure" in ended else None
        return cls(leases_json.from_json(value["lease"]), ended["status"], ended.get("output"), failure)


def recording(run: Run, step: Step) -> Recording:
    """The journal of one step's body."""
    failure: Any = payloads.from_text(step.failure)
    return Recording(describing.as_lease(run, step), step.status, payloads.from_text(step.output), None if failure is None else Failure.from_json(failure))


def recordings(run: Run) -> Iterator[Recording]:
    """The journals of those bodies of a run that stored anything, in the order of its steps."""
    for step in Step.objects.using(database()).filter(run=run, has_checkpoints=True).order_by("position"):
        yield recording(run, step)


def of_runs(workflow: str | None = None, since: datetime | None = None, limit: int | None = None) -> Iterator[Recording]:
    """The journals of stored runs, at most `limit`: those of runs in flight first, then of those that are over, each the newest first.

    Of one workflow, of runs that were created at `since` or later. A run that ends meanwhile may come twice.
    """
    left = limit
    for steps in _with_journals(workflow, since):
        for step in steps.select_related("run").order_by("-pk")[:left].iterator(chunk_size=200):
            left = None if left is None else left - 1
            yield recording(step.run, step)


def count(workflow: str | None = None, since: datetime | None = None) -> tuple[int, int]:
    """How many journals `of_runs` has without a limit: of runs in flight, and of those that are over."""
    in_flight, over = (steps.count() for steps in _with_journals(workflow, since))
    return in_flight, over


def is_known(workflow: str) -> bool:
    """Whether this code or the site's own project has a workflow of that name. One statement at most."""
    own = Definition.objects.using(database()).filter(app__project=tenancy.own_project(), workflow=workflow)
    return any(each.name == workflow for each in registry) or own.exists()


def _with_journals(workflow: str | None, since: datetime | None) -> tuple[QuerySet[Step], QuerySet[Step]]:
    """Steps that stored anything, of the site's own runs: in flight, and over. What is called alike in other projects is other code."""
    steps = Step.objects.using(database()).filter(has_checkpoints=True, run__app__project=tenancy.own_project())
    if workflow is not None:
        steps = steps.filter(run__workflow=workflow)
    if since is not None:
        steps = steps.filter(run__created_at__gte=since)
    return steps.filter(run__status__in=LIVE_RUN), steps.filter(run__status__in=TERMINAL_RUN)


def fault(recorded: Recording, workflow: Workflow, *, exactly: bool = False) -> str | None:
    """What replaying a journal with this code would break; None where nothing.

    Code may go on where the journal ends. With `exactly`, a body that is over must come to the same end (I12).
    """
    lease = recorded.lease
    if lease.step == ON_FAILURE and workflow.on_failure is None:
        return f"{recorded.where}: the code has no on_failure"
    try:
        body = workflow.body(lease.step)
    except UnknownStep as error:
        return f"{recorded.where}: {error}"
    parents = () if lease.step == ON_FAILURE else workflow.step(lease.step).after
    seen = rehearsal.replay(body, lease, parents=parents)
    if seen.broken is not None:
        is_how_it_failed = recorded.failure is not None and recorded.failure.message == seen.broken
        return None if is_how_it_failed else f"{recorded.where}: {seen.broken}"
    return _other_end(recorded, seen) if exactly else None


def _other_end(recorded: Recording, seen: rehearsal.Rehearsal) -> str | None:
    if recorded.status == StepStatus.SUCCEEDED and (not seen.returned or seen.output != recorded.output):
        return f"{recorded.where}: it had returned {recorded.output!r:.200}, and now {seen}"
    return None
