"""What an end means above and below: children left behind are cancelled, a parent is told, and a lost process changes neither (cases B56, B65)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from ezgh_workflows_django import Retry, Step, Workflow, get_run
from ezgh_workflows_django.engine import children, invariants, kin, retention
from ezgh_workflows_django.engine.locking import hold
from ezgh_workflows_django.models import Lease, Run
from tests.engine.bodies import Family
from tests.engine.conftest import Desk
from tests.engine.graphs import body, brought, end_of, event, job, why
from tests.engine.threads import elsewhere


def tree(desk: Desk, levels: int, width: int, **options: Any) -> tuple[Any, Any]:
    """A run of `job` with so many levels below it, each run with so many children; the hand that works on all of them, and the topmost run."""
    hand = desk.worker(job(**options))
    run = job(**options).start()
    for level in range(levels):
        for lease in hand.claim(100):
            hand.start(lease)
            assert hand.children(lease, "all", "job", [level] * width).refused is None
            hand.park(lease, end_of("all"))
    for lease in hand.claim(100):
        hand.start(lease)
    return hand, run


def statuses() -> dict[int, set[str]]:
    """The statuses of runs, by depth."""
    found: dict[int, set[str]] = {}
    for depth, status in Run.objects.values_list("depth", "status"):
        found.setdefault(depth, set()).add(status)
    return found


# Down


def test_cancel_ends_three_levels_in_the_callers_process(desk: Desk, commits: Any) -> None:
    """B65 (b)."""
    hand, run = tree(desk, 3, 2)
    assert Lease.objects.filter(live_step__isnull=False).count() == 8
    commits(run.cancel, "no more")
    assert statuses() == {depth: {"cancelled"} for depth in range(4)}
    assert Run.objects.count() == 15
    assert Lease.objects.filter(live_step__isnull=False).count() == 0
    assert {entry for child in Run.objects.filter(depth=3) for entry in desk.kinds(child) if "cancel" in entry} >= {"run.cancel_requested", "run.cancelled"}
    assert hand.claim() == ()


def test_cancel_ends_three_levels_by_maintenance_where_the_caller_was_lost(desk: Desk) -> None:
    """Nothing that follows a commit is done here."""
    _, run = tree(desk, 3, 2)
    run.cancel()
    assert statuses() == {0: {"cancelled"}, 1: {"running"}, 2: {"running"}, 3: {"running"}}
    for _ in range(4):
        desk.advance(seconds=1)
    assert statuses() == {depth: {"cancelled"} for depth in range(4)}
    assert not Run.objects.filter(kin_at__isnull=False).exists()


def test_a_parent_that_times_out_ends_what_is_below_it(desk: Desk, commits: Any) -> None:
    _, run = tree(desk, 2, 2, deadline=timedelta(seconds=25))
    commits(desk.advance, seconds=25)
    assert run.status == "timed_out"
    assert statuses()[0] == {"timed_out"}
    assert not Run.objects.live().exists()


@pytest.mark.parametrize("class_", ["permanent", "error"])
def test_a_parent_that_fails_ends_its_children_before_it_compensates(desk: Desk, commits: Any, class_: str) -> None:
    family = Family(desk, parent=job(on_failure=body))
    family.start(3)
    commits(family.hand.fail, family.lease, class_)
    assert {run.status for run in family.children} == {"cancelled"}
    [lease] = family.hand.claim()
    family.hand.start(lease)
    assert (lease.step, family.hand.children(lease, "undo", family.child, [1]).refused) == ("on_failure", None)
    commits(desk.tick)
    assert sorted(run.status for run in family.children) == ["cancelled"] * 3 + ["running"]


def test_a_siblings_failure_ends_the_children_of_the_step_that_is_cut_short(desk: Desk, commits: Any) -> None:
    pair: Any = Workflow("pair", [Step("work", run=body), Step("beside", run=body)])
    hand, kids = desk.worker(pair), desk.worker(job("kid"), name="kids")
    run = pair.start()
    beside, work = sorted(hand.claim(), key=lambda lease: lease.step)
    [child] = hand.child(work, "bill", "kid").runs
    [lease] = kids.claim()
    commits(hand.fail, beside, "permanent")
    assert (run.status, Run.objects.get(pk=child).status) == ("failed", "cancelled")
    assert why(kids.complete(lease)) == "run_terminal"


def test_a_step_that_succeeds_leaves_no_children_behind_and_its_siblings_keep_theirs(desk: Desk, commits: Any) -> None:
    pair: Any = Workflow("pair", [Step("work", run=body), Step("beside", run=body)])
    hand = desk.worker(pair)
    desk.worker(job("kid"), name="kids")
    pair.start()
    leases = {lease.step: lease for lease in hand.claim()}
    [left] = hand.child(leases["work"], "bill", "kid").runs
    [kept] = hand.child(leases["beside"], "bill", "kid").runs
    commits(hand.complete, leases["work"])
    assert (Run.objects.get(pk=left).status, Run.objects.get(pk=kept).status) == ("cancelled", "running")


def test_retry_starts_children_anew_and_cancels_the_old_ones(desk: Desk, commits: Any) -> None:
    family = Family(desk)
    old = family.start(2)
    family.hand.fail(family.lease, "permanent")  # what follows its commit is lost
    commits(family.run.retry)
    family.lease = family.hand.take()
    assert family.lease.checkpoints == ()
    new = family.start(2)
    assert set(new).isdisjoint(old)
    desk.advance(seconds=1)
    assert {str(pk): status for pk, status in Run.objects.filter(depth=1).values_list("pk", "status")} == {
        **dict.fromkeys(old, "cancelled"),
        **dict.fromkeys(new, "running"),
    }
    family.park()
    family.kids.work_off()
    desk.tick()
    assert [each["run"] for each in family.results()] == list(new)


def test_the_end_of_an_old_child_does_not_wake_the_new_episode(desk: Desk) -> None:
    family = Family(desk)
    family.start(1)
    [old] = family.kids.claim()
    family.hand.fail(family.lease, "permanent")
    family.run.retry()
    family.lease = family.hand.take()
    family.start(1)
    family.park()
    family.kids.complete(old)
    desk.advance(seconds=1)
    assert family.run.phase == "waiting"


def test_more_children_than_one_batch_are_ended_by_the_caller_and_maintenance_together(desk: Desk, commits: Any) -> None:
    family = Family(desk)
    family.start(kin.BATCH * 2 + 30)
    commits(family.run.cancel)
    assert family.children.filter(status="cancelled").count() == kin.BATCH
    desk.tick()
    assert set(family.children.values_list("status", flat=True)) == {"cancelled"}
    desk.advance(seconds=1)
    assert Run.objects.filter(kin_at__isnull=False).count() == 0


def test_a_child_can_be_retried_after_its_parents_end_and_then_goes_its_own_way(desk: Desk, commits: Any) -> None:
    family = Family(desk)
    [child] = family.start(1)
    family.kids.fail(family.kids.take(), "permanent")
    commits(family.hand.complete, family.lease)
    desk.advance(seconds=5)
    get_run(child).retry()
    desk.advance(seconds=5)
    assert (invariants.violations(), family.run.status, get_run(child).status) == ([], "succeeded", "running")
    family.kids.complete(family.kids.take())
    assert get_run(child).status == "succeeded"


def test_a_child_that_was_retried_after_its_parents_end_ends_where_the_parent_begins_anew(desk: Desk, commits: Any) -> None:
    family = Family(desk)
    [child] = family.start(1)
    family.kids.fail(family.kids.take(), "permanent")
    family.hand.fail(family.lease, "permanent")
    desk.advance(seconds=5)
    get_run(child).retry()
    desk.advance(seconds=5)
    commits(family.run.retry)
    assert get_run(child).status == "cancelled"


# Up


def test_a_parent_is_told_by_its_last_child_in_the_callers_process(desk: Desk, commits: Any) -> None:
    family = Family(desk)
    family.start(2)
    family.park()
    first, last = family.kids.claim()
    commits(family.kids.complete, first)
    assert family.run.phase == "waiting"
    commits(family.kids.complete, last)
    assert family.run.phase == "queued"


def test_a_parent_is_told_by_maintenance_where_the_process_of_its_last_child_was_lost(desk: Desk, commits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family(desk)
    family.start(2)
    family.park()
    with monkeypatch.context() as lost:
        lost.setattr(kin, "after_end", lambda runs: None)
        commits(family.kids.work_off)
    assert family.run.phase == "waiting"
    desk.tick()
    assert (family.run.phase, Run.objects.filter(kin_at__isnull=False).count()) == ("queued", 0)


def test_a_parent_that_can_not_be_told_now_is_told_later(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family(desk)
    family.start(1)
    family.park()
    family.kids.work_off()
    with monkeypatch.context() as broken:
        broken.setattr(children, "tell_parent", lambda siblings: 1 / 0)
        desk.tick()
    assert family.run.phase == "waiting"
    desk.advance(seconds=1)
    assert family.run.phase == "queued"


@pytest.mark.parametrize("how", ["complete", "fail", "cancel", "pause and complete"])
def test_however_its_child_ends_a_parent_goes_on(desk: Desk, commits: Any, how: str) -> None:
    family = Family(desk)
    family.start(1)
    family.park()
    lease = family.kids.take()
    child: Any = Run.objects.get(parent=family.run.id)
    handle = get_run(str(child.pk))
    calls = {
        "complete": lambda: family.kids.complete(lease),
        "fail": lambda: family.kids.fail(lease, "permanent"),
        "cancel": handle.cancel,
        "pause and complete": lambda: (handle.pause(), family.kids.complete(lease)),
    }
    commits(calls[how])
    assert family.run.phase == "queued"


def test_a_child_that_needs_attention_keeps_its_parent_waiting(desk: Desk) -> None:
    family = Family(desk, job("kid", retry=Retry(exhausted="pause")))
    family.start(1)
    family.park()
    family.kids.fail(family.kids.take())
    desk.advance(seconds=1)
    assert (family.children[0].status, family.run.phase) == ("paused", "waiting")


def test_a_child_whose_parent_is_gone_ends_as_any_other(desk: Desk, commits: Any) -> None:
    family = Family(desk)
    family.start(1)
    lease = family.kids.take()
    Run.objects.filter(pk=family.run.id).update(kin_at=None)
    commits(family.kids.complete, lease)
    family.hand.complete(family.lease)
    desk.tick()
    family.desk.now += timedelta(days=31)
    retention.run_once(desk.now, 10)
    retention.run_once(desk.now, 10)
    assert Run.objects.count() == 0


def test_retention_keeps_what_is_not_told_yet(desk: Desk) -> None:
    """A run whose kin have not been seen to is not deleted, however old it is."""
    family = Family(desk)
    family.start(1)
    family.park()
    family.kids.work_off()
    family.run.cancel()
    desk.now += timedelta(days=40)
    retention.run_once(desk.now, 10)
    assert Run.objects.count() == 2
    desk.tick()
    desk.tick()
    assert Run.objects.count() == 0


# Beside others


@pytest.mark.usefixtures("transactional_db")
def test_a_child_that_somebody_holds_is_passed_over_and_ended_by_the_next_tick(desk: Desk) -> None:
    if not connection.features.has_select_for_update_skip_locked:
        pytest.skip("on SQLite a writer holds the whole file: nobody is passed over")
    family = Family(desk)
    held, *_ = family.start(3)
    with transaction.atomic():
        hold(held)
        elsewhere(family.run.cancel)
        assert sorted(elsewhere(lambda: list(family.children.values_list("status", flat=True)))) == ["cancelled", "cancelled", "running"]
        elsewhere(desk.tick)
        assert elsewhere(lambda: family.children.filter(ended_at=None).count()) == 1
    desk.advance(seconds=1)
    assert set(family.children.values_list("status", flat=True)) == {"cancelled"}
    desk.advance(seconds=1)
    assert not Run.objects.filter(kin_at__isnull=False).exists()


def test_a_body_that_waits_for_children_and_an_event_takes_both(desk: Desk, commits: Any) -> None:
    family = Family(desk)
    family.start(1)
    family.hand.park(family.lease, end_of("all"), event("stop"), mode="any")
    commits(family.run.signal, "stop", "now")
    family.lease = family.hand.take()
    assert (brought(family.lease, "stop").output, brought(family.lease, "all").is_open) == ("now", True)
    commits(family.hand.complete, family.lease)
    assert family.children[0].status == "cancelled"
