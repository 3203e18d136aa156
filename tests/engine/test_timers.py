"""Timers: sleeps end and waits time out once, late rather than never, in due order within a run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ezgh_workflows_django import Sleep, Step, Wait, Workflow, emit
from ezgh_workflows_django.engine import timers
from ezgh_workflows_django.models import JournalEntry
from ezgh_workflows_django.models import Step as StepRow
from tests.engine.conftest import Desk
from tests.engine.graphs import body


def sleeping(name: str = "sleeping", seconds: float = 60, **options: Any) -> Any:
    """One sleep."""
    return Workflow(name, steps=[Step("nap", sleep=Sleep(seconds))], **options)


def ends(run: Any) -> list[str]:
    """The steps of a run in the order they ended."""
    rows = JournalEntry.objects.filter(run=run.id, kind="step.succeeded")
    return list(rows.order_by("seq").values_list("step", flat=True))


def test_a_sleep_ends_when_its_time_has_come_and_not_before(desk: Desk) -> None:
    run = sleeping(seconds=60).start(1)
    desk.advance(59.999)
    assert (run.phase, desk.step(run, "nap").status) == ("sleeping", "sleeping")
    desk.advance(0.001)
    assert run.phase == "succeeded"


def test_a_sleep_of_nothing_holds_no_worker_and_ends_at_the_next_tick(desk: Desk) -> None:
    run = sleeping(seconds=0).start(1)
    desk.tick()
    assert (run.phase, ends(run)) == ("succeeded", ["nap"])


def test_a_sleep_ends_once_however_late(desk: Desk) -> None:
    run = sleeping().start(1)
    desk.advance(days=400)
    desk.advance(days=1)
    assert (run.phase, ends(run)) == ("succeeded", ["nap"])


def test_a_timer_that_several_processes_saw_due_fires_once(desk: Desk) -> None:
    workflow: Any = Workflow("nap", steps=[Step("nap", sleep=Sleep(60)), Step("then", after=["nap"], sleep=Sleep(60))])
    run = workflow.start(1)
    desk.now += timedelta(seconds=60)
    looked = [timers.run_once(desk.now, 10), timers.run_once(desk.now, 10)]
    assert (looked, ends(run), desk.step(run, "then").status) == ([1, 0], ["nap"], "sleeping")


def test_timers_of_a_run_fire_in_the_order_they_were_due(desk: Desk) -> None:
    workflow: Any = Workflow(
        "naps", steps=[Step("late", sleep=Sleep(30)), Step("early", sleep=Sleep(10)), Step("middle", wait=Wait("never", timeout=20, on_timeout="continue"))]
    )
    run = workflow.start(1)
    desk.tick()
    desk.advance(hours=1)
    assert ends(run) == ["early", "middle", "late"]


def test_a_sleep_behind_a_late_one_counts_from_when_it_began(desk: Desk) -> None:
    workflow: Any = Workflow("nap", steps=[Step("one", sleep=Sleep(60)), Step("two", after=["one"], sleep=Sleep(60))])
    run = workflow.start(1)
    desk.advance(100)
    assert desk.step(run, "two").timer_at == desk.now + timedelta(seconds=60)


def test_a_deadline_that_is_due_before_a_sleep_ends_wins_however_late_both_are_seen(desk: Desk) -> None:
    run = sleeping(seconds=60, deadline=59).start(1)
    desk.advance(hours=1)
    assert (run.phase, ends(run), run.failure.class_) == ("timed_out", [], "deadline")


def test_a_sleep_that_ends_before_the_deadline_wins_however_late_both_are_seen(desk: Desk) -> None:
    run = sleeping(seconds=59, deadline=60).start(1)
    desk.advance(hours=1)
    assert (run.phase, ends(run)) == ("succeeded", ["nap"])


def test_a_wait_that_times_out_before_the_deadline_says_so(desk: Desk) -> None:
    run: Any = Workflow("wait", steps=[Step("wait", wait=Wait("never", timeout=59))], deadline=60).start(1)
    desk.tick()
    desk.advance(hours=1)
    assert (run.phase, run.failure.class_) == ("failed", "timeout")


def test_a_deadline_before_the_timeout_of_a_wait_wins(desk: Desk) -> None:
    run: Any = Workflow("wait", steps=[Step("wait", wait=Wait("never", timeout=60, on_timeout="continue"))], deadline=59).start(1)
    desk.tick()
    desk.advance(hours=1)
    assert (run.phase, run.failure.class_) == ("timed_out", "deadline")


def test_a_deadline_ends_a_run_whose_bodies_nobody_works_on(desk: Desk) -> None:
    workflow: Any = Workflow("work", steps=[Step("work", run=body)], deadline=60)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    desk.advance(60)
    assert (run.phase, run.failure.class_, run.failure.message, hand.claim()) == (
        "timed_out",
        "deadline",
        "the run passed its deadline, 2024-01-01 09:01:00 UTC",
        (),
    )


def test_a_queued_run_is_timed_out_only_once_it_has_been_due(desk: Desk) -> None:
    run = sleeping(seconds=20, deadline=60).start(1, delay=3600)
    desk.advance(3599)
    assert run.phase == "queued"
    desk.advance(31)
    assert run.phase == "sleeping"
    desk.advance(20)
    assert run.phase == "succeeded"


def test_ten_years_of_sleep_are_kept_to_the_millisecond(desk: Desk) -> None:
    run = sleeping(seconds=timedelta(days=3650).total_seconds()).start(1)
    due = desk.now + timedelta(days=3650)
    assert desk.step(run, "nap").timer_at == due
    desk.advance(days=3650, milliseconds=-1)
    assert run.phase == "sleeping"
    desk.advance(milliseconds=1)
    assert run.phase == "succeeded"


def test_a_timer_whose_row_is_broken_stops_only_itself(desk: Desk) -> None:
    join: Any = Workflow("join", steps=[Step("nap", sleep=Sleep(60)), Step("end", after=["nap"], sleep=Sleep(1))])
    bad, good = join.start(1), sleeping(seconds=61).start(2)
    StepRow.objects.filter(run=bad.id, name="end").update(name="gone")
    desk.advance(61)
    assert (good.phase, bad.phase, desk.step(bad, "nap").timer_at) == ("succeeded", "sleeping", desk.now + timedelta(minutes=5))
    StepRow.objects.filter(run=bad.id, name="gone").update(name="end")
    desk.advance(minutes=5)
    assert ends(bad) == ["nap"]


def test_timers_beyond_the_batch_are_worked_off_by_the_same_tick(desk: Desk) -> None:
    runs = sleeping(seconds=60).start_many(range(250))
    desk.advance(60)
    assert {run.phase for run in runs} == {"succeeded"}


def test_the_next_moment_anything_is_due_is_told(desk: Desk) -> None:
    sleeping(seconds=60).start(1)
    sleeping(seconds=30).start(1)
    assert desk.tick().next_due == desk.now + timedelta(seconds=30)


def test_an_ended_run_leaves_no_timer(desk: Desk) -> None:
    run = sleeping().start(1)
    run.cancel()
    desk.advance(60)
    assert (run.phase, ends(run), desk.step(run, "nap").timer_at) == ("cancelled", [], None)


def test_a_wait_and_a_sleep_of_one_run_go_on_side_by_side(desk: Desk) -> None:
    workflow: Any = Workflow("both", steps=[Step("nap", sleep=Sleep(60)), Step("wait", wait=Wait("paid"))])
    run = workflow.start(1)
    assert run.phase == "waiting"
    emit("paid")
    desk.tick()
    assert run.phase == "sleeping"
    desk.advance(60)
    assert run.phase == "succeeded"
