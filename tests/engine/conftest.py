"""A desk to drive the real engine from: a clock that moves when told, and worker sessions that do as told."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from ezgh_workflows_django import Workflow, emit
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.engine import checkpoints, children, clock, leases, maintenance, outcomes, workers
from ezgh_workflows_django.models import JournalEntry, Lease, Run, Step, Tick, Worker
from ezgh_workflows_django.protocol.durable import Children, Record, Started, Stored, WaitFor
from ezgh_workflows_django.protocol.messages import Beat, ClaimRequest, Extension, Registration, Serve
from ezgh_workflows_django.protocol.messages import Lease as Offered
from ezgh_workflows_django.protocol.outcomes import Answer, Outcome, Report
from ezgh_workflows_django.protocol.states import CheckpointKind, Mode
from tests.engine.bodies import Family, Parked


class Hand:
    """One worker session."""

    numbers = itertools.count(1)

    def __init__(self, workflows: Sequence[Workflow], name: str, app: str = "default") -> None:
        specs = tuple(workflow.to_spec() for workflow in workflows)
        self.session = workers.register(Registration(worker=name, app=app, definitions=specs))
        self.serves = tuple(Serve(workflow.name, workflow.revision) for workflow in workflows)
        self.name = name

    def claim(self, maximum: int = 10, *, claim_id: str | None = None, run: str | None = None, serves: Sequence[Serve] | None = None) -> tuple[Offered, ...]:
        """The leases of one claim."""
        request = ClaimRequest(
            worker_id=self.session.worker_id,
            claim_id=claim_id or f"claim-{next(self.numbers)}",
            max=maximum,
            serves=self.serves if serves is None else tuple(serves),
            run=run,
        )
        return leases.claim(request).leases

    def take(self) -> Offered:
        """The one lease there is, started."""
        [lease] = self.claim(1)
        self.start(lease)
        return lease

    def start(self, lease: Offered) -> Extension:
        """`started`."""
        return leases.started([lease.id])[0]

    def beat(self, lease: Offered, progress: Any = None) -> Extension:
        """`heartbeat`."""
        return leases.heartbeat([Beat(lease.id, progress)])[0]

    def complete(self, lease: Offered, output: Any = None, **rest: Any) -> Answer:
        """`complete`."""
        return outcomes.report([Report(lease.id, Outcome.completed(output, **rest))])[0]

    def fail(self, lease: Offered, class_: str = "error", message: str = "boom", **rest: Any) -> Answer:
        """`fail`."""
        return outcomes.report([Report(lease.id, Outcome.failed(class_, message, **rest))])[0]

    def checkpoint(self, lease: Offered, name: str, output: Any = None, **rest: Any) -> Stored:
        """`checkpoint`: the result of one inner step, or with `failure` why it has none."""
        return checkpoints.checkpoint([Record(lease_id=lease.id, name=name, pos=rest.pop("pos", 1), output=output, **rest)])[0]

    def park(self, lease: Offered, *waits: WaitFor, mode: str = "all", **rest: Any) -> Answer:
        """`suspend`."""
        return outcomes.report([Report(lease.id, Outcome.suspended(waits, Mode(mode), **rest))])[0]

    def children(self, lease: Offered, name: str, workflow: Workflow | str, payloads: Sequence[Any], **rest: Any) -> Started:
        """`children`, as a batch."""
        target = workflow if isinstance(workflow, str) else workflow.name
        kind = rest.pop("kind", CheckpointKind.BATCH)
        return children.start(Children(lease_id=lease.id, name=name, pos=rest.pop("pos", 1), workflow=target, payloads=tuple(payloads), kind=kind, **rest))

    def child(self, lease: Offered, name: str, workflow: Workflow | str, payload: Any = None, **rest: Any) -> Started:
        """`children`, as one child."""
        return self.children(lease, name, workflow, [payload], kind=CheckpointKind.CHILD, **rest)

    def work_off(self) -> int:
        """Complete whatever can be claimed, until nothing can; every body gives back its input."""
        count = 0
        while offered := self.claim():
            leases.started([lease.id for lease in offered])
            outcomes.report([Report(lease.id, Outcome.completed(lease.input)) for lease in offered])
            count += len(offered)
        return count


class Desk:
    """The clock and the workers of one test."""

    def __init__(self) -> None:
        self.now = datetime(2024, 1, 1, 9, 0, tzinfo=UTC)

    def advance(self, seconds: float = 0, **units: float) -> None:
        """Move the clock; maintenance is told that it never slept, and does what is due at the end."""
        self.now += timedelta(seconds=seconds, **units)
        self.tick()

    def tick(self) -> maintenance.Ticked:
        """One tick without a gap before it, while every worker session is heard of."""
        maintenance.ensure_row()
        Worker.objects.filter(left_at=None).update(seen_at=self.now)
        Tick.objects.update(ticked_at=self.now, lenient_until=None)
        return maintenance.tick()

    def worker(self, *workflows: Workflow, name: str = "w1", app: str = "default") -> Hand:
        """A worker session that serves these workflows."""
        return Hand(workflows, name, app)

    def run(self, handle: Any) -> Run:
        """The run's row."""
        return Run.objects.get(pk=handle.id)

    def step(self, handle: Any, name: str) -> Step:
        """A step's row."""
        return Step.objects.get(run=handle.id, name=name)

    def lease(self, offered: Offered) -> Lease:
        """A lease's row."""
        return Lease.objects.get(pk=offered.id)

    def kinds(self, handle: Any) -> list[str]:
        """The kinds of the run's journal, in order."""
        return list(JournalEntry.objects.filter(run=handle.id).order_by("seq").values_list("kind", flat=True))


@pytest.fixture
def desk(db: None) -> Iterator[Desk]:
    """A desk at Monday 2024-01-01 09:00 UTC; the registry is as it was afterwards."""
    made = Desk()
    before = registry.swap()
    clock.freeze(lambda: made.now)
    try:
        yield made
    finally:
        clock.freeze(None)
        registry.swap(before)


@pytest.fixture
def parked(desk: Desk) -> Parked:
    """A body at work, which parks when it is told."""
    return Parked(desk)


@pytest.fixture
def family(desk: Desk) -> Family:
    """A body at work, which starts children when it is told."""
    return Family(desk)


@pytest.fixture
def commits(django_capture_on_commit_callbacks: Any) -> Callable[..., Any]:
    """Make a call and do what follows its commit, as it is done outside of a test's transaction."""

    def call_and_commit(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        with django_capture_on_commit_callbacks(execute=True):
            return call(*arguments, **named)

    return call_and_commit


@pytest.fixture
def send(commits: Callable[..., Any]) -> Callable[..., Any]:
    """`emit`, with what follows its commit."""
    return partial(commits, emit)
