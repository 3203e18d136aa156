"""Claims and leases: who is offered what, in which order, what a lease says, and how long it lives (spec: engine.md "Leases")."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F

from ezgh_workflows_django import Retry, Step, Wait, Workflow
from ezgh_workflows_django.engine import events, leases, maintenance, outcomes, workers
from ezgh_workflows_django.errors import InvalidArgument, RunTerminal, UnknownDefinition, UnknownRun, UnknownWorker
from ezgh_workflows_django.models import Announcement, App, Lease, Run
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.protocol.messages import Beat, ClaimRequest, Serve
from ezgh_workflows_django.protocol.outcomes import Outcome, Report
from ezgh_workflows_django.protocol.states import LeaseStatus, RunStatus, StepStatus
from tests.engine import situations
from tests.engine.conftest import Desk
from tests.engine.graphs import body, chain, job
from tests.engine.situations import pair, scene
from tests.engine.threads import PATIENCE, begin, elsewhere


def one_partition() -> None:
    """Inside a partition the order of claims is strict; across partitions it is approximate."""
    App.objects.update(partitions=1)


# What a claim offers, and in which order ---------------------------------------------------------------------------------


def test_every_claimable_step_is_offered_to_exactly_one_worker(desk: Desk) -> None:
    workflow = pair()
    one, other = desk.worker(workflow, name="w1"), desk.worker(workflow, name="w2")
    workflow.start_many(range(3))
    offered = [*one.claim(4), *other.claim(4), *one.claim(4), *other.claim(4)]
    assert len({(lease.run_id, lease.step) for lease in offered}) == len(offered) == 6


def test_a_claim_gives_at_most_what_it_asked_for(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start_many(range(5))
    assert [len(hand.claim(2)), len(hand.claim(2)), len(hand.claim(2)), len(hand.claim(2))] == [2, 2, 1, 0]


def test_the_oldest_step_is_offered_first(desk: Desk) -> None:
    one_partition()
    hand = desk.worker(job())
    older = job().start("older")
    desk.advance(seconds=1)
    job().start("newer")
    assert hand.claim(1)[0].run_id == older.id


def test_the_leases_of_one_claim_come_in_its_order(desk: Desk) -> None:
    one_partition()
    hand = desk.worker(job())
    handles = [job().start(priority=priority) for priority in (-5, 0, 7, 3, -100, 100)]
    by_priority = [handles[place].id for place in (5, 2, 3, 1, 0, 4)]
    assert [lease.run_id for lease in hand.claim(6)] == by_priority


def test_a_point_of_priority_is_worth_a_minute_of_waiting(desk: Desk) -> None:
    one_partition()
    hand = desk.worker(job())
    older = job().start("older")
    desk.advance(seconds=119)
    urgent = job().start("urgent", priority=2)
    desk.advance(seconds=2)
    late = job().start("late", priority=2)
    assert [lease.run_id for lease in hand.claim(3)] == [urgent.id, older.id, late.id]


def test_old_work_moves_though_urgent_work_never_ends(desk: Desk) -> None:
    one_partition()
    hand = desk.worker(job())
    old = job().start("old", priority=-100)
    desk.advance(minutes=201)
    job().start_many(range(5))
    Run.objects.exclude(pk=old.id).update(priority=100)
    assert old.id == hand.claim(1)[0].run_id


def test_a_step_that_became_ready_later_comes_after_those_that_waited(desk: Desk) -> None:
    one_partition()
    workflow = chain("a", "b")
    hand = desk.worker(workflow)
    first, second = workflow.start(1), workflow.start(2)
    lease = hand.take()
    desk.advance(seconds=1)
    hand.complete(lease)
    assert [(offer.run_id, offer.step) for offer in hand.claim(2)] == [(second.id, "a"), (first.id, "b")]


def test_every_partition_is_reached_by_one_look(desk: Desk) -> None:
    App.objects.update(partitions=32)
    workflow = Workflow("wide", [Step(f"s{number}", run=body) for number in range(32)])
    hand = desk.worker(workflow)
    workflow.start()
    assert len(set(StepRow.objects.values_list("partition", flat=True))) == 32
    assert len(hand.claim(32)) == 32


def test_a_step_is_not_offered_before_it_is_available(desk: Desk) -> None:
    workflow = job(retry=Retry(max_attempts=2, initial=10, jitter=0))
    hand = desk.worker(workflow)
    workflow.start()
    hand.fail(hand.take())
    desk.advance(seconds=9.999)
    assert hand.claim() == ()
    desk.advance(seconds=0.001)
    assert len(hand.claim()) == 1


# What a worker serves ----------------------------------------------------------------------------------------------------


def test_only_workflows_that_are_served_are_offered(desk: Desk) -> None:
    hand = desk.worker(job("mine"), job("other"))
    mine, _ = job("mine").start(), job("other").start()
    assert [lease.run_id for lease in hand.claim(serves=[Serve("mine", "1")])] == [mine.id]


def test_only_the_revision_that_is_served_is_offered(desk: Desk) -> None:
    old, new = desk.worker(job(), name="old"), desk.worker(job(revision="2"), name="new")
    before, after = job().start(), job(revision="2").start()
    assert [lease.run_id for lease in old.claim()] == [before.id]
    assert [lease.run_id for lease in new.claim()] == [after.id]


def test_every_version_of_a_served_revision_is_offered(desk: Desk) -> None:
    """Editing a timeout strands nothing: the worker says name and revision, not version."""
    edited = job(timeout=timedelta(minutes=1))
    hand = desk.worker(edited)
    runs = {job().start().id, edited.start().id}
    assert {lease.run_id for lease in hand.claim()} == runs


def test_only_the_steps_that_are_served_are_offered(desk: Desk) -> None:
    hand = desk.worker(pair())
    pair().start()
    assert [lease.step for lease in hand.claim(serves=[Serve("pair", "1", frozenset({"beside"}))])] == ["beside"]
    assert hand.claim(serves=[Serve("pair", "1", frozenset())]) == ()


def test_a_worker_that_serves_nothing_is_offered_nothing(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start()
    assert hand.claim(serves=[]) == ()


def test_the_work_of_another_app_is_not_offered(desk: Desk) -> None:
    desk.worker(job())
    developer = desk.worker(job(), name="mine", app="dev-ann")
    job().start()
    mine = job().start(app="dev-ann")
    assert [lease.run_id for lease in developer.claim()] == [mine.id]


def test_a_paused_app_is_offered_nothing_of(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start()
    App.objects.update(paused_at=desk.now)
    assert hand.claim() == ()


def test_a_revision_that_was_never_stored_asks_the_worker_to_register_again(desk: Desk) -> None:
    hand = desk.worker(job())
    with pytest.raises(UnknownDefinition, match="job revision 2: register again"):
        hand.claim(serves=[Serve("job", "2")])


@pytest.mark.parametrize("worker_id", ["", "w1", "00000000-0000-0000-0000-000000000000"])
def test_an_unknown_session_is_asked_to_register_again(desk: Desk, worker_id: str) -> None:
    with pytest.raises(UnknownWorker, match="register again"):
        leases.claim(ClaimRequest(worker_id=worker_id, claim_id="c", max=1))


def test_a_session_that_left_claims_no_more(desk: Desk) -> None:
    hand = desk.worker(job())
    workers.leave(hand.session.worker_id)
    with pytest.raises(UnknownWorker):
        hand.claim()


@pytest.mark.parametrize(("field", "value"), [("max", 0), ("max", -1), ("max", 101), ("claim_id", ""), ("claim_id", "c" * 65)])
def test_a_claim_out_of_range_is_refused_by_name(desk: Desk, field: str, value: Any) -> None:
    hand = desk.worker(job())
    asked: dict[str, Any] = {"worker_id": hand.session.worker_id, "claim_id": "c", "max": 1, field: value}
    with pytest.raises(InvalidArgument) as caught:
        leases.claim(ClaimRequest(**asked))
    assert caught.value.field == field


def test_a_claim_for_one_run_is_offered_nothing_else(desk: Desk) -> None:
    hand = desk.worker(job())
    _, mine, _ = job().start_many(range(3))
    assert [lease.run_id for lease in hand.claim(run=mine.id)] == [mine.id]
    assert hand.claim(run=mine.id) == ()


def test_a_claim_for_a_run_that_is_over_says_so(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start()
    run.cancel()
    with pytest.raises(RunTerminal, match=run.id):
        hand.claim(run=run.id)


@pytest.mark.parametrize("run", ["00000000-0000-0000-0000-000000000000", "nonsense", ""])
def test_a_claim_for_no_run_says_so(desk: Desk, run: str) -> None:
    hand = desk.worker(job())
    with pytest.raises(UnknownRun):
        hand.claim(run=run)


# Unservable --------------------------------------------------------------------------------------------------------------


def test_what_a_session_found_unservable_is_not_offered_to_it_again_but_to_others(desk: Desk) -> None:
    one, other = desk.worker(job(), name="w1"), desk.worker(job(), name="w2")
    job().start()
    [lease] = one.claim()
    one.fail(lease, "unservable")
    assert one.claim() == ()
    [again] = other.claim()
    assert again.attempt == 1


def test_the_ban_is_of_that_definition_only(desk: Desk) -> None:
    edited = job(timeout=timedelta(minutes=1))
    hand = desk.worker(job(), edited)
    job().start()
    [lease] = hand.claim()
    hand.fail(lease, "unservable")
    fine = edited.start()
    assert [offer.run_id for offer in hand.claim()] == [fine.id]


def test_a_session_that_registers_again_is_offered_what_it_was_banned_from(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start()
    hand.fail(hand.claim()[0], "unservable")
    assert len(desk.worker(job()).claim()) == 1


def test_unservable_attempts_spend_no_budget_however_many_they_are(desk: Desk) -> None:
    """I14: an unknown step is deferred, never failed."""
    run = job().start()
    for number in range(8):
        hand = desk.worker(job(), name=f"w{number}")
        hand.fail(hand.claim()[0], "unservable")
    step = desk.step(run, "work")
    assert (step.status, step.failures, step.reclaims, step.attempts) == (StepStatus.READY, 0, 0, 0)


# A repeated claim --------------------------------------------------------------------------------------------------------


def test_a_repeated_claim_gives_the_same_leases_and_no_more(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start_many(range(5))
    first = hand.claim(2, claim_id="lost answer")
    assert sorted(hand.claim(2, claim_id="lost answer"), key=lambda lease: lease.id) == sorted(first, key=lambda lease: lease.id)
    assert Lease.objects.count() == 2


def test_a_repeated_claim_leaves_out_what_is_over(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start_many(range(3))
    done, kept = hand.claim(2, claim_id="c")
    hand.complete(done)
    assert [lease.id for lease in hand.claim(2, claim_id="c")] == [kept.id]
    hand.complete(kept)
    assert hand.claim(2, claim_id="c") == ()


def test_a_claim_that_found_nothing_may_find_something_when_it_is_repeated(desk: Desk) -> None:
    hand = desk.worker(job())
    assert hand.claim(1, claim_id="c") == ()
    job().start()
    assert len(hand.claim(1, claim_id="c")) == 1


def test_another_sessions_claim_of_the_same_id_is_a_claim_of_its_own(desk: Desk) -> None:
    one, other = desk.worker(job(), name="w1"), desk.worker(job(), name="w2")
    job().start_many(range(2))
    [mine], [theirs] = one.claim(1, claim_id="c"), other.claim(1, claim_id="c")
    assert mine.id != theirs.id


def test_a_claim_id_is_compared_exactly(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start_many(range(3))
    assert len({hand.claim(1, claim_id=claim_id)[0].id for claim_id in ("c", "C", "c ")}) == 3


# Offers ------------------------------------------------------------------------------------------------------------------


def test_an_offer_nobody_took_up_is_requeued_after_ten_seconds(desk: Desk) -> None:
    it = scene(desk, pair())
    it.claim()
    desk.advance(seconds=9.9)
    assert desk.lease(it.offered).status == LeaseStatus.OFFERED
    desk.advance(seconds=0.1)
    assert (desk.lease(it.offered).status, desk.step(it.handle, "work").status) == (LeaseStatus.RECLAIMED, StepStatus.READY)


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_lost_offers_cost_no_budget_and_no_attempt(desk: Desk, delivery: str) -> None:
    it = scene(desk, pair(delivery))
    for number in range(10):
        it.claim(claim_id=f"c{number}")
        desk.advance(seconds=10)
    step = desk.step(it.handle, "work")
    assert (step.status, step.failures, step.reclaims, step.attempts, step.token) == (StepStatus.READY, 0, 0, 0, 10)


def test_a_heartbeat_keeps_an_offer_as_long_as_a_lease(desk: Desk) -> None:
    it = scene(desk, pair())
    it.claim()
    desk.now += timedelta(seconds=9)
    assert it.hand.beat(it.offered).expires_at == desk.now + timedelta(seconds=30)
    desk.advance(seconds=29.9)
    assert desk.lease(it.offered).status == LeaseStatus.OFFERED
    desk.advance(seconds=0.1)
    assert desk.step(it.handle, "work").status == StepStatus.READY


# Attempts and tokens -----------------------------------------------------------------------------------------------------


def test_an_attempt_counts_leases_whose_body_may_have_run(desk: Desk) -> None:
    it = scene(desk, pair())
    first = it.claim(claim_id="c1")
    it.hand.start(first)
    it.hand.fail(first)
    desk.advance(seconds=10)
    never_started = it.claim(claim_id="c2")
    it.hand.fail(never_started, "returned")
    handed_back = it.claim(claim_id="c3")
    it.hand.start(handed_back)
    it.hand.fail(handed_back, "returned")
    lost = it.claim(claim_id="c4")
    desk.advance(seconds=10)
    last = it.claim(claim_id="c5")
    assert [lease.attempt for lease in (first, never_started, handed_back, lost, last)] == [1, 2, 2, 3, 3]


def test_tokens_rise_with_every_lease_of_a_step(desk: Desk) -> None:
    it = scene(desk, pair())
    tokens = []
    for number in range(4):
        tokens.append(it.claim(claim_id=f"c{number}").token)
        it.hand.fail(it.offered, "returned")
    assert tokens == [1, 2, 3, 4]


def test_a_body_that_ends_without_started_counts_as_an_attempt(desk: Desk) -> None:
    """Under at_least_once the end of an offer is taken: its body has run."""
    it = scene(desk, pair())
    it.hand.fail(it.claim())
    desk.advance(seconds=10)
    assert it.claim(claim_id="next").attempt == 2


# What a lease says -------------------------------------------------------------------------------------------------------


def order() -> Workflow:
    """A diamond with a wait in it."""
    return Workflow(
        "order",
        [
            Step("reserve", run=body),
            Step("paid", after=["reserve"], wait=Wait("paid")),
            Step("price", run=body),
            Step("aside", run=body),
            Step("ship", after=["paid", "price"], run=body, delivery="at_most_once", timeout=timedelta(minutes=5), retry=Retry(max_attempts=2)),
        ],
        revision="7",
        deadline=timedelta(hours=3),
    )


def test_a_lease_says_all_that_its_body_needs(desk: Desk) -> None:
    hand = desk.worker(order())
    run = order().start({"n": 1}, labels={"order": "A-1"}, correlation_id="corr")
    for lease in hand.claim():
        hand.complete(lease, {"by": lease.step}, state={lease.step: True})
    events.signal(run.id, "paid", {"paid": 40})
    desk.advance(seconds=3)
    [lease] = hand.claim()
    row = desk.run(run)
    assert (lease.run_id, lease.workflow, lease.version, lease.revision, lease.step) == (run.id, "order", order().version, "7", "ship")
    assert (lease.attempt, lease.token, lease.delivery) == (1, 1, "at_most_once")
    assert lease.input == {"paid": {"paid": 40}, "price": {"by": "price"}}
    assert lease.steps == {"reserve": {"by": "reserve"}, "price": {"by": "price"}, "paid": {"paid": 40}}
    assert lease.state == {"reserve": True, "price": True, "aside": True}
    assert (lease.labels, lease.correlation_id, lease.idempotency_key) == ({"order": "A-1"}, "corr", f"{run.id}:ship")
    assert (lease.timeout_ms, lease.deadline) == (300_000, row.deadline_at)
    assert (lease.expires_at, lease.expires_in_ms) == (desk.now + timedelta(seconds=10), 10_000)
    assert (lease.trace_id, len(lease.span_id)) == (row.trace_id, 16)
    assert (lease.failure, lease.checkpoints, lease.last, lease.retries) == (None, (), False, True)


def test_the_step_beside_is_no_ancestor(desk: Desk) -> None:
    hand = desk.worker(pair())
    pair().start("payload")
    first, second = hand.claim(2)
    hand.complete(first, "done")
    [again] = hand.claim(2, claim_id=desk.lease(second).claim_id)
    assert (again.id, again.steps, again.input) == (second.id, {}, "payload")


def test_key_and_span_of_a_step_are_the_same_in_every_attempt(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.failed(it)
    first = it.offered
    desk.advance(seconds=10)
    second = it.claim(claim_id="second")
    assert (second.idempotency_key, second.span_id, second.trace_id) == (first.idempotency_key, first.span_id, first.trace_id)
    assert second.id != first.id


def test_the_last_attempt_says_that_it_is(desk: Desk) -> None:
    workflow = job(retry=Retry(max_attempts=3, initial=1, jitter=0))
    hand = desk.worker(workflow)
    workflow.start()
    said = []
    for _ in range(3):
        lease = hand.take()
        said.append(lease.last)
        hand.fail(lease)
        desk.advance(seconds=10)
    assert said == [False, False, True]


def test_a_step_without_payload_is_told_that_it_has_none(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start()
    [without] = hand.claim()
    job().start(None)
    [with_null] = hand.claim()
    assert (without.input, without.has_input) == (None, False)
    assert (with_null.input, with_null.has_input) == (None, True)


# How long a body may take ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("longest", "milliseconds"),
    [(None, 15 * 60_000), (timedelta(minutes=1), 15 * 60_000), (timedelta(hours=2), 2 * 3_600_000), (timedelta(hours=24), 24 * 3_600_000)],
)
def test_a_step_without_a_timeout_has_the_apps_invocation_deadline(desk: Desk, longest: timedelta | None, milliseconds: int) -> None:
    """The longest timeout of the announced workflows, at least 15 minutes."""
    hand = desk.worker(job(), job("slow", timeout=longest))
    job().start()
    [lease] = hand.claim()
    assert lease.timeout_ms == milliseconds


def test_the_invocation_deadline_is_fixed_on_the_lease_at_claim(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start()
    [lease] = hand.claim(claim_id="c")
    desk.worker(job("slow", timeout=timedelta(hours=2)), name="w2")
    assert [again.timeout_ms for again in hand.claim(claim_id="c")] == [lease.timeout_ms]


def test_the_invocation_deadline_shrinks_when_the_slow_workflow_leaves(desk: Desk) -> None:
    hand = desk.worker(job())
    slow = desk.worker(job("slow", timeout=timedelta(hours=2)), name="w2")
    workers.leave(slow.session.worker_id)
    job().start()
    assert hand.claim()[0].timeout_ms == 15 * 60_000


# Heartbeats --------------------------------------------------------------------------------------------------------------


def test_started_gives_a_lease_thirty_seconds(desk: Desk) -> None:
    it = scene(desk, pair())
    it.claim()
    desk.now += timedelta(seconds=5)
    answer = it.hand.start(it.offered)
    assert (answer.expires_at, answer.expires_in_ms) == (desk.now + timedelta(seconds=30), 30_000)


def test_started_again_is_no_second_beginning(desk: Desk) -> None:
    """The timeout counts from the first `started`; a repeated one is as good as a heartbeat."""
    it = scene(desk, pair())
    situations.started(it)
    first = desk.lease(it.offered)
    desk.now += timedelta(seconds=20)
    it.hand.start(it.offered)
    again = desk.lease(it.offered)
    assert (again.started_at, again.timeout_at) == (first.started_at, first.timeout_at)
    assert again.expires_at == desk.now + timedelta(seconds=30)
    assert desk.kinds(it.handle).count("step.started") == 1


def test_heartbeats_keep_a_lease_for_as_long_as_they_come(desk: Desk) -> None:
    it = scene(desk, job(timeout=timedelta(hours=1)))
    it.claim()
    it.hand.start(it.offered)
    for _ in range(20):
        desk.advance(seconds=20)
        it.hand.beat(it.offered)
    assert desk.lease(it.offered).status == LeaseStatus.STARTED
    assert "lease.orphaned" not in desk.kinds(it.handle)


def test_a_heartbeat_between_expiry_and_the_mark_is_in_time(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.started(it)
    desk.now += timedelta(seconds=40)
    it.hand.beat(it.offered)
    desk.tick()
    assert desk.lease(it.offered).status == LeaseStatus.STARTED
    assert "lease.orphaned" not in desk.kinds(it.handle)


def test_heartbeats_do_not_outlive_the_timeout(desk: Desk) -> None:
    it = scene(desk, job(timeout=timedelta(seconds=25)))
    it.claim()
    it.hand.start(it.offered)
    desk.now += timedelta(seconds=20)
    it.hand.beat(it.offered)
    assert desk.lease(it.offered).due_at == desk.lease(it.offered).timeout_at


def test_heartbeats_of_many_leases_are_answered_one_by_one_in_order(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start_many(range(4))
    first, second, third, over = hand.claim(4)
    leases.started([second.id, third.id, over.id])
    hand.complete(over)
    told = leases.heartbeat([Beat(over.id), Beat("nothing"), Beat(third.id), Beat(first.id), Beat(second.id), Beat(third.id)])
    assert [answer.lease_id for answer in told] == [over.id, "nothing", third.id, first.id, second.id, third.id]
    assert [answer.refused.reason if answer.refused else answer.expires_in_ms for answer in told] == ["already_applied", "unknown_lease", *[30_000] * 4]


def test_a_heartbeat_keeps_the_session_heard_of(desk: Desk) -> None:
    """It extends the worker's announcements too: a worker that only works is not forgotten."""
    it = scene(desk, job(timeout=timedelta(hours=1)))
    it.claim()
    it.hand.start(it.offered)
    for _ in range(40):
        desk.now += timedelta(seconds=20)
        it.hand.beat(it.offered)
    maintenance.tick()
    assert Announcement.objects.filter(worker_id=it.hand.session.worker_id).count() == 1
    assert it.hand.claim() == ()


def test_progress_is_stored_with_the_heartbeat_and_shown_until_the_next(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.started(it)
    it.hand.beat(it.offered, {"rows": 10})
    it.hand.beat(it.offered)
    assert json.loads(desk.lease(it.offered).progress or "") == {"rows": 10}
    it.hand.beat(it.offered, {"rows": 20})
    assert json.loads(desk.lease(it.offered).progress or "") == {"rows": 20}


def test_progress_of_a_lease_that_comes_back_is_stored_too(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.orphaned(it)
    it.hand.beat(it.offered, {"rows": 30})
    assert json.loads(desk.lease(it.offered).progress or "") == {"rows": 30}


def test_progress_that_cannot_be_stored_undoes_no_heartbeat(desk: Desk) -> None:
    """An item that can't be stored is answered alone; its neighbours live on."""
    hand = desk.worker(job())
    job().start_many(range(2))
    good, bad = hand.claim(2)
    leases.started([good.id, bad.id])
    desk.now += timedelta(seconds=20)
    told = leases.heartbeat([Beat(bad.id, {"rate": float("nan")}), Beat(good.id, {"rows": 1})])
    assert told[0].refused is not None
    assert (told[0].refused.reason, told[1].refused) == ("invalid", None)
    assert "progress.rate" in told[0].refused.message
    assert desk.lease(good).expires_at == desk.now + timedelta(seconds=30)
    assert json.loads(desk.lease(good).progress or "") == {"rows": 1}
    assert desk.lease(bad).progress is None


@pytest.mark.skipif("__import__('django.db').db.connection.vendor == 'sqlite'", reason="a writer of SQLite holds the whole file")
def test_a_heartbeat_waits_for_no_lease_that_somebody_holds_and_the_others_live_on(desk: Desk, transactional_db: None) -> None:
    """Somebody cancels a run in a transaction of his own that goes on for a while."""
    hand = desk.worker(job())
    runs = {run.id: run for run in job().start_many(range(2))}
    held, free = hand.claim(2)
    leases.started([held.id, free.id])
    until = desk.lease(held).expires_at
    desk.now += timedelta(seconds=29)
    with transaction.atomic():
        runs[held.run_id].cancel()
        stands, extended = begin(lambda: leases.heartbeat([Beat(held.id, {"rows": 1}), Beat(free.id, {"rows": 2})])).result(PATIENCE)
        assert (stands.expires_at, stands.expires_in_ms, stands.refused) == (until, 1_000, None)
        assert (extended.expires_at, extended.expires_in_ms) == (desk.now + timedelta(seconds=30), 30_000)
        desk.now += timedelta(seconds=2)
        begin(desk.tick).result(PATIENCE)
        assert elsewhere(lambda: [desk.lease(lease).status for lease in (held, free)]) == [LeaseStatus.STARTED] * 2
        [late] = begin(lambda: leases.heartbeat([Beat(held.id)])).result(PATIENCE)
        assert late.expires_in_ms == 0
    assert hand.beat(held).refused.reason == "run_terminal"  # type: ignore[union-attr]
    assert json.loads(desk.lease(free).progress or "") == {"rows": 2}


def test_a_heartbeat_locks_no_run_and_journals_nothing(desk: Desk) -> None:
    it = scene(desk, pair())
    situations.started(it)
    before = desk.run(it.handle).journal_seq
    it.hand.beat(it.offered, {"rows": 10})
    assert desk.run(it.handle).journal_seq == before


def test_a_claim_journals_nothing_and_leaves_the_run_alone(desk: Desk) -> None:
    """The lease is its record; `queued → running` is admission's move."""
    it = scene(desk, pair())
    before = Run.objects.filter(pk=it.handle.id).values().get()
    it.claim()
    assert Run.objects.filter(pk=it.handle.id).values().get() == before


def test_the_offered_lease_is_still_there_when_its_worker_was_slow_to_start(desk: Desk) -> None:
    """Nothing was due yet in the engine's eyes: what commits first wins."""
    it = scene(desk, pair())
    it.claim()
    desk.now += timedelta(seconds=15)
    assert it.hand.start(it.offered).refused is None
    desk.tick()
    assert desk.lease(it.offered).status == LeaseStatus.STARTED


def test_a_bad_stored_moment_stops_no_claim(desk: Desk) -> None:
    """B13: a row that no verb would have written isolates itself; the healthy run is served."""
    one_partition()
    hand = desk.worker(job())
    bad, good = job().start(), job().start()
    StepRow.objects.filter(run=bad.id).update(available_at=datetime.max.replace(tzinfo=desk.now.tzinfo), claim_order=F("claim_order"))
    assert [lease.run_id for lease in hand.claim(1)] == [good.id]


def test_completing_in_one_call_ends_every_run_of_the_group(desk: Desk) -> None:
    hand = desk.worker(job())
    handles = job().start_many(range(10))
    offered = hand.claim(10)
    leases.started([lease.id for lease in offered])
    told = outcomes.report([Report(lease.id, Outcome.completed(lease.input)) for lease in offered])
    assert [answer.run for answer in told] == [RunStatus.SUCCEEDED] * 10
    assert [handle.result() for handle in handles] == list(range(10))
