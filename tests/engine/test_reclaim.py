"""Workers that go silent: the orphan's mark, its window, what a lost lease means for its step, and timeouts nobody reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from django.db import transaction

from ezgh_workflows_django import Retry, Step, Workflow
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.engine import catalog, leases, maintenance, outcomes, reclaim
from ezgh_workflows_django.engine.locking import locked
from ezgh_workflows_django.models import App, Definition, JournalEntry, Lease, Run, Tick
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.protocol.outcomes import Outcome, Report
from ezgh_workflows_django.protocol.states import LeaseStatus, RunStatus, StepStatus
from tests.engine import situations
from tests.engine.conftest import Desk
from tests.engine.graphs import body, job
from tests.engine.interleave import after_reading
from tests.engine.situations import pair, scene
from tests.engine.threads import PATIENCE, begin, elsewhere

LEASES: Final = Lease._meta.db_table


def told(handle: Any, kind: str) -> list[dict[str, Any]]:
    """What the journal says under one kind."""
    return [json.loads(row.data) for row in JournalEntry.objects.filter(run=handle.id, kind=kind).order_by("seq")]


def lose(desk: Desk, hand: Any) -> Any:
    """Take the next lease and never be heard of again; the window is over."""
    lease = hand.take()
    desk.advance(seconds=30)
    desk.advance(seconds=30)
    return lease


# The mark and the window -------------------------------------------------------------------------------------------------


def test_a_started_lease_without_a_heartbeat_is_marked_after_thirty_seconds(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.started(it)
    desk.advance(seconds=29.999)
    assert desk.lease(it.offered).status == LeaseStatus.STARTED
    desk.advance(seconds=0.001)
    lease = desk.lease(it.offered)
    assert (lease.status, lease.orphaned_at) == (LeaseStatus.ORPHANED, desk.now)
    assert told(it.handle, "lease.orphaned") == [{"late_ms": 0}]
    assert desk.step(it.handle, "work").status == StepStatus.LEASED


def test_an_orphan_is_offered_to_nobody_within_its_window(desk: Desk) -> None:
    it = scene(desk, job())
    situations.orphaned(it)
    other = desk.worker(it.workflow, name="w2")
    desk.advance(seconds=29.999)
    assert other.claim() == ()
    desk.advance(seconds=0.001)
    assert [lease.attempt for lease in other.claim()] == [2]


def test_the_window_counts_from_the_mark_and_not_from_the_expiry(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.started(it)
    desk.advance(seconds=45)
    desk.advance(seconds=29)
    assert desk.lease(it.offered).status == LeaseStatus.ORPHANED
    desk.advance(seconds=1)
    assert desk.lease(it.offered).status == LeaseStatus.RECLAIMED


@pytest.mark.parametrize("call", ["start", "beat"])
def test_within_its_window_a_worker_may_come_back_and_its_lease_lives_on(desk: Desk, call: str) -> None:
    it = scene(desk, pair())
    situations.orphaned(it)
    desk.advance(seconds=20)
    answer = getattr(it.hand, call)(it.offered)
    lease = desk.lease(it.offered)
    assert (answer.refused, answer.expires_in_ms) == (None, 30_000)
    assert (lease.status, lease.orphaned_at, lease.expires_at) == (LeaseStatus.STARTED, None, desk.now + timedelta(seconds=30))
    desk.advance(seconds=29)
    assert it.hand.complete(it.offered).step == StepStatus.SUCCEEDED
    assert desk.kinds(it.handle).count("lease.recovered") == 1


def test_within_its_window_a_worker_may_complete_without_coming_back_first(desk: Desk) -> None:
    it = scene(desk, pair("at_most_once"))
    situations.orphaned(it)
    assert it.hand.complete(it.offered, "done").step == StepStatus.SUCCEEDED


def test_a_lease_may_be_lost_and_come_back_again_and_again(desk: Desk) -> None:
    it = scene(desk, job(timeout=timedelta(hours=1)))
    situations.orphaned(it)
    it.hand.beat(it.offered)
    desk.advance(seconds=30)
    it.hand.beat(it.offered)
    assert desk.lease(it.offered).status == LeaseStatus.STARTED
    assert desk.step(it.handle, "work").reclaims == 0


def test_a_reclaimed_step_is_run_again_and_its_old_holder_is_fenced(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.reclaimed(it)
    step = desk.step(it.handle, "work")
    assert (step.status, step.reclaims, step.failures, step.attempts) == (StepStatus.READY, 1, 0, 1)
    assert it.hand.beat(it.offered).refused.reason == "fenced"  # type: ignore[union-attr]
    assert told(it.handle, "lease.reclaimed") == [{"token": it.offered.token}]


def test_reclaims_spend_no_retry(desk: Desk) -> None:
    """I11: a step with one attempt survives five lost workers."""
    hand = desk.worker(job())
    run = job().start()
    lose(desk, hand)
    lose(desk, hand)
    assert hand.complete(hand.take()).run == RunStatus.SUCCEEDED
    assert (desk.step(run, "work").failures, desk.step(run, "work").reclaims) == (0, 2)


def test_the_sixth_worker_lost_makes_the_step_poison_whatever_its_retries(desk: Desk) -> None:
    workflow = job(retry=Retry(max_attempts=50))
    hand = desk.worker(workflow)
    run = workflow.start()
    for _ in range(5):
        lose(desk, hand)
    assert desk.step(run, "work").status == StepStatus.READY
    lose(desk, hand)
    assert (run.status, run.failure.class_, run.failure.attempts) == (RunStatus.FAILED, "poison", 6)
    assert "MAX_RECLAIMS" in run.failure.message


def test_max_reclaims_is_a_setting(desk: Desk, settings: Any) -> None:
    settings.EZGH_WORKFLOWS = {"MAX_RECLAIMS": 0}
    hand = desk.worker(job())
    run = job().start()
    lose(desk, hand)
    assert run.failure.class_ == "poison"


def test_ttl_and_window_are_settings(desk: Desk, settings: Any) -> None:
    settings.EZGH_WORKFLOWS = {"LEASE_TTL": 4, "RECOVERY_WINDOW": 2, "OFFER_TTL": 1}
    it = scene(desk, pair())
    situations.started(it)
    desk.advance(seconds=4)
    assert desk.lease(it.offered).status == LeaseStatus.ORPHANED
    desk.advance(seconds=2)
    assert desk.lease(it.offered).status == LeaseStatus.RECLAIMED
    it.claim(claim_id="next")
    desk.advance(seconds=1)
    assert desk.lease(it.offered).status == LeaseStatus.RECLAIMED


# At most once ------------------------------------------------------------------------------------------------------------


def test_an_at_most_once_step_that_may_have_run_fails_as_orphaned_and_is_not_retried(desk: Desk) -> None:
    it = scene(desk, pair("at_most_once"))
    situations.reclaimed(it)
    assert (it.handle.status, it.handle.failure.class_, it.handle.failure.step) == (RunStatus.FAILED, "orphaned", "work")
    assert it.hand.claim() == ()


def test_an_at_most_once_step_that_was_only_offered_is_requeued(desk: Desk) -> None:
    it = scene(desk, pair("at_most_once"))
    it.claim()
    desk.advance(seconds=10)
    assert desk.step(it.handle, "work").status == StepStatus.READY


def test_an_offer_that_was_kept_by_heartbeats_certainly_never_ran(desk: Desk) -> None:
    it = scene(desk, pair("at_most_once"))
    it.claim()
    it.hand.beat(it.offered)
    desk.advance(seconds=30)
    assert desk.step(it.handle, "work").status == StepStatus.READY


@pytest.mark.parametrize(
    ("class_", "body_ended", "left"),
    [
        ("error", True, StepStatus.READY),
        ("card_declined", True, StepStatus.READY),
        ("timeout", True, StepStatus.READY),
        ("timeout", False, StepStatus.FAILED),
        ("crashed", True, StepStatus.FAILED),
        ("returned", True, StepStatus.FAILED),
        ("unservable", True, StepStatus.FAILED),
    ],
)
def test_an_at_most_once_body_runs_again_only_if_it_ended_by_itself(desk: Desk, class_: str, body_ended: bool, left: StepStatus) -> None:
    it = scene(desk, pair("at_most_once"))
    situations.started(it)
    it.hand.fail(it.offered, class_, body_ended=body_ended)
    assert desk.step(it.handle, "work").status == left


def test_an_at_most_once_step_whose_timeout_nobody_reported_fails(desk: Desk) -> None:
    it = scene(desk, pair("at_most_once"))
    situations.timed_out_by_engine(it)
    assert (it.handle.status, it.handle.failure.class_) == (RunStatus.FAILED, "timeout")


# Timeouts ----------------------------------------------------------------------------------------------------------------


def test_the_engine_reports_a_timeout_ten_seconds_late_though_heartbeats_go_on(desk: Desk) -> None:
    workflow = job(timeout=timedelta(seconds=40), retry=Retry(max_attempts=2, initial=1, jitter=0))
    it = scene(desk, workflow)
    situations.started(it)
    desk.advance(seconds=25)
    it.hand.beat(it.offered)
    desk.advance(seconds=24.999)
    assert desk.lease(it.offered).status == LeaseStatus.STARTED
    it.hand.beat(it.offered)
    desk.advance(seconds=0.001)
    assert desk.lease(it.offered).status == LeaseStatus.TIMED_OUT
    assert it.hand.beat(it.offered).refused.reason == "fenced"  # type: ignore[union-attr]
    step = desk.step(it.handle, "work")
    assert (step.status, step.failures, step.reclaims) == (StepStatus.READY, 1, 0)


@pytest.mark.parametrize("seconds", [1, 5, 50])
def test_a_timeout_is_late_by_its_grace_and_a_tick_at_most(desk: Desk, seconds: int) -> None:
    """B100: every part judges by the same clock, so nothing overdue is invisible."""
    it = scene(desk, job(timeout=timedelta(seconds=seconds)))
    situations.started(it)
    for _ in range(seconds + 10):
        desk.advance(seconds=1)
        it.hand.beat(it.offered)
    assert (it.handle.status, it.handle.failure.class_) == (RunStatus.FAILED, "timeout")
    assert desk.lease(it.offered).ended_at == desk.lease(it.offered).started_at + timedelta(seconds=seconds + 10)  # type: ignore[operator]


def test_a_timeout_that_its_worker_reported_first_is_its_workers(desk: Desk) -> None:
    it = scene(desk, job(timeout=timedelta(seconds=10)))
    situations.started(it)
    desk.now += timedelta(seconds=20)
    it.hand.fail(it.offered, "timeout", "attempt 1 timed out after 10s")
    desk.tick()
    assert it.handle.failure.message == "attempt 1 timed out after 10s"
    assert "lease.timed_out" not in desk.kinds(it.handle)


def test_a_completion_after_the_timeout_but_before_the_engine_saw_it_counts(desk: Desk) -> None:
    """What commits first wins."""
    it = scene(desk, job(timeout=timedelta(seconds=10)))
    situations.started(it)
    desk.now += timedelta(seconds=20)
    assert it.hand.complete(it.offered).run == RunStatus.SUCCEEDED


def test_the_timeout_counts_from_started_and_not_from_the_claim(desk: Desk) -> None:
    it = scene(desk, job(timeout=timedelta(seconds=10)))
    it.claim()
    desk.advance(seconds=9)
    it.hand.start(it.offered)
    assert desk.lease(it.offered).timeout_at == desk.now + timedelta(seconds=20)


def test_each_attempt_has_the_whole_timeout(desk: Desk) -> None:
    workflow = job(timeout=timedelta(seconds=20), retry=Retry(max_attempts=2, initial=1, jitter=0))
    it = scene(desk, workflow)
    situations.started(it)
    desk.advance(seconds=15)
    it.hand.fail(it.offered)
    desk.advance(seconds=1)
    it.hand.start(it.claim(claim_id="second"))
    assert desk.lease(it.offered).timeout_at == desk.now + timedelta(seconds=30)


def test_a_body_without_a_timeout_is_timed_out_at_the_invocation_deadline(desk: Desk) -> None:
    it = scene(desk, job())
    situations.started(it)
    Lease.objects.filter(pk=it.offered.id).update(expires_at=desk.now + timedelta(hours=1))
    desk.advance(minutes=15, seconds=10)
    assert it.handle.failure.class_ == "timeout"
    assert "15m" in it.handle.failure.message


@pytest.mark.parametrize(("timeout", "left"), [(19, LeaseStatus.TIMED_OUT), (20, LeaseStatus.TIMED_OUT), (21, LeaseStatus.ORPHANED)])
def test_of_timeout_and_expiry_the_one_that_is_due_first_wins_even_if_both_are_found_late(desk: Desk, timeout: int, left: LeaseStatus) -> None:
    """With ten seconds of grace a timeout of 20 s is due with the lease's expiry."""
    it = scene(desk, job(timeout=timedelta(seconds=timeout)))
    situations.started(it)
    desk.advance(seconds=45)
    assert desk.lease(it.offered).status == left


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_an_orphan_times_out_when_that_is_due_before_its_window_is_over(desk: Desk, delivery: str) -> None:
    """Orphaned at 30 s, to be reclaimed at 60 s, but timed out at 45 s: the earlier due time wins."""
    workflow = Workflow("job", [Step("work", run=body, timeout=timedelta(seconds=35), delivery=delivery)])
    it = scene(desk, workflow)
    situations.orphaned(it)
    desk.advance(seconds=14.999)
    assert desk.lease(it.offered).status == LeaseStatus.ORPHANED
    desk.advance(seconds=0.001)
    assert desk.lease(it.offered).status == LeaseStatus.TIMED_OUT
    assert it.handle.failure.class_ == "timeout"


def test_an_orphan_whose_window_is_over_first_is_reclaimed_though_its_timeout_has_passed_too(desk: Desk) -> None:
    it = scene(desk, job(timeout=timedelta(seconds=55)))
    situations.orphaned(it)
    desk.advance(seconds=60)
    assert desk.lease(it.offered).status == LeaseStatus.RECLAIMED
    assert desk.step(it.handle, "work").status == StepStatus.READY


# After a gap in maintenance ----------------------------------------------------------------------------------------------


def wake_up(desk: Desk, seconds: float) -> maintenance.Ticked:
    """Nothing ticked for that long: the database was down, or the host suspended."""
    desk.now += timedelta(seconds=seconds)
    return maintenance.tick()


@pytest.mark.parametrize("bring_about", [situations.offered, situations.started, situations.orphaned], ids=["offered", "started", "orphaned"])
def test_after_a_gap_nothing_is_taken_from_the_healthy_for_one_ttl(desk: Desk, bring_about: Callable[[situations.Scene], None]) -> None:
    it = scene(desk, pair())
    desk.tick()
    bring_about(it)
    before = desk.lease(it.offered).status
    wake_up(desk, 3_600)
    wake_up(desk, 29)
    assert desk.lease(it.offered).status == before
    assert it.hand.beat(it.offered).refused is None


def test_after_a_gap_and_one_ttl_the_lost_are_lost(desk: Desk) -> None:
    it = scene(desk, pair())
    desk.tick()
    situations.started(it)
    wake_up(desk, 3_600)
    wake_up(desk, 30)
    assert desk.lease(it.offered).status == LeaseStatus.ORPHANED


def test_after_a_gap_timeouts_wait_for_one_ttl_too(desk: Desk) -> None:
    it = scene(desk, job(timeout=timedelta(minutes=1)))
    desk.tick()
    situations.started(it)
    wake_up(desk, 3_600)
    assert it.hand.complete(it.offered).run == RunStatus.SUCCEEDED


def test_a_gap_as_long_as_a_lease_is_none(desk: Desk) -> None:
    it = scene(desk, pair())
    desk.tick()
    situations.started(it)
    wake_up(desk, 30)
    assert desk.lease(it.offered).status == LeaseStatus.ORPHANED


def test_idle_ticks_are_no_gap(desk: Desk) -> None:
    """The tick's row is written now and then though nothing is due, so quiet is not taken for an outage."""
    hand = desk.worker(job())
    desk.tick()
    for _ in range(60):
        wake_up(desk, 1)
    job().start()
    lease = hand.take()
    for _ in range(30):
        wake_up(desk, 1)
    assert desk.lease(lease).status == LeaseStatus.ORPHANED


def test_a_second_gap_is_made_good_as_the_first(desk: Desk) -> None:
    it = scene(desk, pair())
    desk.tick()
    situations.started(it)
    wake_up(desk, 100)
    wake_up(desk, 100)
    assert desk.lease(it.offered).status == LeaseStatus.STARTED


# One bad row -------------------------------------------------------------------------------------------------------------


@pytest.mark.plants_faults
def test_a_lease_whose_run_cannot_be_read_stops_only_itself(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """B13: the bad row is logged once and left alone for a while; the healthy one beside it is dealt with."""
    hand = desk.worker(job("bad"), job("good"))
    bad, good = job("bad").start(), job("good").start()
    offered = {lease.run_id: lease for lease in hand.claim()}
    leases.started([lease.id for lease in offered.values()])
    Definition.objects.filter(workflow="bad").update(spec='{"steps": "nonsense"}')
    catalog.plan.cache_clear()
    desk.advance(seconds=30)
    desk.tick()
    desk.tick()
    assert desk.lease(offered[good.id]).status == LeaseStatus.ORPHANED
    assert len([record for record in caplog.records if "could not deal with" in record.message]) == 1
    catalog.plan.cache_clear()
    assert desk.lease(offered[bad.id]).due_at == desk.now + timedelta(minutes=5)


@pytest.mark.parametrize("first", [0, 1])
def test_an_absurd_delay_that_got_into_the_tables_holds_up_no_other_run(desk: Desk, first: int) -> None:
    """B13, in one call of a worker that has both: the healthy outcome is stored whichever comes first; the bad run ends."""
    workflow = job("bad", retry=Retry(max_attempts=2, initial=1, jitter=0))
    hand = desk.worker(workflow, job("good"))
    bad, good = workflow.start(), job("good").start()
    offered = {lease.run_id: lease for lease in hand.claim()}
    leases.started([lease.id for lease in offered.values()])
    spec = json.loads(Definition.objects.get(workflow="bad").spec)
    spec["retry"] |= {"initial_ms": 10**20, "maximum_ms": 10**20}
    Definition.objects.filter(workflow="bad").update(spec=json.dumps(spec))
    catalog.plan.cache_clear()
    reports = [Report(offered[bad.id].id, Outcome.failed("error", "boom")), Report(offered[good.id].id, Outcome.completed())]
    outcomes.report(reports[first:] + reports[:first])
    catalog.plan.cache_clear()
    assert good.status == RunStatus.SUCCEEDED
    assert bad.status == RunStatus.RUNNING
    for _ in range(20):
        desk.advance(31)
        for lease in hand.claim():
            hand.start(lease)
            hand.fail(lease)
    catalog.plan.cache_clear()
    assert (bad.status, json.loads(desk.run(bad).failure or "")["class"]) == (RunStatus.FAILED, "poison")


def test_an_absurd_timeout_that_got_into_the_tables_holds_up_no_other_start(desk: Desk) -> None:
    """B13: it is started or refused by itself; the lease beside it is started."""
    hand = desk.worker(job("bad"), job("good"))
    bad, good = job("bad").start(), job("good").start()
    offered = {lease.run_id: lease for lease in hand.claim()}
    Lease.objects.filter(pk=offered[bad.id].id).update(timeout_ms=10**18)
    leases.started([offered[bad.id].id, offered[good.id].id])
    assert desk.lease(offered[good.id]).status == LeaseStatus.STARTED


@pytest.mark.plants_faults
def test_a_step_of_a_definition_that_cannot_be_read_holds_up_no_claim(desk: Desk) -> None:
    """B13: the healthy run is served though the bad one is first in the queue."""
    App.objects.update(partitions=1)
    hand = desk.worker(job("bad"), job("good"))
    job("bad").start()
    desk.advance(seconds=1)
    good = job("good").start()
    Definition.objects.filter(workflow="bad").update(spec='{"steps": "nonsense"}')
    catalog.plan.cache_clear()
    offered = hand.claim(1)
    catalog.plan.cache_clear()
    assert [lease.run_id for lease in offered] == [good.id]


def test_an_input_that_cannot_be_read_holds_up_no_claim(desk: Desk) -> None:
    """B13: what is beside it in the claim is given all the same."""
    hand = desk.worker(job("bad"), job("good"))
    bad, good = job("bad").start({"n": 1}), job("good").start({"n": 2})
    Run.objects.filter(pk=bad.id).update(payload='{"n": ')
    assert [lease.run_id for lease in hand.claim()] == [good.id]


# What happens between the look and the write -----------------------------------------------------------------------------


def test_a_completion_between_the_reapers_look_and_its_write_stands(desk: Desk) -> None:
    """B01: the write is guarded; the other expired lease of the same batch is dealt with."""
    hand = desk.worker(job())
    runs = job().start_many(range(2))
    first, second = hand.claim(2)
    leases.started([first.id, second.id])
    desk.now += timedelta(seconds=30)
    with after_reading(LEASES, lambda: hand.complete(first, "in time")) as met:
        reclaim.run_once(desk.now, 10)
    assert met
    assert (desk.lease(first).status, desk.lease(second).status) == (LeaseStatus.COMPLETED, LeaseStatus.ORPHANED)
    done = next(run for run in runs if run.id == first.run_id)
    assert (done.status, done.result()) == (RunStatus.SUCCEEDED, "in time")
    assert [kind for kind in desk.kinds(done) if kind.startswith("lease.")] == []


def test_a_fresh_lease_is_not_torn_off_by_a_reaper_that_saw_the_old_one(desk: Desk) -> None:
    """B01, second variant: between look and write the step was handed back and leased again."""
    it = scene(desk, pair())
    situations.orphaned(it)
    old = it.offered
    desk.now += timedelta(seconds=30)

    def lease_again() -> None:
        it.hand.fail(old, "returned")
        it.hand.start(it.claim(claim_id="fresh"))

    with after_reading(LEASES, lease_again) as met:
        reclaim.run_once(desk.now, 10)
    assert met
    assert (desk.lease(old).status, desk.lease(it.offered).status) == (LeaseStatus.RETURNED, LeaseStatus.STARTED)
    assert "lease.reclaimed" not in desk.kinds(it.handle)
    assert it.hand.complete(it.offered).step == StepStatus.SUCCEEDED


def test_a_heartbeat_between_the_reapers_look_and_its_write_saves_the_lease(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.started(it)
    desk.now += timedelta(seconds=30)
    with after_reading(LEASES, lambda: it.hand.beat(it.offered)) as met:
        reclaim.run_once(desk.now, 10)
    assert met
    assert desk.lease(it.offered).status == LeaseStatus.STARTED
    assert desk.lease(it.offered).expires_at == desk.now + timedelta(seconds=30)


@pytest.mark.skipif("__import__('django.db').db.connection.vendor == 'sqlite'", reason="a writer of SQLite holds the whole file")
def test_a_lease_that_a_heartbeat_holds_is_passed_over(desk: Desk, transactional_db: None) -> None:
    it = scene(desk, pair())
    situations.started(it)
    desk.now += timedelta(seconds=30)
    with transaction.atomic():
        locked(Lease.objects.filter(pk=it.offered.id)).get()
        begin(desk.tick).result(PATIENCE)
        assert elsewhere(lambda: desk.lease(it.offered).status) == LeaseStatus.STARTED
    desk.tick()
    assert desk.lease(it.offered).status == LeaseStatus.ORPHANED


def test_two_recoverers_with_the_same_stale_list_reclaim_once(desk: Desk) -> None:
    """B28: the other one reclaims and a worker has the step again before this one goes on from its list."""
    it = scene(desk, pair())
    situations.orphaned(it)
    old = it.offered
    desk.now += timedelta(seconds=30)

    def other_recoverer() -> None:
        reclaim.run_once(desk.now, 10)
        it.hand.start(it.claim(claim_id="fresh"))

    with after_reading(LEASES, other_recoverer) as met:
        reclaim.run_once(desk.now, 10)
    assert met
    assert desk.kinds(it.handle).count("lease.reclaimed") == 1
    assert desk.step(it.handle, "work").reclaims == 1
    assert desk.lease(it.offered).status == LeaseStatus.STARTED
    assert it.hand.complete(old).refused.reason == "fenced"  # type: ignore[union-attr]


def test_two_recoverers_with_the_same_stale_list_time_out_once(desk: Desk) -> None:
    """B28: one retry is scheduled, one failure counted."""
    it = scene(desk, pair())
    situations.started(it)
    Lease.objects.filter(pk=it.offered.id).update(expires_at=desk.now + timedelta(hours=1), due_at=desk.now)
    Lease.objects.filter(pk=it.offered.id).update(timeout_at=desk.now)
    with after_reading(LEASES, lambda: reclaim.run_once(desk.now, 10)) as met:
        reclaim.run_once(desk.now, 10)
    assert met
    assert desk.step(it.handle, "work").failures == 1
    assert desk.kinds(it.handle).count("step.retry_scheduled") == 1


def test_a_duty_run_twice_does_nothing_the_second_time(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.started(it)
    desk.now += timedelta(seconds=30)
    assert reclaim.run_once(desk.now, 10) == 1
    before = situations.everything(it.handle)
    assert reclaim.run_once(desk.now, 10) == 0
    assert situations.everything(it.handle) == before


# What maintenance needs to know ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("delivery", "left"), [("at_least_once", StepStatus.READY), ("at_most_once", StepStatus.FAILED)])
def test_a_process_that_knows_no_body_reclaims_by_the_stored_policy(desk: Desk, delivery: str, left: StepStatus) -> None:
    """B31: no code of the workflow is in this process, and none of its plan in memory."""
    it = scene(desk, pair(delivery))
    situations.orphaned(it)
    registry.swap()
    catalog.plan.cache_clear()
    desk.advance(seconds=30)
    assert desk.step(it.handle, "work").status == left


def test_a_process_that_knows_no_body_retries_a_timeout_by_the_stored_policy(desk: Desk) -> None:
    """B31."""
    it = scene(desk, pair())
    situations.started(it)
    registry.swap()
    catalog.plan.cache_clear()
    Lease.objects.filter(pk=it.offered.id).update(expires_at=desk.now + timedelta(hours=1))
    desk.advance(minutes=10, seconds=10)
    assert desk.step(it.handle, "work").available_at == desk.now + timedelta(seconds=10)


def test_before_the_reaper_passes_the_rows_say_that_a_lease_is_expired(desk: Desk) -> None:
    """B32: whoever shows an attempt can see that it is overdue, and claims agree: it is offered to nobody until it is taken back."""
    it = scene(desk, job())
    situations.started(it)
    desk.now += timedelta(hours=1)
    lease = desk.lease(it.offered)
    assert (lease.status, lease.expires_at < desk.now, lease.due_at < desk.now) == (LeaseStatus.STARTED, True, True)  # type: ignore[operator]
    assert desk.worker(it.workflow, name="w2").claim() == ()
    assert it.handle.phase == "running"


def test_what_is_overdue_longest_is_dealt_with_first(desk: Desk) -> None:
    """B100."""
    hand = desk.worker(job())
    first, second, third = (job().start(), job().start(), job().start())
    offered = {lease.run_id: lease for lease in hand.claim(3)}
    leases.started([lease.id for lease in offered.values()])
    Lease.objects.filter(pk=offered[second.id].id).update(due_at=desk.now - timedelta(seconds=2), expires_at=desk.now - timedelta(seconds=2))
    Lease.objects.filter(pk=offered[third.id].id).update(due_at=desk.now - timedelta(seconds=1), expires_at=desk.now - timedelta(seconds=1))
    assert reclaim.run_once(desk.now, 1) == 1
    assert [desk.lease(offered[run.id]).status for run in (first, second, third)] == ["started", "orphaned", "started"]
    assert reclaim.run_once(desk.now, 1) == 1
    assert [desk.lease(offered[run.id]).status for run in (first, second, third)] == ["started", "orphaned", "orphaned"]


def test_a_backlog_is_worked_off_in_one_tick_and_its_lateness_is_kept(desk: Desk) -> None:
    """B100: the tick's row says how late the oldest due row was found."""
    hand = desk.worker(job())
    job().start_many(range(maintenance.BATCH + 50))
    offered = [*hand.claim(100), *hand.claim(100), *hand.claim(100)]
    desk.advance(seconds=70)
    assert Lease.objects.filter(status=LeaseStatus.RECLAIMED).count() == len(offered) == maintenance.BATCH + 50
    assert StepRow.objects.filter(status=StepStatus.READY).count() == maintenance.BATCH + 50
    assert Tick.objects.get().lateness_ms == 60_000


def test_a_lease_that_is_far_in_the_future_is_never_due(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.started(it)
    Lease.objects.filter(pk=it.offered.id).update(due_at=datetime(9999, 12, 31, 23, 59, tzinfo=UTC))
    desk.advance(days=1)
    assert desk.lease(it.offered).status == LeaseStatus.STARTED
