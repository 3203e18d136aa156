"""Child runs: each started once, told to their parent in order, bounded in depth and in cost (cases B62, B65)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Final

import pytest

from ezgh_workflows_django import Step, Wait, Workflow, emit, get_run
from ezgh_workflows_django.engine import retention
from ezgh_workflows_django.models import Checkpoint, JournalEntry, Run, RunLabel
from ezgh_workflows_django.protocol.messages import Lease as Offered
from tests.engine.bodies import Family
from tests.engine.conftest import Desk
from tests.engine.graphs import body, brought, end_of, event, job, sleep, why

# Once per name


def test_children_of_a_name_are_started_once_and_given_back_in_order(family: Family) -> None:
    first = family.start(3)
    assert family.start(3) == first
    assert [(str(run.pk), run.payload) for run in family.children] == [(run_id, str(n)) for n, run_id in enumerate(first)]


def test_a_batch_goes_in_slices_and_a_slice_that_overlaps_starts_only_what_is_missing(family: Family) -> None:
    first = family.start(3)
    both = family.start(4, first=1)
    assert (both[:2], len(set(first + both)), Checkpoint.objects.get().children) == (first[1:], 5, 5)
    assert [run.payload for run in family.children] == ["0", "1", "2", "3", "4"]


def test_after_the_worker_was_killed_the_same_calls_start_no_child_twice(family: Family) -> None:
    """B65 (d)."""
    first = family.start(2)
    family.lose()
    assert family.start(2) + family.start(2, first=2) == first + tuple(str(run.pk) for run in family.children[2:])
    assert family.children.count() == 4


def test_a_slice_that_would_leave_a_gap_is_refused(family: Family) -> None:
    family.start(2)
    answer = family.hand.children(family.lease, "all", family.child, [3], first=3)
    assert (why(answer), family.children.count()) == ("invalid", 2)


def test_two_names_are_two_sets_of_children(family: Family) -> None:
    assert set(family.start(2, "one")).isdisjoint(family.start(2, "two"))


def test_one_child_under_a_name_is_told_as_one_object(family: Family) -> None:
    [run_id] = family.hand.child(family.lease, "bill", family.child, {"image": 1}).runs
    family.park("bill")
    family.kids.work_off()
    family.desk.tick()
    assert family.results("bill") == {"run": run_id, "status": "succeeded", "output": {"image": 1}}


# What they inherit


def test_a_child_has_its_parents_labels_correlation_trace_priority_and_deadline(desk: Desk) -> None:
    parent = job(deadline=timedelta(hours=1))
    family = Family(desk, job("kid", deadline=timedelta(hours=5)), parent, labels={"order": "A-1"}, correlation_id="A-1", priority=7)
    desk.advance(minutes=0)
    family.start(2)
    above = desk.run(family.run)
    for run in family.children:
        inherited = (run.labels, run.correlation_id, run.trace_id, run.priority, run.deadline_at, run.app_id)
        assert inherited == (above.labels, "A-1", above.trace_id, 7, above.deadline_at, above.app_id)
        assert (run.depth, run.status, str(run.parent_id)) == (1, "running", family.run.id)
    assert RunLabel.objects.filter(name="order", value="A-1").count() == 3
    assert {lease.labels["order"] for lease in family.kids.claim()} == {"A-1"}


def test_a_child_whose_own_deadline_is_earlier_keeps_it(desk: Desk) -> None:
    family = Family(desk, job("kid", deadline=timedelta(minutes=1)), job(deadline=timedelta(hours=1)))
    family.start(1)
    assert family.children[0].deadline_at == desk.now + timedelta(minutes=1)


def test_a_compensations_children_are_not_bound_by_a_deadline_that_has_passed(desk: Desk) -> None:
    family = Family(desk, parent=job(deadline=timedelta(seconds=20), on_failure=body))
    desk.advance(seconds=20)
    family.hand.fail(family.lease, "returned")
    family.lease = family.hand.take()
    family.start(1)
    assert (family.lease.step, family.children[0].deadline_at, family.children[0].status) == ("on_failure", None, "running")


# What they come to


def test_results_come_in_order_and_each_says_how_its_child_ended(desk: Desk) -> None:
    family = Family(desk, job("kid", deadline=timedelta(hours=1)))
    ids = family.start(5)
    family.park()
    offered = {lease.input: lease for lease in family.kids.claim()}
    [family.kids.start(lease) for lease in offered.values()]
    family.kids.complete(offered[3], {"late": False})
    family.kids.fail(offered[1], "card_declined", "no money")
    family.kids.complete(offered[0], None)
    desk.tick()
    assert family.run.phase == "waiting"
    get_run(ids[2]).cancel("not needed")
    desk.advance(hours=1)
    desk.tick()
    told = family.results()
    assert [each["run"] for each in told] == list(ids)
    assert [each["status"] for each in told] == ["succeeded", "failed", "cancelled", "succeeded", "timed_out"]
    assert [each.get("output", "none") for each in told] == [None, "none", "none", {"late": False}, "none"]
    assert [each["error"]["class"] for each in told if "error" in each] == ["card_declined", "cancelled", "deadline"]
    assert [told[1]["error"]["message"], told[2]["error"]["message"]] == ["no money", "not needed"]


def test_a_child_of_several_last_steps_gives_an_object_of_their_outputs(desk: Desk) -> None:
    family = Family(desk, Workflow("kid", [Step("a", run=body), Step("b", run=body)]))
    family.start(1)
    family.park()
    family.kids.work_off()
    desk.tick()
    assert family.results()[0]["output"] == {"a": 0, "b": 0}


def test_a_childs_on_failure_runs_where_it_fails_and_its_parent_sees_the_failure(desk: Desk) -> None:
    """B64."""
    family = Family(desk, job("kid", on_failure=body))
    family.start(2)
    family.park()
    bad, good = sorted(family.kids.claim(), key=lambda lease: lease.input)
    family.kids.fail(bad, "permanent", "broken")
    family.kids.complete(good)
    desk.tick()
    assert family.run.phase == "waiting"
    family.kids.complete(family.kids.take())
    desk.tick()
    told = family.results()
    assert [(each["status"], each.get("error", {}).get("message")) for each in told] == [("failed", "broken"), ("succeeded", None)]
    assert sorted(Run.objects.filter(parent=family.run.id).values_list("steps__name", flat=True)) == ["on_failure", "work", "work"]


def test_a_child_that_is_over_before_its_parent_parks_does_not_leave_it_waiting(family: Family) -> None:
    """B65 (c)."""
    family.start(2)
    family.kids.work_off()
    assert family.park() == "ready"
    assert [each["output"] for each in family.results()] == [0, 1]


def test_a_child_that_is_over_as_it_starts_does_not_leave_its_parent_waiting(desk: Desk) -> None:
    """Its event is there: it ends in the very transaction that starts it."""
    family = Family(desk, Workflow("kid", [Step("call", wait=Wait("called", lookback=timedelta(hours=1)))]))
    emit("called", payload="x")
    desk.now += timedelta(seconds=1)
    family.start(1)
    assert family.children[0].status == "succeeded"
    assert family.park() == "ready"
    assert family.results()[0]["output"] == "x"


def test_an_empty_batch_is_met_at_once_with_an_empty_list(family: Family) -> None:
    assert (family.start(0), family.park(), family.results()) == ((), "ready", [])


def test_a_batch_that_is_over_takes_no_more_children_and_gives_back_those_it_has(family: Family) -> None:
    first = family.start(2)
    family.kids.work_off()
    family.park()
    family.lease = family.hand.take()
    assert family.start(2) == first
    assert why(family.hand.children(family.lease, "all", family.child, [2], first=2)) == "invalid"


def test_parked_on_any_the_first_child_wakes_its_parent(family: Family) -> None:
    for name in ("a", "b"):
        family.hand.child(family.lease, name, family.child, name)
    family.hand.park(family.lease, end_of("a"), end_of("b"), mode="any")
    [lease] = [lease for lease in family.kids.claim() if lease.input == "b"]
    family.kids.complete(lease, "first")
    family.desk.tick()
    again = family.hand.take()
    assert (brought(again, "b").output["output"], brought(again, "a").is_open) == ("first", True)


def test_a_paused_parent_is_told_and_goes_on_when_it_is_resumed(family: Family) -> None:
    family.start(1)
    family.park()
    family.run.pause()
    family.kids.work_off()
    family.desk.tick()
    assert family.hand.claim() == ()
    family.run.resume()
    assert family.results()[0]["output"] == 0


# What is refused


def test_a_run_that_starts_itself_stops_at_the_depth_that_is_allowed(desk: Desk) -> None:
    """B65 (a)."""
    hand = desk.worker(job())
    job().start(0)
    for depth in range(1, 33):
        assert hand.child(hand.take(), "again", "job", depth).refused is None
    deepest = hand.take()
    refused = hand.child(deepest, "again", "job", 33)
    assert why(refused) == "invalid"
    assert refused.refused is not None
    assert "32 runs deep" in refused.refused.message
    assert (Run.objects.count(), Run.objects.order_by("-depth")[0].depth) == (33, 32)
    assert hand.complete(deepest).run == "succeeded"


REFUSED: Final[dict[str, dict[str, Any]]] = {
    "an unknown workflow": {"workflow": "nobody"},
    "a payload with NaN": {"payloads": [1, float("nan"), 3]},
    "a payload with NUL": {"payloads": [1, "a\0b"]},
    "a payload too large": {"payloads": ["x" * (1024 * 1024 + 1)]},
    "no name": {"name": ""},
    "a name too long": {"name": "x" * 256},
    "too many at once": {"payloads": range(1_001)},
    "no place": {"pos": -1},
    "a first below 0": {"first": -1},
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_call_that_can_not_be_is_refused_whole_and_starts_nothing(family: Family, fault: str) -> None:
    asked: dict[str, Any] = {"name": "all", "workflow": family.child, "payloads": [1, 2, 3], **REFUSED[fault]}
    answer = family.hand.children(family.lease, **asked)
    reason = "payload_too_large" if fault == "a payload too large" else "invalid"
    assert (why(answer), answer.runs, family.children.count(), Checkpoint.objects.count()) == (reason, (), 0, 0)
    assert not family.desk.run(family.run).has_children
    assert family.hand.complete(family.lease).run == "succeeded"


def test_children_can_not_take_a_name_that_is_stored_as_something_else(family: Family) -> None:
    family.hand.checkpoint(family.lease, "all", 1)
    assert why(family.hand.children(family.lease, "all", family.child, [1])) == "invalid"
    family.hand.child(family.lease, "one", family.child)
    assert why(family.hand.children(family.lease, "one", family.child, [1])) == "invalid"


def test_children_for_an_unknown_lease_are_refused_as_that(family: Family) -> None:
    family.lease = Offered(**{**{name: getattr(family.lease, name) for name in family.lease.__slots__}, "id": "nobody's"})
    assert why(family.hand.children(family.lease, "all", family.child, [1])) == "unknown_lease"


# Retention


def test_a_child_is_kept_while_its_parent_may_read_what_it_came_to(family: Family) -> None:
    """B65 (e)."""
    family.start(1)
    family.park()
    family.kids.work_off()
    family.run.pause()  # it is not told: what it reads, it reads much later
    family.desk.tick()
    family.desk.now += timedelta(days=40)
    retention.run_once(family.desk.now, 100)
    assert family.children.count() == 1
    family.run.resume()
    assert family.results()[0]["output"] == 0
    family.hand.complete(family.lease)
    family.desk.tick()
    family.desk.now += retention.LATEST  # what had to be kept is looked at again within that
    retention.run_once(family.desk.now, 100)
    assert (family.children.count(), Run.objects.filter(pk=family.run.id).count()) == (0, 1)


def test_a_parent_is_kept_while_a_child_is_at_work(desk: Desk) -> None:
    family = Family(desk, job("kid", on_failure=body))
    family.start(1)
    [lease] = family.kids.claim()
    family.kids.fail(lease, "permanent")
    assert family.run.cancel() == "cancelled"
    Run.objects.filter(parent=family.run.id).update(kin_at=None)
    Run.objects.filter(pk=family.run.id).update(kin_at=None)
    desk.now += timedelta(days=40)
    assert retention.due(desk.now, timedelta(days=30)).count() == 0
    Run.objects.filter(pk=family.run.id).update(kin_at=desk.now)
    desk.tick()
    desk.advance(seconds=1)
    assert family.children[0].status == "failed"


def test_the_journal_tells_of_children_in_one_row_that_names_some(family: Family) -> None:
    family.start(30)
    [entry] = JournalEntry.objects.filter(run=family.run.id, kind="children.started")
    told = json.loads(entry.data)
    assert (told["name"], told["workflow"], told["count"], len(told["runs"])) == ("all", "kid", 30, 20)


def test_a_parent_may_wait_for_children_an_event_and_a_sleep_together(family: Family) -> None:
    family.start(1)
    family.hand.park(family.lease, end_of("all"), event("go"), sleep("nap", 60))
    family.run.signal("go", 1)
    family.kids.work_off()
    family.desk.tick()
    assert family.run.phase == "sleeping"
    family.desk.advance(seconds=60)
    assert family.results()[0]["output"] == 0
