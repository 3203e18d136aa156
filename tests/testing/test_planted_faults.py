"""Each fault that raw writes plant is found by its name, and `workflows_check --fix` mends what can be mended safely."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models import F, Max

from ezgh_workflows_django import Concurrency, Cron, RateLimit, Step, Wait, Workflow, emit
from ezgh_workflows_django.engine import invariants, schedules
from ezgh_workflows_django.engine.transactions import database
from ezgh_workflows_django.models import App, Checkpoint, Event, JournalEntry, Lease, Occurrence, Rate, Receipt, Run, RunLabel, Schedule
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.models import Wait as WaitRow
from ezgh_workflows_django.protocol.messages import Serve
from ezgh_workflows_django.testing import Lab
from tests.engine.conftest import Hand
from tests.engine.graphs import end_of, sleep
from tests.rollback import rolled_back

from . import flows

pytestmark = [pytest.mark.django_db, pytest.mark.plants_faults]

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
durable, child = (Workflow(name, steps=[Step("work", run=flows.give_back)]) for name in ("durable", "child"))
two = Workflow("two", steps=[Step("first", run=flows.stuck), Step("then", after=["first"], run=flows.give_back)])


@dataclass
class World:
    """A lab in which runs are in every state worth breaking."""

    lab: Lab
    done: Any
    waiting: Any
    sleeping: Any
    at_work: Any
    retrying: Any
    queued: Any
    parent: Any
    napping: Any

    def row(self, run: Any) -> Any:
        """A run's row, as a query that can be written."""
        return Run.objects.filter(pk=run.id)

    def step(self, run: Any, name: str) -> Any:
        """A step's row, likewise."""
        return StepRow.objects.filter(run__id=run.id, name=name)

    def lease(self, run: Any) -> Any:
        """The leases of a run, likewise."""
        return Lease.objects.filter(run__id=run.id)


@pytest.fixture
def world() -> Iterator[World]:
    """Nothing is broken yet."""
    with Lab(workflows=[flows.pay, flows.retried, flows.job, two]) as lab:
        done = flows.pay.start({"order": "A-0"}, labels={"order": "A-0", "shop": "north"})
        emit("payment", key="A-0", payload={})
        lab.advance(hours=25)
        waiting, sleeping = flows.pay.start({"order": "A-1"}), flows.pay.start({"order": "A-2"})
        emit("payment", key="A-2", payload={})
        at_work, retrying, queued = two.start(), flows.retried.start(), flows.job.start(delay=3600)
        lab.run_until_blocked()
        made = World(lab, done, waiting, sleeping, at_work, retrying, queued, *_parked())
        assert [made.done.phase, made.waiting.phase, made.sleeping.phase] == ["succeeded", "waiting", "sleeping"]
        assert [made.at_work.phase, made.retrying.phase, made.queued.phase] == ["running", "retrying", "queued"]
        yield made


def _parked() -> tuple[Any, Any]:
    """Two runs whose bodies are parked: on a child that is at work, and on a sleep."""
    hand = Hand([durable, child], "by hand")
    parent = durable.start()
    lease = hand.take()
    hand.checkpoint(lease, "probe", 1)
    hand.child(lease, "bill", child)
    hand.park(lease, end_of("bill"))
    napping = durable.start()
    hand.park(hand.claim(serves=[Serve("durable", "1")])[0], sleep("nap", 3600))
    return parent, napping


def found() -> set[str]:
    """The names of what is broken."""
    return {violation.invariant for violation in invariants.violations()}


def told() -> str:
    """What is said of it."""
    return "\n".join(map(str, invariants.violations()))


# --- by name


Plant = Callable[[World], object]

PLANTS: dict[str, tuple[str, str, Plant]] = {
    "a live lease that is over": ("I1", "still marked live", lambda w: w.lease(w.at_work).update(status="completed")),
    "a lease at work not marked live": ("I1", "not marked live", lambda w: w.lease(w.at_work).update(live_step=None)),
    "a token above its step's": ("I1", "above its step's", lambda w: w.lease(w.done).update(token=9)),
    "a live lease with an old token": ("I1", "is not its step's", lambda w: w.step(w.at_work, "first").update(token=7)),
    "a leased step without a lease": ("I1", "has no live lease", lambda w: w.lease(w.at_work).delete()),
    "a live lease of a step that is not leased": ("I1", "its step is not leased", lambda w: w.step(w.at_work, "first").update(status="ready")),
    "an ended run with a live lease": ("I2", "a live lease", lambda w: w.row(w.at_work).update(status="failed", ended_at=F("created_at"))),
    "an ended run with an open step": ("I2", "not over", lambda w: w.step(w.done, "ship").update(status="ready")),
    "an ended run with something due": ("I2", "something due", lambda w: w.row(w.done).update(due_at=F("ended_at"))),
    "an ended run without an end": ("I2", "has no end", lambda w: w.row(w.done).update(ended_at=None)),
    "a step that is over and claimable": ("I2", "claimable", lambda w: w.step(w.done, "ship").update(claim_order=F("ended_at"))),
    "a paused run on offer": ("I2", "offers nothing", lambda w: w.row(w.retrying).update(status="paused")),
    "a timer that nothing waits for": ("I2", "has a timer", lambda w: w.step(w.done, "ship").update(timer_at=F("ended_at") + timedelta(days=9))),
    "an open wait of a step that does not wait": ("I2", "does not wait", lambda w: w.step(w.waiting, "paid").update(status="blocked", timer_at=None)),
    "a success recorded twice": ("I3", "recorded 2 times", lambda w: JournalEntry.objects.create(**entry(w.done, "step.succeeded", "ship"))),
    "a step that ended twice": ("I3", "ended more than once", lambda w: JournalEntry.objects.create(**entry(w.done, "step.failed", "ship"))),
    "a completed lease of a step that did not succeed": ("I3", "has not succeeded", lambda w: w.step(w.done, "ship").update(status="failed")),
    "a run that nothing moves": ("I4", "nothing will move it", lambda w: [w.lease(w.at_work).delete(), w.step(w.at_work, "first").update(status="blocked")]),
    "a ready step out of sight": ("I4", "no claim can see it", lambda w: w.step(w.retrying, "try").update(claim_order=None)),
    "a queued run without its time": ("I4", "nothing is due", lambda w: w.row(w.queued).update(due_at=None)),
    "a waiting step without its wait": ("I4", "no open wait", lambda w: WaitRow.objects.filter(run__id=w.waiting.id).delete()),
    "a wait that never times out": ("I4", "its wait times out", lambda w: w.step(w.waiting, "paid").update(timer_at=None)),
    "a sleep that never ends": ("I4", "has no timer", lambda w: w.step(w.sleeping, "cool_off").update(timer_at=None)),
    "a live lease nobody looks at": ("I4", "nothing is due", lambda w: w.lease(w.at_work).update(due_at=None)),
    "a step that nothing blocks": ("I4", "not open", lambda w: w.step(w.at_work, "then").update(blockers=0)),
    "a step blocked by too much": ("I4", "things that block it", lambda w: w.step(w.at_work, "then").update(blockers=2)),
    "an expired lease nobody reclaims": ("I5", "does maintenance run", lambda w: w.lease(w.at_work).update(due_at=F("offered_at") - HOUR)),
    "a timer that does not fire": (
        "I8",
        "does maintenance run",
        lambda w: w.step(w.sleeping, "cool_off").update(timer_at=F("started_at") - timedelta(hours=1)),
    ),
    "a sleep that ended early": ("I8", "it slept", lambda w: w.step(w.done, "cool_off").update(ended_at=F("started_at") + SECOND)),
    "a signal taken by another run": ("I7", "a signal to another run", lambda w: Event.objects.filter(receipts__run__id=w.done.id).update(run=w.waiting.id)),
    "an event of another app": ("I7", "of another app", lambda w: Event.objects.filter(receipts__run__id=w.done.id).update(app=other_app())),
    "a step whose run is gone": ("I10", "rows of Step", lambda w: w.step(w.done, "ship").update(run=uuid.uuid4())),
    "a journal whose run is gone": ("I10", "rows of JournalEntry", lambda w: w.row(w.done).all()._raw_delete(database())),
    "failures that no lease bears out": ("I11", "failures", lambda w: w.step(w.retrying, "try").update(failures=2)),
    "reclaims that no lease bears out": ("I11", "reclaims", lambda w: w.step(w.done, "ship").update(reclaims=1)),
    "attempts beyond the leases": ("I11", "attempts", lambda w: w.step(w.done, "ship").update(attempts=5)),
    "open steps miscounted": ("I11", "open steps", lambda w: w.row(w.waiting).update(open_steps=9)),
    "a gap in a journal": ("I12", "its journal has", lambda w: JournalEntry.objects.filter(run__id=w.done.id, seq=2).delete()),
    "a live run without a step": ("I15", "differ by then", lambda w: w.step(w.at_work, "then").delete()),
    "a lease whose step is gone": ("I15", "is gone", lambda w: w.lease(w.done).update(step=10**9)),
    "a lease whose worker is gone": ("I15", "is gone", lambda w: w.lease(w.done).update(worker=uuid.uuid4())),
    "a step at work that is parked": ("I2", "and parked", lambda w: w.step(w.at_work, "first").update(parked='{"mode": "all", "names": []}')),
    "a checkpoint that is met and due": ("I3", "something due", lambda w: Checkpoint.objects.filter(name="probe").update(due_at=F("met_at"))),
    "a checkpoint that no worker is given": ("I3", "no worker is given it", lambda w: w.step(w.parent, "work").update(has_checkpoints=False)),
    "a checkpoint whose run is gone": ("I10", "rows of Checkpoint", lambda w: Checkpoint.objects.filter(name="nap").update(run=uuid.uuid4())),
    "a checkpoint whose step is gone": ("I15", "is gone", lambda w: Checkpoint.objects.filter(name="nap").update(step=10**9)),
    "a parked body that nothing wakes": ("I4", "has no timer", lambda w: w.step(w.napping, "work").update(timer_at=None)),
    "a child that is left at work": ("I13", "nothing will end it", lambda w: w.row(w.parent).update(status="cancelled", ended_at=F("created_at"))),
    "a parent that was never told": ("I13", "which are over", lambda w: end_children_of(w.parent)),
    "kin that nobody sees to": ("I13", "does maintenance run", lambda w: w.row(w.done).update(kin_at=F("created_at"))),
    "labels that nobody can search": ("labels", "is found by others", lambda w: RunLabel.objects.filter(run__id=w.done.id, name="shop").delete()),
}


def end_children_of(run: Any) -> None:
    """The children are over, and nobody is to tell their parent."""
    StepRow.objects.filter(run__parent=run.id).update(status="cancelled", claim_order=None)
    Run.objects.filter(parent=run.id).update(status="cancelled", ended_at=F("created_at"), open_steps=0)


def entry(run: Any, kind: str, step: str) -> dict[str, Any]:
    """One more entry for a journal that has an end already."""
    row = Run.objects.get(pk=run.id)
    last = JournalEntry.objects.filter(run=row).aggregate(last=Max("seq"))["last"]
    return {"run": row, "seq": last + 1, "kind": kind, "at": row.created_at, "step": step}


def other_app() -> App:
    """An app beside the default one."""
    app = App.objects.get(name="default")
    return App.objects.create(project=app.project, name="other", created_at=app.created_at)


def assert_found(subtests: pytest.Subtests, world: Any, faults: Mapping[str, tuple[str, str, Callable[[Any], object]]]) -> None:
    """Each fault is planted by itself, and told of."""
    for fault, (invariant, text, plant) in faults.items():
        with subtests.test(fault), rolled_back():
            plant(world)
            lines = told().splitlines()
            assert any(line.startswith(f"{invariant} ") and text in line for line in lines), lines


@pytest.mark.parametrize("invariant", sorted({invariant for invariant, _, _ in PLANTS.values()}))
def test_a_planted_fault_is_found_by_name(world: World, subtests: pytest.Subtests, invariant: str) -> None:
    assert_found(subtests, world, {fault: plant for fault, plant in PLANTS.items() if plant[0] == invariant})


def test_an_event_that_is_gone_takes_its_receipts_along(world: World) -> None:
    Event.objects.filter(receipts__run__id=world.done.id).delete()
    assert (Receipt.objects.filter(run__id=world.done.id).count(), found()) == (0, set())


def test_a_move_between_two_reads_is_no_violation(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([[invariants.Violation("I1", "step 1", "seen half-way")], []])
    monkeypatch.setattr(invariants, "_all", lambda: next(looks))
    assert invariants.violations() == []


# --- the command


def check(*flags: str) -> str:
    """What the command prints."""
    out = StringIO()
    call_command("workflows_check", *flags, stdout=out)
    return out.getvalue()


def test_a_sound_database_is_said_to_be_so(world: World) -> None:
    assert check() == "every invariant holds\n"


def test_what_is_broken_is_printed_and_ends_the_command_with_code_1(world: World) -> None:
    world.row(world.waiting).update(open_steps=9)
    with pytest.raises(CommandError, match="1 broken") as ended:
        check()
    assert ended.value.returncode == 1


MENDED = [
    "a step that is over and claimable",
    "a paused run on offer",
    "a ready step out of sight",
    "a queued run without its time",
    "a wait that never times out",
    "a sleep that never ends",
    "a live lease nobody looks at",
    "a journal whose run is gone",
    "open steps miscounted",
    "a parked body that nothing wakes",
    "a parent that was never told",
    "labels that nobody can search",
]


@pytest.mark.parametrize("invariant", sorted({PLANTS[fault][0] for fault in MENDED}))
def test_fix_mends_what_can_be_mended_and_says_so(world: World, subtests: pytest.Subtests, invariant: str) -> None:
    for fault in MENDED:
        if PLANTS[fault][0] != invariant:
            continue
        with subtests.test(fault), rolled_back():
            PLANTS[fault][2](world)
            said = check("--fix").splitlines()
            assert said[0].startswith("mended: ")
            assert said[-1] == "every invariant holds"
            assert check() == "every invariant holds\n"


def test_a_mended_sleep_ends_at_its_own_time(world: World) -> None:
    world.step(world.sleeping, "cool_off").update(timer_at=None)
    check("--fix")
    world.lab.advance(hours=23)
    assert world.sleeping.phase == "sleeping"
    world.lab.advance(hours=1)
    assert world.sleeping.phase == "succeeded"


def test_a_mended_parent_goes_on_with_the_next_tick(world: World) -> None:
    end_children_of(world.parent)
    check("--fix")
    world.lab.advance(seconds=1)
    assert world.parent.phase == "queued"


def test_a_mended_body_that_is_parked_wakes_at_its_own_time(world: World) -> None:
    world.step(world.napping, "work").update(timer_at=None)
    check("--fix")
    world.lab.advance(minutes=59)
    assert world.napping.phase == "sleeping"
    world.lab.advance(minutes=1)
    assert world.napping.phase == "queued"


def test_a_mended_wait_times_out_at_its_own_time(world: World) -> None:
    world.step(world.waiting, "paid").update(timer_at=None)
    check("--fix")
    world.lab.advance(days=3)
    assert world.waiting.failure.timed_out


def test_what_can_not_be_mended_safely_is_left_and_told(world: World) -> None:
    WaitRow.objects.filter(run__id=world.waiting.id).delete()
    with pytest.raises(CommandError, match="broken"):
        check("--fix")
    assert world.step(world.waiting, "paid").get().status == "waiting"


def test_a_wait_without_a_timeout_needs_no_timer(world: World) -> None:
    patient = Workflow("patient", steps=[Step("wait", wait=Wait("never"))])
    world.lab.worker("w", [patient])
    patient.start()
    world.lab.run_until_blocked()
    assert found() == set()


# --- schedules


@pytest.fixture
def timed() -> Iterator[Lab]:
    """A schedule whose run is at work while another occurrence waits."""
    hourly = Workflow("hourly", steps=[Step("work", run=flows.stuck, timeout=HOUR * 9)], cron=Cron("0 * * * *", overlap="queue"))
    with Lab(workflows=[hourly]) as lab:
        lab.advance(hours=2)
        assert list(Occurrence.objects.order_by("at").values_list("became", flat=True)) == ["started", "waiting"]
        assert found() == set()
        yield lab


def twice(lab: Lab) -> None:
    """Another run of the same occurrence."""
    schedule, occurrence = Schedule.objects.get(), Occurrence.objects.get(became="started")
    by_hand = schedules.run(schedule.pk, by=("user", "eva"))
    Run.objects.filter(pk=by_hand.pk).update(occurrence=occurrence.pk)


def double(lab: Lab) -> None:
    """Another schedule of the same cron."""
    schedule = Schedule.objects.get()
    schedule.pk = None
    schedule.save(force_insert=True)


OF_SCHEDULES: dict[str, tuple[str, str, Callable[[Lab], object]]] = {
    "two runs of an occurrence": ("I9", "has started 2 runs", twice),
    "an occurrence whose run was never named": ("I9", "names no run", lambda _: Occurrence.objects.filter(became="started").update(run_id=None)),
    "two schedules of a cron": ("I9", "each of which fires", double),
    "a schedule that nobody looks at": ("I9", "nothing will look at it", lambda _: Schedule.objects.update(due_at=None)),
    "an occurrence that waits for nothing": ("I9", "nothing will look at it", lambda _: Schedule.objects.update(waits_for=None)),
    "a schedule without a next time": ("I9", "has no next occurrence", lambda _: Schedule.objects.update(next_at=None, due_at=None)),
    "a schedule that is not fired": ("I9", "does maintenance run", lambda _: Schedule.objects.update(due_at=F("next_at") - timedelta(hours=2))),
}


def test_a_planted_fault_of_a_schedule_is_found_by_name(timed: Lab, subtests: pytest.Subtests) -> None:
    assert_found(subtests, timed, OF_SCHEDULES)


@pytest.mark.parametrize("fault", ["a schedule that nobody looks at", "an occurrence that waits for nothing", "a schedule without a next time"])
def test_fix_makes_a_schedule_due_that_nobody_would_have_looked_at(timed: Lab, fault: str) -> None:
    OF_SCHEDULES[fault][2](timed)
    assert check("--fix").splitlines() == ["mended: made 1 schedules due that nothing would have looked at", "every invariant holds"]
    timed.advance(hours=1)
    schedule = Schedule.objects.get()
    assert (schedule.next_at, schedule.waits_for) == (timed.now + HOUR, Run.objects.get().pk)
    assert Occurrence.objects.filter(became="waiting").count() == 2


# --- slots


@dataclass
class Line:
    """A run that holds the one slot, and one that stands in line for it; one that waits for its turn."""

    lab: Lab
    holds: Any
    waits: Any
    turn: Any

    def row(self, run: Any) -> Any:
        """A run's row, as a query that can be written."""
        return Run.objects.filter(pk=run.id)


@pytest.fixture
def line() -> Iterator[Line]:
    """Nothing is broken yet."""
    one = Workflow("one", steps=[Step("wait", wait=Wait("go"))], concurrency=Concurrency(1), deadline=HOUR * 9)
    spaced = Workflow("spaced", steps=[Step("wait", wait=Wait("go"))], rate=RateLimit(1, per=HOUR))
    with Lab(workflows=[one, spaced]) as lab:
        holds, waits = one.start_many(range(2))
        _, turn = spaced.start_many(range(2))
        lab.advance(minutes=1)
        assert [holds.status, waits.status, turn.status] == ["running", "queued", "queued"]
        assert found() == set()
        yield Line(lab, holds, waits, turn)


def let_in(it: Line) -> None:
    """The one that waits is at work too."""
    it.row(it.waits).update(status="running", started_at=it.lab.now, due_at=F("deadline_at"))


OF_SLOTS: dict[str, tuple[str, str, Callable[[Line], object]]] = {
    "more at work than the limit": ("I6", "1 are allowed", let_in),
    "a slot that nobody gives": ("I4", "there is room for it", lambda it: it.row(it.holds).update(bucket=None)),
    "a turn that nobody gives": ("I4", "there is room for it", lambda it: Rate.objects.update(due_at=None)),
    "a deadline in line that nobody looks at": ("I4", "past no deadline", lambda it: it.row(it.waits).update(due_at=None)),
    "a mark that nobody heeds": ("I6", "does maintenance run", lambda it: it.row(it.waits).update(slot_at=it.lab.now - HOUR)),
    "a turn that is not given": ("I6", "does maintenance run", lambda it: Rate.objects.update(due_at=it.lab.now - HOUR)),
}


def test_a_planted_fault_of_a_slot_is_found_by_name(line: Line, subtests: pytest.Subtests) -> None:
    assert_found(subtests, line, OF_SLOTS)


@pytest.mark.parametrize(("fault", "let"), [("a slot that nobody gives", "waits"), ("a turn that nobody gives", "turn")])
def test_fix_lets_somebody_look_where_nobody_would_have(line: Line, fault: str, let: str) -> None:
    OF_SLOTS[fault][2](line)
    assert check("--fix").splitlines() == ["mended: made 1 runs in line be looked at that nobody would have let in", "every invariant holds"]
    line.lab.advance(hours=1)
    assert getattr(line, let).status == "running"


def test_fix_lets_a_run_in_line_pass_its_deadline(line: Line) -> None:
    OF_SLOTS["a deadline in line that nobody looks at"][2](line)
    check("--fix")
    line.lab.advance(hours=9)
    assert line.waits.failure.timed_out
