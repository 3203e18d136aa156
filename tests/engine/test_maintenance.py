"""The tick: one process of those that look at one moment, one statement where nothing is due, lenient after a gap, stopped by no bad row."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django import Cron, Sleep, Step, Wait, Workflow, emit
from ezgh_workflows_django.engine import following, maintenance, timers, workers
from ezgh_workflows_django.models import Tick, Worker
from tests.engine.conftest import Desk
from tests.engine.graphs import body, job
from tests.engine.threads import together


def nap(seconds: float) -> Any:
    """One sleep."""
    return Workflow("nap", steps=[Step("nap", sleep=Sleep(seconds))])


def test_an_idle_tick_is_one_statement(desk: Desk) -> None:
    desk.tick()
    with CaptureQueriesContext(connection) as captured:
        ticked = maintenance.tick()
    assert (len(captured), ticked.handled) == (1, 0)


def test_a_tick_with_live_leases_and_timers_that_are_not_due_is_one_statement(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start(1)
    hand.take()
    nap(60).start(1)
    Workflow("wait", steps=[Step("wait", wait=Wait("paid", timeout=60))]).start(1)
    desk.tick()
    with CaptureQueriesContext(connection) as captured:
        maintenance.tick()
    assert len(captured) == 1


def test_an_idle_tick_says_from_time_to_time_that_it_is_there(desk: Desk) -> None:
    desk.tick()
    desk.now += timedelta(seconds=4)
    maintenance.tick()
    assert Tick.objects.get().ticked_at == desk.now - timedelta(seconds=4)
    desk.now += timedelta(seconds=1)
    maintenance.tick()
    assert Tick.objects.get().ticked_at == desk.now


def test_a_tick_without_its_row_makes_it(desk: Desk) -> None:
    Tick.objects.all().delete()
    maintenance.tick()
    assert Tick.objects.count() == 1


def test_of_the_processes_that_saw_one_tick_due_one_takes_the_turn(transactional_db: None, desk: Desk) -> None:
    desk.tick()
    desk.now += timedelta(seconds=10)
    row, _ = maintenance._look()
    turns = together([lambda: maintenance._take_turn(row, [])] * 4)
    assert sorted(turns) == [False, False, False, True]


def test_a_tick_that_does_nothing_still_knows_what_is_due_next(desk: Desk) -> None:
    nap(60).start(1)
    desk.tick()
    assert maintenance.tick().next_due == desk.now + timedelta(seconds=60)


@pytest.mark.parametrize("duty", maintenance.DUTIES, ids=lambda duty: str(duty.name))
def test_every_duty_may_run_in_several_processes_and_again(transactional_db: None, desk: Desk, duty: maintenance.Duty) -> None:
    nap(60).start_many(range(3))
    job(deadline=60).start_many(range(3))
    hand = desk.worker(job())
    job().start_many(range(3))
    hand.claim()
    Workflow("wait", steps=[Step("wait", wait=Wait("paid"))]).start(1)
    emit("paid")
    job().start(1, delay=60)
    desk.worker(job("nightly", cron=Cron("0 9 * * *", overlap="queue", catch_up="all")))
    following.run_once(desk.now, 100)
    desk.now += timedelta(days=40)
    together([lambda: duty.run_once(desk.now, 100)] * 3)
    assert duty.run_once(desk.now, 100) == 0


def test_every_duty_is_a_files_run_once(desk: Desk) -> None:
    bodies = {duty.run_once for duty in maintenance.DUTIES}
    assert {body.__name__ for body in bodies - {workers.forget_lost}} == {"run_once"}
    assert len({body.__module__ for body in bodies}) == len(bodies)


@pytest.mark.parametrize(
    ("start", "due_in"),
    [
        (lambda desk: nap(60).start(1), timedelta(seconds=60)),
        (lambda desk: job().start(1, delay=60), timedelta(seconds=60)),
        (lambda desk: job(deadline=60).start(1), timedelta(seconds=60)),
        (lambda desk: Workflow("wait", steps=[Step("wait", wait=Wait("paid", timeout=60))]).start(1), timedelta(seconds=60)),
        (lambda desk: (job().start(1), desk.worker(job()).claim()), timedelta(seconds=10)),
        (lambda desk: (job().start(1), desk.worker(job()).take()), timedelta(seconds=30)),
        (lambda desk: desk.worker(job()), timedelta(minutes=10)),
        (lambda desk: job().start(1).cancel(), timedelta(days=30)),
        (lambda desk: emit("paid"), timedelta(days=30)),
        (lambda desk: desk.worker(job("often", cron=Cron("*/5 * * * *"))), timedelta(minutes=5)),
    ],
    ids=["sleep", "delay", "deadline", "wait", "offer", "lease", "worker", "run's retention", "event's retention", "schedule"],
)
def test_the_next_moment_anything_is_due_is_known(desk: Desk, start: Any, due_in: timedelta) -> None:
    start(desk)
    desk.tick()
    assert desk.tick().next_due == desk.now + due_in


def test_where_nothing_is_to_come_nothing_is_due(desk: Desk) -> None:
    Worker.objects.update(left_at=desk.now)
    assert desk.tick().next_due is None


def test_lateness_is_told(desk: Desk) -> None:
    nap(60).start(1)
    desk.advance(62.5)
    tick = maintenance.status()
    assert tick is not None
    assert (tick.lateness_ms, tick.ticked_at) == (2500, desk.now)


def test_after_a_gap_nothing_is_taken_from_the_healthy_for_one_ttl(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start(1)
    lease = hand.take()
    desk.tick()
    desk.now += timedelta(minutes=5)
    maintenance.tick()
    assert desk.lease(lease).status == "started"
    desk.now += timedelta(seconds=29)
    maintenance.tick()
    assert (desk.lease(lease).status, hand.beat(lease).refused) == ("started", None)
    desk.now += timedelta(seconds=29)
    maintenance.tick()
    assert (desk.lease(lease).status, hand.complete(lease).refused) == ("started", None)


def test_one_ttl_after_a_gap_who_is_still_silent_is_orphaned(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start(1)
    lease = hand.take()
    desk.tick()
    desk.now += timedelta(hours=1)
    maintenance.tick()
    for _ in range(2):
        desk.now += timedelta(seconds=15)
        maintenance.tick()
    assert desk.lease(lease).status == "orphaned"


def test_a_gap_of_one_ttl_is_no_gap(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start(1)
    lease = hand.take()
    desk.tick()
    desk.now += timedelta(seconds=30)
    maintenance.tick()
    assert desk.lease(lease).status == "orphaned"


def test_timers_and_deadlines_are_not_held_up_by_a_gap(desk: Desk) -> None:
    asleep, late = nap(60).start(1), job(deadline=60).start(1)
    desk.tick()
    desk.now += timedelta(hours=1)
    maintenance.tick()
    assert (asleep.phase, late.phase) == ("succeeded", "timed_out")


def test_a_second_gap_makes_the_leniency_begin_again(desk: Desk) -> None:
    desk.tick()
    desk.now += timedelta(hours=1)
    maintenance.tick()
    desk.now += timedelta(hours=1)
    maintenance.tick()
    assert Tick.objects.get().lenient_until == desk.now + timedelta(seconds=30)


def test_a_worker_unheard_of_during_a_gap_is_not_forgotten_by_the_first_tick_after_it(desk: Desk) -> None:
    """A worker could not be heard of while the database was away."""
    hand = desk.worker(job())
    job().start(1)
    lease = hand.take()
    desk.tick()
    desk.now += timedelta(hours=1)
    maintenance.tick()
    hand.beat(lease)
    desk.now += timedelta(seconds=29)
    maintenance.tick()
    assert Worker.objects.get(name=hand.name).left_at is None
    job().start(2)
    assert len(hand.claim()) == 1


def test_a_tick_carries_on_where_one_was_lost(desk: Desk) -> None:
    runs_ = nap(60).start_many(range(5))
    desk.now += timedelta(seconds=60)
    timers.run_once(desk.now, 2)
    desk.tick()
    assert {run.phase for run in runs_} == {"succeeded"}


def test_a_duty_runs_only_when_something_of_its_own_is_due(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def watch(name: str, now: datetime, limit: int) -> int:
        ran.append(name)
        return 0

    watched = tuple(replace(duty, run_once=partial(watch, duty.name)) for duty in maintenance.DUTIES)
    monkeypatch.setattr(maintenance, "DUTIES", watched)
    nap(60).start(1)
    job().start(1, delay=120)
    desk.advance(60)
    assert ran == ["timers"]
    desk.advance(60)
    assert ran == ["timers", "timers", "admission"]


def test_bodies_are_not_run_by_a_tick(desk: Desk) -> None:
    called: list[Any] = []
    workflow: Any = Workflow("body", steps=[Step("work", run=called.append)])
    workflow.start(1)
    desk.advance(hours=1)
    assert (called, body(1)) == ([], 1)
