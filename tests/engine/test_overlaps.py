"""What becomes of an occurrence whose schedule has a run at work already: skipped, waiting, beside it, or in its place."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from ezgh_workflows_django import Concurrency, Cron, Retry, Step, Wait, Workflow, emit
from ezgh_workflows_django.engine import backlog, episodes, firing, maintenance, occurrences, runs, schedules, starts
from ezgh_workflows_django.engine.locking import hold
from ezgh_workflows_django.errors import NotAvailable, StartBusy
from ezgh_workflows_django.models import Became, JournalEntry, Occurrence, Run, Schedule
from ezgh_workflows_django.protocol.states import RunStatus
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body
from tests.engine.test_schedules import BY, at, became, fired, only, put, report
from tests.engine.threads import elsewhere, together

MINUTE = timedelta(minutes=1)


def every_ten(overlap: str, **rest: Any) -> Cron:
    """A cron with that overlap."""
    return Cron("*/10 * * * *", overlap=overlap, **rest)


def live() -> list[Run]:
    """The runs that are not over, the oldest first."""
    return list(Run.objects.filter(ended_at=None).order_by("created_at", "pk"))


def finish(hand: Hand) -> None:
    """The oldest run's body ends."""
    hand.complete(hand.take())


def rows() -> list[tuple[datetime | None, str]]:
    """What became of each occurrence, in order."""
    return list(Occurrence.objects.order_by("at").values_list("at", "became"))


def test_skip_lets_the_one_at_work_finish_and_says_why(desk: Desk) -> None:
    hand = put(desk, report(every_ten("skip")))
    for _ in range(3):
        desk.advance(minutes=10)
    assert rows() == [(at("01-01 09:10"), "started"), (at("01-01 09:20"), "skipped"), (at("01-01 09:30"), "skipped")]
    assert Occurrence.objects.filter(became="skipped")[0].reason == "a run of an earlier occurrence was still at work"
    finish(hand)
    desk.advance(minutes=10)
    assert fired() == [at("01-01 09:10"), at("01-01 09:40")]


def test_skip_knows_of_a_run_that_was_started_very_many_occurrences_ago(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occurrences, "LOOK_BACK", 3)
    put(desk, report(Cron("* * * * *")))
    for _ in range(8):
        desk.advance(minutes=1)
    assert became() == {"started": 1, "skipped": 7}


@pytest.mark.parametrize("state", ["paused", "failing", "queued again"])
def test_a_run_is_at_work_until_it_is_over(desk: Desk, state: str) -> None:
    """One that a person retried days later, too."""
    flow = Workflow("report", steps=[Step("work", run=body, retry=Retry(max_attempts=1))], on_failure=body, cron=every_ten("skip"))
    hand = put(desk, flow)
    desk.advance(minutes=10)
    [run] = live()
    if state == "paused":
        runs.pause(run.pk)
    else:
        hand.fail(hand.take(), "permanent")
    if state == "queued again":
        hand.complete(hand.take())
        assert live() == []
        episodes.retry(run.pk)
    desk.advance(minutes=10)
    assert became() == {"started": 1, "skipped": 1}


def test_allow_starts_them_side_by_side(desk: Desk) -> None:
    put(desk, report(every_ten("allow")))
    for _ in range(3):
        desk.advance(minutes=10)
    assert (became(), len(live())) == ({"started": 3}, 3)


def test_cancel_running_puts_the_new_one_in_its_place(desk: Desk) -> None:
    hand = put(desk, report(every_ten("cancel_running")))
    desk.advance(minutes=10)
    first = Run.objects.get()
    lease = hand.take()
    desk.advance(minutes=10)
    first.refresh_from_db()
    [second] = live()
    assert (first.status, first.reason) == (RunStatus.CANCELLED, "the next occurrence of its schedule is due")
    assert JournalEntry.objects.filter(run=first, kind="run.cancel_requested").count() == 1
    assert (became(), second.pk != first.pk) == ({"started": 2}, True)
    refused = hand.complete(lease).refused
    assert refused is not None
    assert refused.reason == "run_terminal"


def test_cancel_running_cancels_every_one_that_is_at_work_and_those_by_hand(desk: Desk) -> None:
    put(desk, report(every_ten("cancel_running")))
    desk.advance(minutes=10)
    schedules.run(only().pk, by=BY)
    desk.advance(minutes=10)
    assert sorted(Run.objects.values_list("status", flat=True)) == ["cancelled", "cancelled", "running"]


def test_cancel_running_cancels_for_no_occurrence_that_is_missed(desk: Desk) -> None:
    put(desk, report(every_ten("cancel_running", catch_up="none")))
    desk.advance(minutes=10)
    desk.now += timedelta(minutes=18)
    desk.tick()
    assert (len(live()), became()) == (1, {"started": 1, "missed": 1})


@pytest.mark.django_db(transaction=True)
def test_a_run_that_somebody_holds_is_cancelled_a_second_later(transactional_db: None, desk: Desk) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("one writer: nobody else can hold a run")
    put(desk, report(every_ten("cancel_running")))
    desk.advance(minutes=10)
    [run] = live()
    desk.now += 10 * MINUTE
    with transaction.atomic():
        hold(run.pk)
        elsewhere(lambda: firing.run_once(desk.now, 10))
    assert (became(), only().due_at) == ({"started": 1}, desk.now + timedelta(seconds=1))
    desk.advance(1)
    assert (became(), only().due_at) == ({"started": 2}, at("01-01 09:30"))


# --- with a limit on the workflow's runs (case B82)


def test_a_run_that_queues_for_a_slot_is_at_work(desk: Desk) -> None:
    flow = report(every_ten("skip"), concurrency=Concurrency(1))
    hand = put(desk, flow)
    other = flow.start()
    desk.tick()
    desk.advance(minutes=10)
    assert (became(), live()[-1].status) == ({"started": 1}, "queued")
    desk.advance(minutes=10)
    assert became() == {"started": 1, "skipped": 1}
    finish(hand)
    desk.tick()
    assert (other.status, live()[-1].status) == ("succeeded", "running")


def test_a_start_that_finds_no_slot_is_skipped_where_the_workflow_rejects(desk: Desk) -> None:
    flow = report(every_ten("queue"), concurrency=Concurrency(1, on_limit="reject"))
    hand = put(desk, flow)
    flow.start()
    desk.advance(minutes=10)
    assert (became(), Run.objects.count()) == ({"skipped": 1}, 1)
    assert Occurrence.objects.get().reason.startswith("the start was refused: ")
    finish(hand)
    desk.advance(minutes=10)
    assert became() == {"started": 1, "skipped": 1}


def test_a_start_that_somebody_is_in_the_way_of_is_tried_again_with_the_next_tick(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    put(desk, report(every_ten("skip")))
    with monkeypatch.context() as patched:
        patched.setattr(starts, "start_occurrence", lambda *_: (_ for _ in ()).throw(StartBusy("busy")))
        desk.advance(minutes=10)
        assert (became(), only().due_at) == ({}, desk.now)
    desk.advance(1)
    assert became() == {"started": 1}


# --- queue


def test_queue_starts_each_when_the_one_before_has_ended_in_order(desk: Desk) -> None:
    hand = put(desk, report(every_ten("queue")))
    for _ in range(3):
        desk.advance(minutes=10)
    assert [row[1] for row in rows()] == ["started", "waiting", "waiting"]
    for number in (2, 3):
        finish(hand)
        desk.tick()
        assert len(live()) == min(1, 4 - number)
        assert fired() == [at("01-01 09:10"), at("01-01 09:20"), at("01-01 09:30")][:number]
    finish(hand)
    desk.tick()
    assert (live(), only().waits_for, became()) == ([], None, {"started": 3})
    assert Run.objects.get(correlation_id="cron:report:0:2024-01-01T09:30:00Z").status == "succeeded"


def test_the_process_that_ends_the_run_starts_the_next_one_at_once(desk: Desk, django_capture_on_commit_callbacks: Any) -> None:
    hand = put(desk, report(every_ten("queue")))
    desk.advance(minutes=10)
    desk.advance(minutes=10)
    with django_capture_on_commit_callbacks(execute=True):
        finish(hand)
    assert became() == {"started": 2}
    desk.tick()
    assert became() == {"started": 2}


@pytest.mark.parametrize("end", ["cancel", "fail"])
def test_however_the_one_before_ends_the_next_one_has_its_turn(desk: Desk, end: str) -> None:
    hand = put(desk, report(every_ten("queue")))
    desk.advance(minutes=20)
    desk.advance(minutes=10)
    if end == "cancel":
        runs.cancel(live()[0].pk)
    else:
        hand.fail(hand.take(), "permanent")
    desk.tick()
    assert became() == {"started": 2, "missed": 1}


def test_a_hundred_wait_and_more_are_skipped_by_name(desk: Desk) -> None:
    hand = put(desk, report(Cron("* * * * *", overlap="queue", catch_up="all")))
    desk.advance(minutes=100)
    for _ in range(3):
        desk.advance(minutes=1)
    assert became() == {"started": 1, "waiting": 100, "skipped": 2}
    assert set(Occurrence.objects.filter(became="skipped").values_list("reason", flat=True)) == {"100 occurrences waited already"}
    for _ in range(8):
        finish(hand)
        desk.tick()
    assert became() == {"started": 9, "waiting": 92, "skipped": 2}
    begun = [Occurrence.objects.get(run_id=run.pk).at for run in Run.objects.order_by("pk")]
    assert begun == [at(f"01-01 09:0{minute}") for minute in range(1, 10)]


def test_what_waits_goes_on_waiting_through_a_pause(desk: Desk) -> None:
    hand = put(desk, report(every_ten("queue")))
    desk.advance(minutes=10)
    desk.advance(minutes=10)
    schedules.pause(only().pk, by=BY)
    finish(hand)
    desk.tick()
    assert became() == {"started": 1, "waiting": 1}
    schedules.resume(only().pk, by=BY)
    desk.tick()
    assert (became(), only().due_at) == ({"started": 2}, at("01-01 09:30"))


def test_what_waits_is_skipped_when_its_cron_goes(desk: Desk) -> None:
    put(desk, report(every_ten("queue")))
    desk.advance(minutes=10)
    desk.advance(minutes=10)
    put(desk, report(revision="2"))
    assert became() == {"started": 1, "skipped": 1}
    assert Occurrence.objects.get(became="skipped").reason == "the cron was removed before its turn came"


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [("allow", {"started": 4}), ("cancel_running", {"started": 2, "skipped": 2}), ("skip", {"started": 1, "waiting": 2, "skipped": 1})],
)
def test_what_waits_when_the_overlap_is_changed(desk: Desk, overlap: str, expected: dict[str, int]) -> None:
    put(desk, report(every_ten("queue")))
    for _ in range(3):
        desk.advance(minutes=10)
    put(desk, report(every_ten(overlap)))
    desk.advance(minutes=10)
    assert became() == expected


def test_a_waiting_one_whose_start_is_refused_gives_its_turn_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    hand = put(desk, report(every_ten("queue")))
    for _ in range(3):
        desk.advance(minutes=10)
    real, refused = starts.start_occurrence, [True]

    def start(*args: Any) -> Run:
        if refused and refused.pop():
            raise NotAvailable("not today")
        return real(*args)

    monkeypatch.setattr(starts, "start_occurrence", start)
    finish(hand)
    desk.tick()
    assert rows() == [(at("01-01 09:10"), "started"), (at("01-01 09:20"), "skipped"), (at("01-01 09:30"), "started")]


@pytest.mark.django_db(transaction=True)
def test_many_ends_and_many_ticks_at_one_moment_let_one_begin(transactional_db: None, desk: Desk) -> None:
    """The end's own look, the duty's, and the next occurrence."""
    hand = put(desk, report(every_ten("queue")))
    for _ in range(4):
        desk.advance(minutes=10)
    for _ in range(3):
        lease = hand.take()
        desk.now += 10 * MINUTE
        together([lambda lease=lease: hand.complete(lease)] + [lambda: (backlog.run_once(desk.now, 10), firing.run_once(desk.now, 10))] * 3)
        desk.tick()
        assert len(live()) == 1
    begun = fired()
    assert begun == sorted(begun, key=str)
    assert (became()["started"], became()["waiting"]) == (4, 3)


def test_a_look_at_what_waits_finds_it_by_the_run_it_waits_for(desk: Desk) -> None:
    """Not by way of all the runs that have ended."""
    hand = put(desk, report(every_ten("queue")))
    desk.advance(minutes=10)
    desk.advance(minutes=10)
    assert (backlog.free().count(), only().waits_for) == (0, live()[0].pk)
    finish(hand)
    free = backlog.free().get()
    assert (free.pk, free.free_at) == (Schedule.objects.get().pk, desk.now)


def test_a_bad_schedule_whose_turn_has_come_is_left_alone_as_any_other(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """However far its next occurrence is."""
    hand = put(desk, report(every_ten("queue")))
    desk.advance(minutes=10)
    desk.advance(minutes=10)
    looks: list[datetime] = []

    def fail(schedule_id: int) -> None:
        looks.append(desk.now)
        raise ValueError("unreadable")

    monkeypatch.setattr(firing, "_fire", fail)
    finish(hand)
    begun = desk.now
    desk.advance(1)
    desk.advance(seconds=299)
    assert (looks, maintenance.tick().next_due) == ([begun + timedelta(seconds=1)], begun + timedelta(seconds=301))
    monkeypatch.undo()
    desk.advance(1)
    assert became() == {"started": 2}


def test_a_run_that_is_over_as_it_starts_keeps_nobody_waiting(desk: Desk) -> None:
    flow = Workflow("report", steps=[Step("paid", wait=Wait("paid", lookback=timedelta(days=1)))], cron=every_ten("queue", catch_up="all"))
    put(desk, flow)
    for _ in range(3):
        emit("paid")
    desk.now += timedelta(minutes=35)
    desk.tick()
    assert became() == {"started": 3}
    assert set(Occurrence.objects.filter(became=Became.STARTED).values_list("at", flat=True)) == {at("01-01 09:10"), at("01-01 09:20"), at("01-01 09:30")}
