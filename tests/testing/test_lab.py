"""What a lab promises: one body at a time, its clock and no other, every due moment in order, the ways of lost workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from ezgh_workflows_django import InvalidWorkflow, Step, Workflow
from ezgh_workflows_django import clock as worker_clock
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.models import Lease, Run
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.testing import BodyStuck, Lab, LabBlocked, assert_journal, turns

from . import flows
from .flows import MARKS

pytestmark = pytest.mark.django_db


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A lab that knows all flows; no marks yet."""
    MARKS.clear()
    with Lab(workflows=flows.ALL) as opened:
        yield opened


# --- the clock


def test_a_lab_begins_on_a_monday_morning_unless_told_otherwise(lab: Lab) -> None:
    assert lab.now == datetime(2024, 1, 1, 9, 0, tzinfo=UTC)


def test_a_moment_needs_a_time_zone() -> None:
    with pytest.raises(ValueError, match="time zone"):
        Lab(now="2024-01-01T09:00")


def test_time_never_goes_back(lab: Lab) -> None:
    with pytest.raises(ValueError, match="never goes back"):
        lab.advance(hours=-1)


def test_the_lab_ends_exactly_at_the_asked_moment(lab: Lab) -> None:
    lab.advance(timedelta(minutes=7, microseconds=1))
    assert lab.now == datetime(2024, 1, 1, 9, 7, 0, 1, tzinfo=UTC)


def test_both_clocks_are_the_labs(lab: Lab) -> None:
    before = worker_clock.monotonic()
    lab.advance(hours=2)
    assert worker_clock.monotonic() - before == 7200
    assert Run.objects.get(pk=flows.job.start().id).created_at == lab.now


def test_afterwards_time_and_registry_are_as_they_were() -> None:
    known = list(registry)
    with Lab(workflows=[flows.job]):
        pass
    assert list(registry) == known
    assert abs(worker_clock.monotonic() - time.monotonic()) < 60
    assert Run.objects.get(pk=flows.job.start().id).created_at > datetime(2025, 1, 1, tzinfo=UTC)


def test_a_lab_that_can_not_open_leaves_nothing_behind() -> None:
    twin = Workflow("job", steps=[Step("other", run=flows.give_back)])
    known = list(registry)
    with pytest.raises(InvalidWorkflow, match="defined twice"), Lab(workflows=[flows.job, twin]):
        pass
    assert list(registry) == known
    with Lab(workflows=[flows.job]) as lab:
        assert lab.now.year == 2024
    assert abs(worker_clock.monotonic() - time.monotonic()) < 60


def test_labs_do_not_nest(lab: Lab) -> None:
    with pytest.raises(RuntimeError, match="open already"), Lab():
        pass


# --- moving it


def test_each_due_moment_is_visited_in_order(lab: Lab) -> None:
    first, second = flows.retried.start(), flows.retried.start(delay=30)
    lab.advance(minutes=10)
    ended = [Run.objects.get(pk=run.id).ended_at for run in (first, second)]
    assert ended == [datetime(2024, 1, 1, 9, 3, tzinfo=UTC), datetime(2024, 1, 1, 9, 3, 30, tzinfo=UTC)]


def test_a_wait_on_ctx_lasts_for_the_labs_time(lab: Lab) -> None:
    run = flows.nap.start()
    lab.run_until_blocked()
    lab.advance(seconds=599)
    assert run.phase == "running"
    lab.advance(seconds=1)
    assert run.result() is False


def test_a_live_lease_is_kept_alive_while_time_passes(lab: Lab) -> None:
    run = flows.nap.start()
    lab.run_until_blocked()
    lab.advance(minutes=10)
    assert_journal(run, [..., ("step.started", "doze"), ("step.succeeded", "doze"), "run.succeeded"])


def test_a_timeout_fires_at_its_moment_and_the_body_hears_of_it(lab: Lab) -> None:
    run = flows.export.start()
    lab.run_until_blocked()
    lab.advance(seconds=30)
    assert run.failure.message == "attempt 1 timed out after 30s"
    assert (MARKS, Run.objects.get(pk=run.id).ended_at) == (["told to stop: timeout"], lab.now)


def test_a_coroutine_is_cancelled_at_its_timeout_as_a_worker_does(lab: Lab) -> None:
    run = flows.export_in_a_thread.start()
    lab.run_until_blocked()
    lab.advance(seconds=30)
    assert (run.failure.timed_out, MARKS) == (True, ["cancelled"])


def test_months_pass_quickly_where_nothing_is_due(lab: Lab) -> None:
    began = time.process_time()
    lab.advance(days=365)
    assert time.process_time() - began < 5


def test_a_day_of_waiting_on_ctx_passes_quickly(lab: Lab) -> None:
    long = Workflow("long", steps=[Step("wait", run=lambda ctx: ctx.cancelled.wait(80_000), timeout=timedelta(hours=24))])
    lab.worker("patient", [long])
    run = long.start()
    lab.run_until_blocked()
    began = time.process_time()
    lab.advance(hours=24)
    assert (run.result(), time.process_time() - began < 10) == (False, True)


def test_a_worker_of_the_lab_is_never_forgotten(lab: Lab) -> None:
    lab.advance(days=2)
    run = flows.job.start(1)
    lab.run_until_idle()
    assert run.result() == 1


# --- idle and blocked


def test_run_until_idle_names_the_bodies_that_wait(lab: Lab) -> None:
    flows.export.start()
    with pytest.raises(LabBlocked, match="export/write"):
        lab.run_until_idle()


def test_a_body_of_a_cancelled_run_is_told_and_nothing_is_left(lab: Lab) -> None:
    run = flows.export.start()
    lab.run_until_blocked()
    run.cancel("enough")
    lab.run_until_idle()
    assert (run.phase, MARKS) == ("cancelled", ["told to stop: run_terminal"])


def test_a_body_whose_run_another_body_cancels_is_told_at_once(lab: Lab) -> None:
    waiting = flows.export.start()
    lab.run_until_blocked()
    canceller = Workflow("canceller", steps=[Step("cancel", run=lambda: waiting.cancel("no more"))])
    lab.worker("w", [canceller])
    canceller.start()
    lab.run_until_idle()
    assert MARKS == ["told to stop: run_terminal"]


def test_bodies_begin_in_the_order_of_their_definition(lab: Lab) -> None:
    for _ in range(4):
        flows.abreast.start()
    lab.run_until_idle()
    assert MARKS == ["one", "two", "three", "four", "five"] * 4


def test_one_body_is_at_work_at_a_time(lab: Lab) -> None:
    at_work: list[int] = []
    most: list[int] = []

    def work() -> None:
        at_work.append(1)
        most.append(len(at_work))
        Run.objects.count()
        at_work.pop()

    many = Workflow("many", steps=[Step(f"s{number}", run=work) for number in range(12)])
    lab.worker("many", [many])
    many.start()
    lab.run_until_idle()
    assert most == [1] * 12


def test_a_body_that_waits_on_anything_else_is_named(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.2)
    gate = threading.Event()
    hung = Workflow("hung", steps=[Step("read", run=lambda: gate.wait(20))])
    lab.worker("w", [hung])
    hung.start()
    try:
        with pytest.raises(BodyStuck, match="hung/read"):
            lab.run_until_idle()
    finally:
        gate.set()


# --- commits


def test_what_is_rolled_back_does_not_happen(lab: Lab) -> None:
    called: list[str] = []
    with transaction.atomic():
        transaction.on_commit(lambda: called.append("undone"))
        flows.job.start(1)
        transaction.set_rollback(True)
    transaction.on_commit(lambda: called.append("done"))
    lab.run_until_idle()
    assert (called, Run.objects.count()) == (["done"], 0)


def test_what_waits_for_a_commit_waits_for_the_end_of_its_block(lab: Lab) -> None:
    called: list[str] = []
    with transaction.atomic():
        transaction.on_commit(lambda: called.append("done"))
        lab.run_until_idle()
        assert called == []
    lab.run_until_idle()
    assert called == ["done"]


def test_of_what_waits_for_a_commit_one_that_may_fail_stops_no_other(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise ValueError("no mail today")

    called: list[str] = []
    transaction.on_commit(fails, robust=True)
    transaction.on_commit(lambda: called.append("done"))
    lab.run_until_idle()
    assert called == ["done"]
    assert "no mail today" in caplog.text
    transaction.on_commit(fails)
    with pytest.raises(ValueError, match="no mail today"):
        lab.run_until_idle()


# --- what a worker makes of answers


def test_an_output_too_large_to_store_fails_the_step_for_good(lab: Lab) -> None:
    large = Workflow("large", steps=[Step("write", run=lambda: "x" * 2_000_000)])
    lab.worker("w", [large])
    run = large.start()
    lab.run_until_idle()
    assert (run.status, run.failure.class_) == ("failed", "permanent")
    assert "output" in run.failure.message


def test_a_lost_reply_is_posted_again_and_changes_nothing(lab: Lab) -> None:
    lab.worker("other")
    lab.drop_reply()
    run, second = flows.job.start(1), flows.job.start(2)
    lab.run_until_idle()
    assert (run.result(), second.result()) == (1, 2)
    refusals = [entry for each in (run, second) for entry in lab.journal(each) if entry.kind == "lease.refused"]
    assert ["already_applied" in entry.data for entry in refusals] == [True]


# --- lost workers


def test_the_lease_of_a_killed_worker_is_reclaimed_after_its_window(lab: Lab) -> None:
    run = flows.nap.start()
    lab.run_until_blocked()
    lab.kill(lab.workers[0])
    lab.worker("second", flows.ALL)
    lab.advance(seconds=59)
    assert Lease.objects.get(run__id=run.id).status == "orphaned"
    lab.advance(seconds=1)
    assert StepRow.objects.get(run__id=run.id).attempts == 2
    lab.advance(minutes=10)
    kinds = ["run.created", "run.started", "step.started", "lease.orphaned", "lease.reclaimed", "step.started", "step.succeeded", "run.succeeded"]
    assert_journal(run, kinds)
    assert [entry.worker for entry in lab.journal(run) if entry.kind == "step.started"] == ["lab", "second"]


def test_nothing_of_a_killed_body_runs_on() -> None:
    MARKS.clear()

    def hold(ctx: object) -> None:
        try:
            ctx.cancelled.wait()  # type: ignore[attr-defined]
        finally:
            MARKS.append("ran on")

    held = Workflow("held", steps=[Step("hold", run=hold)])
    with Lab(workflows=[held]) as lab:
        held.start()
        lab.run_until_blocked()
        lab.kill(lab.workers[0])
        lab.advance(minutes=5)
        assert MARKS == []


def test_a_lab_that_closes_on_waiting_bodies_leaves_no_thread_and_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    before = set(threading.enumerate())
    with Lab(workflows=flows.ALL) as lab:
        flows.export.start()
        flows.export_in_a_thread.start()
        lab.run_until_blocked()
    assert {thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("lab ")} == set()
    assert [record.getMessage() for record in caplog.records if record.name == "ezgh_workflows.worker"] == []
