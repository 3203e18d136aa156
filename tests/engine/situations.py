"""How a lease, a step or a run comes to be in each of its states, by the real verbs alone. Checks nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from ezgh_workflows_django import Retry, Sleep, Step, Wait, Workflow
from ezgh_workflows_django.models import Checkpoint, JournalEntry, Lease, Run, RunLabel
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.models import Wait as OpenWait
from ezgh_workflows_django.protocol.messages import Lease as Offered
from ezgh_workflows_django.protocol.messages import Serve
from ezgh_workflows_django.protocol.states import LeaseStatus
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body, event, sleep

RETRY: Final = Retry(max_attempts=3, initial=10, jitter=0)


@dataclass
class Scene:
    """One run, the worker that holds the lease the test is about, and how to reach it."""

    desk: Desk
    hand: Hand
    handle: Any
    workflow: Workflow
    lease: Offered | None = None
    claim_id: str = ""

    @property
    def offered(self) -> Offered:
        """The lease of this scene."""
        assert self.lease is not None
        return self.lease

    def claim(self, step: str = "work", *, claim_id: str = "") -> Offered:
        """Lease one step of this workflow by name."""
        self.claim_id = claim_id or f"claim-of-{step}"
        [self.lease] = self.hand.claim(1, claim_id=self.claim_id, serves=[Serve(self.workflow.name, self.workflow.revision, frozenset({step}))])
        return self.lease


def pair(delivery: str = "at_least_once", **options: Any) -> Workflow:
    """Two steps at once, `work` and `beside`; `work` has two retries and ten minutes."""
    steps = [Step("work", run=body, retry=RETRY, timeout=timedelta(minutes=10), delivery=delivery), Step("beside", run=body)]
    return Workflow("pair", steps, **options)


def scene(desk: Desk, workflow: Workflow, name: str = "w1", **start: Any) -> Scene:
    """A started run of a workflow, and a worker that serves it."""
    hand = desk.worker(workflow, name=name)
    return Scene(desk, hand, workflow.start({"n": 1}, **start), workflow)


# Leases ----------------------------------------------------------------------------------------------------------------


def offered(of: Scene) -> None:
    """Handed out."""
    of.claim()


def started(of: Scene) -> None:
    """Its body runs."""
    of.hand.start(of.claim())


def orphaned(of: Scene) -> None:
    """Its heartbeats stopped a lease's life ago."""
    started(of)
    of.desk.advance(seconds=30)


def completed(of: Scene) -> None:
    """Its body returned."""
    started(of)
    of.hand.complete(of.offered, {"done": True})


def failed(of: Scene) -> None:
    """Its body raised; the step will be tried again."""
    started(of)
    of.hand.fail(of.offered)


def suspended(of: Scene) -> None:
    """Its body parked."""
    started(of)
    of.hand.park(of.offered, event("never"))


def returned(of: Scene) -> None:
    """Its worker handed it back."""
    started(of)
    of.hand.fail(of.offered, "returned")


def unservable(of: Scene) -> None:
    """Its worker can't run it."""
    of.hand.fail(of.claim(), "unservable")


def timed_out_by_worker(of: Scene) -> None:
    """Its worker reported the timeout."""
    started(of)
    of.hand.fail(of.offered, "timeout")


def timed_out_by_engine(of: Scene) -> None:
    """Ten seconds past its timeout nobody had reported it, though its heartbeats went on."""
    started(of)
    Lease.objects.filter(pk=of.offered.id).update(expires_at=of.desk.now + timedelta(minutes=11))
    of.desk.advance(minutes=10, seconds=10)


def cancelled_by_run(of: Scene) -> None:
    """Its run was cancelled."""
    started(of)
    of.handle.cancel("no more")


def cancelled_by_sibling(of: Scene) -> None:
    """The step beside it failed for good."""
    started(of)
    mine = of.offered
    of.hand.fail(of.claim("beside"), "permanent")
    of.lease, of.claim_id = mine, "claim-of-work"


def reclaimed(of: Scene) -> None:
    """Its recovery window is over."""
    orphaned(of)
    of.desk.advance(seconds=30)


LEASES: Final[Mapping[str, tuple[LeaseStatus, Callable[[Scene], None]]]] = {
    "offered": (LeaseStatus.OFFERED, offered),
    "started": (LeaseStatus.STARTED, started),
    "orphaned": (LeaseStatus.ORPHANED, orphaned),
    "completed": (LeaseStatus.COMPLETED, completed),
    "failed": (LeaseStatus.FAILED, failed),
    "suspended": (LeaseStatus.SUSPENDED, suspended),
    "returned": (LeaseStatus.RETURNED, returned),
    "unservable": (LeaseStatus.UNSERVABLE, unservable),
    "timed out by its worker": (LeaseStatus.TIMED_OUT, timed_out_by_worker),
    "timed out by the engine": (LeaseStatus.TIMED_OUT, timed_out_by_engine),
    "cancelled by the run": (LeaseStatus.CANCELLED, cancelled_by_run),
    "cancelled by a sibling": (LeaseStatus.CANCELLED, cancelled_by_sibling),
    "reclaimed": (LeaseStatus.RECLAIMED, reclaimed),
}
"""The ways a lease comes to its state: at least one for each state, two where who ended it matters."""


# Runs ------------------------------------------------------------------------------------------------------------------


def queued_run(desk: Desk) -> Scene:
    """It is due in half an hour."""
    return scene(desk, pair(deadline=timedelta(hours=1)), delay=timedelta(minutes=30))


def running_run(desk: Desk) -> Scene:
    """Both steps are ready."""
    return scene(desk, pair(deadline=timedelta(hours=1)))


def paused_run(desk: Desk) -> Scene:
    """An operator paused it."""
    made = running_run(desk)
    made.handle.pause("look into it")
    return made


def needy_run(desk: Desk) -> Scene:
    """A step's retries are spent, and its policy asks for a person."""
    steps = [Step("work", run=body, retry=Retry(exhausted="pause")), Step("beside", run=body)]
    made = scene(desk, Workflow("needy", steps, deadline=timedelta(hours=1)))
    made.hand.start(made.claim())
    made.hand.fail(made.offered)
    return made


def failing_run(desk: Desk) -> Scene:
    """`on_failure` is ready."""
    made = scene(desk, pair(deadline=timedelta(hours=1), on_failure=body))
    made.hand.fail(made.claim(), "permanent")
    return made


def succeeded_run(desk: Desk) -> Scene:
    """Every step succeeded."""
    made = running_run(desk)
    made.hand.work_off()
    return made


def failed_run(desk: Desk) -> Scene:
    """A step failed for good."""
    made = running_run(desk)
    made.hand.fail(made.claim(), "permanent")
    return made


def cancelled_run(desk: Desk) -> Scene:
    """Somebody cancelled it."""
    made = running_run(desk)
    made.handle.cancel("no more")
    return made


def timed_out_run(desk: Desk) -> Scene:
    """Its deadline passed."""
    made = running_run(desk)
    desk.advance(hours=1)
    return made


# Steps: each scene's step is named `work` -----------------------------------------------------------------------------


def blocked_step(desk: Desk) -> Scene:
    """Its parent is not over."""
    return scene(desk, Workflow("blocked", [Step("before", run=body), Step("work", run=body, after=["before"])], deadline=timedelta(hours=1)))


def leased_step(desk: Desk) -> Scene:
    """A worker has it."""
    made = running_run(desk)
    made.hand.start(made.claim())
    Lease.objects.filter(pk=made.offered.id).update(expires_at=desk.now + timedelta(hours=2))
    return made


def waiting_step(desk: Desk) -> Scene:
    """It waits for the event `called`."""
    return scene(desk, Workflow("waiting", [Step("work", wait=Wait("called"))], deadline=timedelta(hours=1)))


def sleeping_step(desk: Desk) -> Scene:
    """It sleeps for a day."""
    return scene(desk, Workflow("sleeping", [Step("work", sleep=Sleep(timedelta(days=1)))], deadline=timedelta(hours=1)))


def parked_waiting_step(desk: Desk) -> Scene:
    """Its body waits for the event `called`, and for a day at most."""
    made = running_run(desk)
    made.hand.start(made.claim())
    made.hand.park(made.offered, event("called"), sleep("day", 24 * 3600), mode="any")
    return made


def parked_sleeping_step(desk: Desk) -> Scene:
    """Its body sleeps for a day."""
    made = running_run(desk)
    made.hand.start(made.claim())
    made.hand.park(made.offered, sleep("day", 24 * 3600))
    return made


def succeeded_step(desk: Desk) -> Scene:
    """It succeeded, and the run goes on."""
    made = running_run(desk)
    made.hand.complete(made.claim())
    return made


def everything(handle: Any) -> Mapping[str, Any]:
    """All that is stored of a run, table by table."""
    tables = (StepRow, Lease, JournalEntry, RunLabel, OpenWait, Checkpoint)
    return {
        "run": list(Run.objects.filter(pk=handle.id).values()),
        "children": list(Run.objects.filter(parent=handle.id).order_by("pk").values()),
        **{table.__name__: list(table._default_manager.filter(run=handle.id).order_by("pk").values()) for table in tables},
    }
