"""Durable bodies led by hand: one that parks and goes on, and one that has children."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ezgh_workflows_django import Workflow
from ezgh_workflows_django.models import Checkpoint, Run
from ezgh_workflows_django.protocol.durable import WaitFor
from ezgh_workflows_django.protocol.messages import Lease as Offered
from tests.engine.graphs import brought, end_of, job

if TYPE_CHECKING:  # the desk's own module gives these as fixtures
    from tests.engine.conftest import Desk, Hand


class Parked:
    """One run of `job` whose body parks as it is told."""

    def __init__(self, desk: Desk, workflow: Workflow | None = None) -> None:
        self.desk = desk
        self.workflow: Any = workflow or job()
        self.hand: Hand = desk.worker(self.workflow)
        self.run: Any = self.workflow.start({"n": 1})
        self.lease: Offered = self.hand.take()

    def park(self, *waits: WaitFor, mode: str = "all") -> str | None:
        """Park; the status the step is left in."""
        answer = self.hand.park(self.lease, *waits, mode=mode)
        assert answer.refused is None, answer.refused
        return answer.step

    def go_on(self) -> Offered:
        """The next pass of the body."""
        self.lease = self.hand.take()
        return self.lease

    def checkpoint(self, name: str) -> Checkpoint:
        """The row of that name."""
        return Checkpoint.objects.get(run=self.run.id, name=name)

    @property
    def step(self) -> Any:
        """The body's step, as it is stored."""
        return self.desk.step(self.run, self.lease.step)


class Family:
    """A parent at work in one worker's hands, and a worker for its children."""

    def __init__(self, desk: Desk, child: Workflow | None = None, parent: Workflow | None = None, **start: Any) -> None:
        self.desk = desk
        self.workflow: Any = parent or job()
        self.child = child or job("kid")
        self.hand: Hand = desk.worker(self.workflow)
        self.kids: Hand = desk.worker(self.child, name="kids")
        self.run: Any = self.workflow.start({"n": 1}, **start)
        self.lease: Offered = self.hand.take()

    def start(self, count: int, name: str = "all", **rest: Any) -> tuple[str, ...]:
        """Start that many children; each gets its number."""
        answer = self.hand.children(self.lease, name, self.child, range(rest.get("first", 0), rest.get("first", 0) + count), **rest)
        assert answer.refused is None, answer.refused
        return answer.runs

    def park(self, name: str = "all") -> str | None:
        """Wait for them."""
        return self.hand.park(self.lease, end_of(name)).step

    def lose(self) -> None:
        """The parent's worker is killed, and another pass begins."""
        self.desk.advance(seconds=31)
        self.desk.advance(seconds=31)
        self.lease = self.hand.take()

    def results(self, name: str = "all") -> Any:
        """What the parent is told of them in its next pass."""
        self.lease = self.hand.take()
        return brought(self.lease, name).output

    @property
    def children(self) -> Any:
        """The children's rows, in the order they were asked for."""
        return Run.objects.filter(parent=self.run.id).order_by("parent_checkpoint", "parent_index")
