"""A run that somebody holds keeps nobody else waiting: maintenance passes over it with all its rows, and waits for no lock.

Real locks, so not on SQLite: there a writer holds the whole file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from ezgh_workflows_django import Concurrency, Sleep, Step, Wait, Workflow, emit
from ezgh_workflows_django.engine import admission, events, kin, maintenance, marks, new_limits, retention
from ezgh_workflows_django.engine.locking import locked
from ezgh_workflows_django.models import Definition, Event, Lease, Run
from tests.engine.bodies import Family
from tests.engine.conftest import Desk
from tests.engine.graphs import body, job
from tests.engine.threads import elsewhere

MANY = 25
"""More than a batch of these tests."""

pytestmark = [
    pytest.mark.usefixtures("transactional_db"),
    pytest.mark.skipif("__import__('django.db').db.connection.vendor == 'sqlite'", reason="a writer of SQLite holds the whole file"),
]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few rows are more than a batch."""
    monkeypatch.setattr(maintenance, "BATCH", 10)
    monkeypatch.setattr(events, "BATCH", 10)


@contextmanager
def held(runs: Iterable[Any]) -> Iterator[None]:
    """Somebody's long transaction holds these runs."""
    with transaction.atomic():
        for run in runs:  # one by one: a scan of a small table would lock others too
            locked(Run.objects.filter(pk=run.pk)).get()
        yield


def fan(**of_step: Any) -> Any:
    """Very many steps of one run."""
    return Workflow("fan", [Step(f"s{place}", **of_step) for place in range(MANY)])


def phase_there(run: Any) -> str:
    """As it is committed."""
    return str(elsewhere(lambda: run.phase))


def test_timers_of_a_held_run_keep_no_other_waiting(desk: Desk) -> None:
    first = fan(sleep=Sleep(60)).start(1)
    desk.now += timedelta(seconds=1)
    other: Any = Workflow("nap", [Step("nap", sleep=Sleep(59))]).start(1)
    desk.now += timedelta(seconds=60)
    with held([first.run]):
        ticked = elsewhere(desk.tick)
        assert (phase_there(other), ticked.handled) == ("succeeded", 1)
    desk.tick()
    assert first.phase == "succeeded"


def test_leases_of_a_held_run_keep_no_other_waiting(desk: Desk) -> None:
    hand = desk.worker(fan(run=body), job())
    first = fan(run=body).start(1)
    while hand.claim(100):
        pass
    desk.now += timedelta(milliseconds=1)
    other = job().start(1)
    [lease] = hand.claim(1)
    desk.now += timedelta(seconds=10)
    with held([first.run]):
        elsewhere(desk.tick)
        assert elsewhere(lambda: desk.lease(lease).status) == "reclaimed"
        assert other.id == lease.run_id
    desk.tick()
    assert not Lease.objects.filter(live_step__isnull=False).exists()


@pytest.mark.parametrize("start", [lambda: job("late", deadline=60).start(1), lambda: job("delayed").start(1, delay=60)], ids=["deadlines", "admission"])
def test_runs_that_are_held_keep_no_other_waiting(desk: Desk, start: Callable[[], Any]) -> None:
    first = [start() for _ in range(MANY)]
    desk.now += timedelta(milliseconds=1)
    other = start()
    desk.now += timedelta(seconds=60)
    with held([run.run for run in first]):
        elsewhere(desk.tick)
        assert elsewhere(lambda: Run.objects.get(pk=other.id).due_at) is None


def test_ended_runs_that_are_held_keep_no_other_from_being_deleted(desk: Desk) -> None:
    first = job().start_many(range(MANY))
    for run in first:
        run.cancel()
    desk.now += timedelta(milliseconds=1)
    other = job().start(1)
    other.cancel()
    desk.now += timedelta(days=31)
    with held([run.run for run in first]):
        elsewhere(lambda: retention.run_once(desk.now, maintenance.BATCH))
        assert not elsewhere(lambda: Run.objects.filter(pk=other.id).exists())


def test_marked_runs_that_are_held_keep_no_other_out_of_its_slot(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "after_commit", lambda runs: None)  # the processes that started them were lost
    workflow = job("one", concurrency=Concurrency(1, key_expr="payload"))
    first = workflow.start_many([f"k{place}" for place in range(MANY)])
    Run.objects.update(slot_at=desk.now - timedelta(seconds=1))
    other = workflow.start("other")
    with held([run.run for run in first]):
        elsewhere(lambda: marks.run_once(desk.now, maintenance.BATCH))
        assert elsewhere(lambda: other.run.status) == "running"


def test_kin_waits_for_no_run_whose_mark_it_takes_away_or_puts_off(desk: Desk) -> None:
    family = Family(desk)
    family.start(3)
    family.run.cancel()
    children = list(family.children)
    assert {run.kin_at for run in children} == {desk.now}
    Run.objects.filter(pk=family.run.id).update(kin_at=desk.now)
    with held([family.run.run]):
        assert elsewhere(lambda: kin.run_once(desk.now, 100)) == 3
        assert elsewhere(lambda: {run.kin_at for run in family.children}) == {desk.now + kin.AGAIN}
    kin.run_once(desk.now, 100)
    desk.now += kin.AGAIN
    with held(children):
        assert elsewhere(lambda: kin.run_once(desk.now, 100)) == 0
    for _ in range(4):
        desk.advance(seconds=1)
    assert not Run.objects.filter(kin_at__isnull=False).exists()


def test_marks_of_kin_that_are_held_keep_no_other_waiting(desk: Desk) -> None:
    first = job("other").start_many(range(MANY))
    Run.objects.update(kin_at=desk.now - timedelta(seconds=1))
    family = Family(desk)
    family.start(1)
    child = family.children[0]
    family.run.cancel()
    with held([run.run for run in first]):
        elsewhere(lambda: kin.run_once(desk.now, maintenance.BATCH))
        assert elsewhere(lambda: Run.objects.get(pk=child.pk).status) == "cancelled"
    desk.advance(seconds=1)
    Run.objects.update(kin_at=None)


def test_a_child_that_ends_waits_for_no_parent_that_is_held_nor_does_the_tick(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family(desk)
    family.start(1)
    family.park()
    lease = family.kids.take()
    with held([family.run.run]):
        elsewhere(lambda: family.kids.complete(lease))
        elsewhere(desk.tick)
        assert phase_there(family.run) == "waiting"
    desk.advance(seconds=1)
    assert family.run.phase == "queued"
    desk.advance(seconds=1)
    assert not Run.objects.filter(kin_at__isnull=False).exists()


def waiting_for(event: str, count: int) -> list[Any]:
    """So many runs that wait for one event."""
    return [*Workflow("waiting", [Step("wait", wait=Wait(event))]).start_many(range(count))]


def test_receivers_that_are_held_keep_an_event_from_no_other_and_lose_none(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    *first, other = waiting_for("go", MANY + 1)
    desk.tick()
    with monkeypatch.context() as lost:
        lost.setattr(events, "after_commit", lambda deliver: None)  # the process that emitted was lost
        emit("go")
    with held([run.run for run in first]):
        elsewhere(desk.tick)
        assert (phase_there(other), phase_there(first[0])) == ("succeeded", "waiting")
        assert elsewhere(Event.objects.get).due_at == desk.now + events.AGAIN
    desk.advance(seconds=1)
    assert ({run.phase for run in first}, Event.objects.get().due_at) == ({"succeeded"}, None)


def test_whoever_emits_waits_for_no_receiver_that_is_held_and_maintenance_comes_to_it(desk: Desk) -> None:
    first, other = waiting_for("go", 2)
    desk.tick()
    with held([first.run]):
        elsewhere(lambda: emit("go"))
        assert (phase_there(other), phase_there(first)) == ("succeeded", "waiting")
    desk.advance(seconds=1)
    assert (first.phase, Event.objects.get().due_at) == ("succeeded", None)


def test_a_run_in_line_that_is_held_is_told_of_new_limits_later_and_nobody_waits(desk: Desk) -> None:
    first, *others = job("one", concurrency=Concurrency(1)).start_many(range(4))
    desk.tick()
    desk.worker(job("one", concurrency=Concurrency(4)))
    assert first.status == "running"
    waiting = sorted((run.run for run in others), key=lambda run: run.pk)
    with held(waiting[:1]):
        elsewhere(lambda: new_limits.run_once(desk.now, 100))
        assert elsewhere(lambda: sorted(Run.objects.filter(slot_at__isnull=False).values_list("pk", flat=True))) == [run.pk for run in waiting[1:]]
    assert Definition.objects.filter(due_at__gt=desk.now).count() == 1
    desk.advance(seconds=1)
    assert (set(Run.objects.values_list("status", flat=True)), Definition.objects.filter(due_at__isnull=False).count()) == ({"running"}, 0)
