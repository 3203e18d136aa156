"""A long tick is no gap: only silence is one. What is urgent does not wait for what is long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from ezgh_workflows_django import Concurrency, Sleep, Step, Wait, Workflow, emit
from ezgh_workflows_django.engine import admission, duty, events, maintenance, pulse, timers
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.models import Tick
from tests.engine.conftest import Desk
from tests.engine.graphs import job

RunOnce = Callable[[datetime, int], int]


@pytest.fixture
def instead(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let these duties be due always, and do this."""

    def put(**run_once: RunOnce) -> None:
        due = partial(Tick.objects.values, "ticked_at")
        duties = [
            replace(each, earliest=lambda: due()[:1], keep=lambda: timedelta(0), run_once=run_once[each.name]) if each.name in run_once else each
            for each in maintenance.DUTIES
        ]
        monkeypatch.setattr(maintenance, "DUTIES", tuple(duties))

    return put


def takes(desk: Desk, seconds: float, handled: int = 0) -> RunOnce:
    """A duty whose batch takes so long."""

    def run_once(now: datetime, limit: int) -> int:
        desk.now += timedelta(seconds=seconds)
        return handled

    return run_once


def silent_lease(desk: Desk) -> Any:
    """A lease whose worker is never heard of again."""
    job().start(1)
    return desk.worker(job()).take()


def test_a_tick_that_takes_longer_than_a_lease_lives_is_no_gap(desk: Desk, instead: Any) -> None:
    lease = silent_lease(desk)
    instead(kin=takes(desk, 20), slots=takes(desk, 20), events=takes(desk, 20), retention=takes(desk, 20))
    desk.tick()
    maintenance.tick()
    assert (Tick.objects.get().lenient_until, desk.lease(lease).status) == (None, "orphaned")


def test_a_backlog_that_lasts_keeps_no_lease_from_being_reclaimed(desk: Desk, instead: Any) -> None:
    lease = silent_lease(desk)
    instead(retention=takes(desk, 25, maintenance.BATCH))
    desk.tick()
    for _ in range(4):
        maintenance.tick()
    assert desk.lease(lease).status == "reclaimed"


def test_a_batch_that_takes_longer_than_a_lease_lives_is_no_gap(desk: Desk, instead: Any) -> None:
    """Between two rows the tick says that it is at work."""
    lease = silent_lease(desk)
    Workflow("nap", [Step("nap", sleep=Sleep(1))]).start_many(range(5))

    def slowly(held: Any, name: str) -> None:
        desk.now += timedelta(seconds=20)
        timers.fire(held, name)

    def run_once(now: datetime, limit: int) -> int:
        return duty.work_off(StepRow.objects.timers_due(now), limit, slowly, lambda *_: None, key="name")

    desk.now += timedelta(seconds=1)
    instead(timers=run_once)
    desk.tick()
    assert (Tick.objects.get().lenient_until, Tick.objects.get().ticked_at) == (None, desk.now)
    maintenance.tick()
    assert desk.lease(lease).status == "orphaned"


@pytest.fixture
def slowly(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a function of the engine take so long."""

    def slow(module: Any, name: str, seconds: float) -> None:
        act = getattr(module, name)

        def slower(*arguments: Any) -> Any:
            desk.now += timedelta(seconds=seconds)
            return act(*arguments)

        monkeypatch.setattr(module, name, slower)

    return slow


def test_an_event_with_receivers_that_take_longer_than_a_lease_lives_is_no_gap(desk: Desk, slowly: Any) -> None:
    lease = silent_lease(desk)
    runs = Workflow("waiting", [Step("wait", wait=Wait("go"))]).start_many(range(5))
    desk.tick()
    emit("go")  # what follows its commit is lost
    slowly(events, "resume", 20)
    desk.tick()
    assert ({run.phase for run in runs}, Tick.objects.get().lenient_until, Tick.objects.get().ticked_at) == ({"succeeded"}, None, desk.now)
    maintenance.tick()
    assert desk.lease(lease).status == "orphaned"


def test_rows_of_any_kind_that_take_longer_than_a_lease_lives_are_no_gap(desk: Desk, instead: Any) -> None:
    silent_lease(desk)

    def slow(key: int) -> None:
        desk.now += timedelta(seconds=20)

    instead(schedules=lambda now, limit: duty.one_by_one(range(5), slow, lambda _: None))
    desk.tick()
    assert (Tick.objects.get().lenient_until, Tick.objects.get().ticked_at) == (None, desk.now)


def test_letting_runs_in_for_longer_than_a_lease_lives_is_no_gap(desk: Desk, slowly: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "BATCH", 1)
    runs = job("many", concurrency=Concurrency(5)).start_many(range(5))
    slowly(admission, "_let_in", 20)
    desk.tick()
    assert ({run.status for run in runs}, Tick.objects.get().lenient_until) == ({"running"}, None)


def test_events_with_many_receivers_take_turns_with_each_other_and_with_the_next_tick(desk: Desk, slowly: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while a tick leaves the rest of an event to the next one, and comes to the other events first."""
    monkeypatch.setattr(maintenance, "BATCH", 3)
    monkeypatch.setattr(events, "BATCH", 3)
    long = Workflow("long", [Step("wait", wait=Wait("long"))]).start_many(range(7))
    short = Workflow("short", [Step("wait", wait=Wait("short"))]).start_many(range(2))
    desk.tick()
    emit("long")
    desk.now += timedelta(milliseconds=1)
    emit("short")
    slowly(events, "resume", 1)
    gone = []
    for _ in range(3):
        ticked = desk.tick()
        gone.append((ended(long), ended(short), ticked.has_more))
    assert gone == [(3, 0, True), (3 + 3, 2, True), (7, 2, False)]


def ended(runs: Any) -> int:
    """How many of these are over."""
    return sum(run.run.is_terminal for run in runs)


def test_a_silence_in_the_midst_of_a_tick_is_a_gap(desk: Desk, instead: Any) -> None:
    """The database stood still: nobody's heartbeat could land."""
    lease = silent_lease(desk)
    desk.now += timedelta(seconds=30)
    instead(timers=takes(desk, 600))
    ticked = desk.tick()
    assert (desk.lease(lease).status, ticked.lenient_until) == ("started", desk.now + timedelta(seconds=30))
    instead(timers=takes(desk, 0))
    desk.now += timedelta(seconds=29)
    maintenance.tick()
    assert desk.lease(lease).status == "started"
    desk.now += timedelta(seconds=1)
    maintenance.tick()
    assert desk.lease(lease).status == "orphaned"


def test_what_one_process_was_silent_for_is_no_gap_where_another_ticked(desk: Desk, instead: Any) -> None:
    lease = silent_lease(desk)

    def run_once(now: datetime, limit: int) -> int:
        desk.now += timedelta(seconds=600)
        Tick.objects.update(ticked_at=desk.now - timedelta(seconds=1))
        return 0

    instead(timers=run_once)
    desk.now += timedelta(seconds=30)
    assert desk.tick().lenient_until is None
    assert desk.lease(lease).status == "orphaned"


def test_the_row_of_a_tick_never_goes_back(desk: Desk) -> None:
    desk.tick()
    with pulse.of_tick(desk.now, None) as mine:
        Tick.objects.update(ticked_at=desk.now + timedelta(seconds=20))
        mine.beat(desk.now + timedelta(seconds=10))
    assert Tick.objects.get().ticked_at == desk.now + timedelta(seconds=20)


def test_after_a_while_a_tick_deals_with_one_batch_of_what_is_left(desk: Desk, instead: Any) -> None:
    """So that timers and starts which come due meanwhile wait for seconds, however long the backlog is."""
    ran: Counter[str] = Counter()

    def run_once(name: str, now: datetime, limit: int) -> int:
        ran[name] += 1
        desk.now += timedelta(seconds=0.5)
        return limit

    instead(kin=partial(run_once, "kin"), events=partial(run_once, "events"), retention=partial(run_once, "retention"))
    ticked = desk.tick()
    assert (dict(ran), ticked.has_more) == ({"kin": 4, "events": 1, "retention": 1}, True)


def test_a_tick_that_has_dealt_with_all_there_was_leaves_nothing(desk: Desk, instead: Any) -> None:
    instead(kin=takes(desk, 10, maintenance.BATCH - 1))
    assert desk.tick().has_more is False


def test_what_comes_due_while_a_tick_is_at_work_is_seen_by_the_duties_after(desk: Desk, instead: Any) -> None:
    asked: list[datetime] = []

    def ask(now: datetime, limit: int) -> int:
        asked.append(now)
        return 0

    instead(timers=takes(desk, 3), retention=ask)
    desk.tick()
    assert asked == [desk.now]
