"""A fault at every statement of every verb: nothing is half-written, and the run still ends as it should (cases B19, B86; invariants I3, I4)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from ezgh_workflows_django import Retry, Sleep, Step, Wait, Workflow
from ezgh_workflows_django.engine import events, kin, maintenance
from ezgh_workflows_django.models import Checkpoint, Event, JournalEntry, Lease, Receipt, Run, RunLabel
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.models import Wait as OpenWait
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import end_of, event, job, sleep


def give_back(value: Any) -> Any:
    """A body."""
    return value


def chain() -> Workflow:
    """One of everything, one after the other."""
    return Workflow(
        "chain",
        steps=[
            Step("first", run=give_back, retry=Retry(max_attempts=3)),
            Step("beside", run=give_back),
            Step("paid", after=["first", "beside"], wait=Wait("paid", key_expr="labels.order")),
            Step("rest", after=["paid"], sleep=Sleep(timedelta(minutes=5))),
            Step("last", after=["rest"], run=give_back),
        ],
        on_failure=give_back,
    )


class Injected(OperationalError):
    """The fault."""


@dataclass
class Fault:
    """Raises at the n-th statement, before it is executed or after. Savepoints are not counted: they are the database's, not the verb's."""

    at: int
    after: bool
    seen: int = 0
    hit: bool = False

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(("SAVEPOINT", "RELEASE", "ROLLBACK")):
            return execute(sql, params, many, context)
        self.seen += 1
        if self.seen != self.at:
            return execute(sql, params, many, context)
        self.hit = True
        if self.after:
            execute(sql, params, many, context)
        raise Injected("injected")


@contextmanager
def failing_at(statement: int, *, after: bool) -> Iterator[Fault]:
    """Let the n-th statement fail; the caller's transaction survives, as a verb's own would have been rolled back."""
    fault = Fault(statement, after)
    try:
        with transaction.atomic(), connection.execute_wrapper(fault):
            yield fault
    except Injected:
        pass


@dataclass
class Story:
    """A run led up to a point, the call that is made to fail there, and the worker that goes on."""

    desk: Desk
    workflow: Workflow = field(default_factory=chain)
    handle: Any = None
    lease: Any = None
    child: Any = None

    def __post_init__(self) -> None:
        self.hand: Hand = self.desk.worker(self.workflow)
        self.kids: Hand = self.desk.worker(job("kid"), name="kids")

    def begin(self) -> None:
        """Start the run."""
        self.handle = self.workflow.start({"n": 1}, labels={"order": "A-1"})

    def wait_open(self) -> None:
        """The run waits for its event."""
        self.begin()
        self.hand.work_off()

    def asleep(self) -> None:
        """The run sleeps."""
        self.wait_open()
        events.signal(self.handle.id, "paid", {"paid": 40})

    def take_first(self) -> None:
        """One of the two first steps is at work, the other is done."""
        self.begin()
        [self.lease, other] = sorted(self.hand.claim(2), key=lambda lease: lease.step, reverse=True)
        self.hand.start(self.lease)
        self.hand.start(other)
        self.hand.complete(other, 1)

    def offered(self) -> None:
        """One lease is offered."""
        self.begin()
        [self.lease] = self.hand.claim(1)

    def take_last(self) -> None:
        """The last step is at work."""
        self.asleep()
        self.desk.advance(minutes=5)
        self.lease = self.hand.take()

    def failed(self) -> None:
        """The run has failed and compensated."""
        self.take_first()
        self.hand.fail(self.lease, "permanent")
        self.hand.work_off()

    def parked(self) -> None:
        """One of the two first steps is parked on an event and a sleep."""
        self.take_first()
        self.hand.park(self.lease, event("approved", timeout_ms=60_000), sleep("nap", 30))

    def asleep_in_its_body(self) -> None:
        """One of the two first steps sleeps."""
        self.take_first()
        self.hand.park(self.lease, sleep("nap", 30))

    def with_children(self) -> None:
        """One of the two first steps has three children, and works on."""
        self.take_first()
        self.hand.children(self.lease, "all", "kid", [1, 2, 3])

    def with_one_child_left(self) -> None:
        """One of the two first steps waits for its last child, which is at work."""
        self.with_children()
        self.hand.park(self.lease, end_of("all"))
        *others, self.child = self.kids.claim()
        self.kids.start(self.child)
        for lease in others:
            self.kids.complete(lease)

    def with_children_that_are_over(self) -> None:
        """One of the two first steps waits for its children, and nobody has told it."""
        self.with_one_child_left()
        self.kids.complete(self.child)

    def lead_to_end(self) -> str:
        """Whatever happened, go on like a fleet and an outside world would, and say how the run ends."""
        for _ in range(8):
            if self.hand.work_off() + self.kids.work_off() == 0 and self.handle.run.is_terminal:
                break
            self.desk.advance(minutes=2)
            if OpenWait.objects.filter(run=self.handle.id).exists() and not Event.objects.filter(run=self.handle.id, name="paid").exists():
                events.signal(self.handle.id, "paid", {"paid": 40})
        return str(self.handle.status)


CALLS: dict[str, tuple[str, Callable[[Story], Any], str]] = {
    "started": ("offered", lambda story: story.hand.start(story.lease), "succeeded"),
    "complete": ("take_first", lambda story: story.hand.complete(story.lease, 2), "succeeded"),
    "complete the last": ("take_last", lambda story: story.hand.complete(story.lease, 2), "succeeded"),
    "fail with a retry left": ("take_first", lambda story: story.hand.fail(story.lease), "succeeded"),
    "fail for good": ("take_first", lambda story: story.hand.fail(story.lease, "permanent"), "failed"),
    "hand back": ("take_first", lambda story: story.hand.fail(story.lease, "returned"), "succeeded"),
    "heartbeat": ("take_first", lambda story: story.hand.beat(story.lease), "succeeded"),
    "signal": ("wait_open", lambda story: events.signal(story.handle.id, "paid", {"paid": 40}), "succeeded"),
    "cancel": ("take_first", lambda story: story.handle.cancel("no more"), "cancelled"),
    "pause": ("take_first", lambda story: story.handle.pause(), "paused"),
    "retry": ("failed", lambda story: story.handle.retry(), "succeeded"),
    "checkpoint": ("take_first", lambda story: story.hand.checkpoint(story.lease, "probe", 1, state={"seen": 1}), "succeeded"),
    "suspend on a sleep": ("take_first", lambda story: story.hand.park(story.lease, sleep("nap", 30)), "succeeded"),
    "suspend on an event": ("take_first", lambda story: story.hand.park(story.lease, event("approved", timeout_ms=60_000)), "succeeded"),
    "suspend on children": ("with_children", lambda story: story.hand.park(story.lease, end_of("all")), "succeeded"),
    "wake by a signal": ("parked", lambda story: events.signal(story.handle.id, "approved", 1), "succeeded"),
    "children": ("take_first", lambda story: story.hand.children(story.lease, "all", "kid", [1, 2, 3]), "succeeded"),
    "end with children left behind": ("with_children", lambda story: story.hand.complete(story.lease, 2), "succeeded"),
    "a child's end": ("with_one_child_left", lambda story: story.kids.complete(story.child, 2), "succeeded"),
    "cancel with children": ("with_children", lambda story: story.handle.cancel(), "cancelled"),
    "resolve": ("failed", lambda story: story.handle.resolve("first", 3, "by hand"), "succeeded"),
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_fails_at_any_statement_changes_nothing_and_can_be_made_again(desk: Desk, name: str, after: bool) -> None:
    prepare, call, ending = CALLS[name]
    story = Story(desk)
    getattr(story, prepare)()
    before = snapshot(story.handle)
    for statement in itertools.count(1):
        with failing_at(statement, after=after) as fault:
            call(story)
        if not fault.hit:
            break
        assert snapshot(story.handle) == before, f"{name} left something of statement {statement}"
    assert statement >= 3
    assert story.lead_to_end() == ending
    assert_whole(story.handle)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_start_that_fails_at_any_statement_leaves_nothing(desk: Desk, after: bool) -> None:
    workflow = chain()
    desk.worker(workflow)
    for statement in itertools.count(1):
        with failing_at(statement, after=after) as fault:
            workflow.start({"n": 1}, labels={"order": "A-1"}, idempotency_key=f"k-{statement}")
        if not fault.hit:
            break
        assert [model.objects.count() for model in (Run, StepRow, RunLabel, JournalEntry)] == [0, 0, 0, 0]
    assert Run.objects.count() == 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_claim_that_fails_at_any_statement_costs_seconds_at_most(desk: Desk, after: bool) -> None:
    story = Story(desk)
    for statement in itertools.count(1):
        story.begin()
        with failing_at(statement, after=after) as fault:
            story.hand.claim()
        if not fault.hit:
            break
        assert story.lead_to_end() == "succeeded"
        assert_whole(story.handle)
        assert set(StepRow.objects.filter(run=story.handle.id, kind="run").values_list("attempts", flat=True)) == {1}


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("prepare", "minutes"),
    [("wait_open", 1), ("asleep", 6), ("take_first", 1), ("parked", 1), ("asleep_in_its_body", 1), ("with_children_that_are_over", 0)],
    ids=["second look", "sleep ends", "lease expires", "a body's second look", "a body's sleep ends", "children are over"],
)
def test_a_tick_that_fails_at_any_statement_is_made_good_by_the_next(desk: Desk, prepare: str, minutes: int, after: bool) -> None:
    story = Story(desk)
    for statement in itertools.count(1):
        getattr(story, prepare)()
        desk.now += timedelta(minutes=minutes)
        with failing_at(statement, after=after) as fault:
            maintenance.tick()
        if not fault.hit:
            break
        desk.now += timedelta(minutes=6)  # a row that failed is left alone for five minutes
        assert story.lead_to_end() == "succeeded"
        assert_whole(story.handle)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_cascade_that_fails_at_any_statement_is_carried_on_by_the_next_tick(desk: Desk, after: bool) -> None:
    story = Story(desk)
    for statement in itertools.count(1):
        story.with_children()
        story.handle.cancel()
        with failing_at(statement, after=after) as fault:
            kin.run_once(desk.now, 100)
        if not fault.hit:
            break
        for _ in range(3):
            desk.advance(seconds=2)
        assert set(Run.objects.filter(parent=story.handle.id).values_list("status", flat=True)) == {"cancelled"}
        assert not Run.objects.filter(kin_at__isnull=False).exists()
        assert_whole(story.handle)
    assert statement > 5


def snapshot(handle: Any) -> Any:
    """All that is stored of a run and of its children."""
    family = [handle.id, *Run.objects.filter(parent=handle.id).values_list("pk", flat=True)]
    models = (StepRow, Lease, JournalEntry, Event, OpenWait, Checkpoint, Receipt)
    rows = [list(model.objects.filter(run__in=family).order_by("pk").values()) for model in models]
    return list(Run.objects.filter(pk__in=family).order_by("pk").values()), rows


def assert_whole(handle: Any) -> None:
    """The journal has no gap, no lease is live in a run that is over, and nothing is claimable there."""
    seqs = list(JournalEntry.objects.filter(run=handle.id).order_by("seq").values_list("seq", flat=True))
    assert seqs == list(range(1, len(seqs) + 1))
    run = Run.objects.get(pk=handle.id)
    assert run.journal_seq == len(seqs)
    over = run.is_terminal
    assert not (over and Lease.objects.filter(run=handle.id, live_step__isnull=False).exists())
    assert not (over and StepRow.objects.filter(run=handle.id, claim_order__isnull=False).exists())
