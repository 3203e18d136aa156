"""What a parent was told of its children stays: an operator who opens one again changes nothing of it (a checkpoint that is met never changes)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from ezgh_workflows_django import Retry, Step, Workflow, get_run
from ezgh_workflows_django.engine import parking
from ezgh_workflows_django.models import Checkpoint, Run
from tests.engine.bodies import Family
from tests.engine.conftest import Desk
from tests.engine.graphs import body, brought, end_of, event, job, sleep
from tests.engine.threads import elsewhere
from tests.invariant_guard import broken


def told_of_a_failure(family: Family, count: int = 3) -> list[Any]:
    """The parent is told of its children, the first of which failed; it has gone on, and sleeps."""
    family.start(count)
    family.park()
    first, *others = sorted(family.kids.claim(), key=lambda lease: lease.input)
    family.kids.fail(first, "permanent", "no money")
    for lease in others:
        family.kids.complete(lease, lease.input)
    family.desk.tick()
    told: list[Any] = family.results()
    family.hand.park(family.lease, event("go"))
    return told


def told_again(family: Family) -> Any:
    """What the next pass is given."""
    family.run.signal("go")
    return family.results()


def test_a_child_that_is_retried_later_is_to_its_parent_what_it_was(family: Family) -> None:
    told = told_of_a_failure(family)
    get_run(told[0]["run"]).retry()
    assert told_again(family) == told
    assert [told[0]["status"], told[0]["error"]["message"]] == ["failed", "no money"]
    family.kids.work_off()
    family.desk.tick()
    family.hand.park(family.lease, event("go", pos=2), sleep("nap", 0))
    assert (get_run(told[0]["run"]).status, brought(family.hand.take(), "all").output, broken()) == ("succeeded", told, [])


def test_a_child_that_is_ended_by_hand_later_is_to_its_parent_what_it_was(family: Family) -> None:
    told = told_of_a_failure(family)
    get_run(told[0]["run"]).resolve("work", "by hand", "paid on the phone")
    assert get_run(told[0]["run"]).result() == "by hand"
    assert told_again(family) == told


def test_a_child_that_had_succeeded_keeps_its_output_for_its_parent(family: Family) -> None:
    told = told_of_a_failure(family)
    get_run(told[2]["run"]).retry("work")
    family.kids.complete(family.kids.take(), "another")
    assert (told_again(family), told[2]["output"]) == (told, 2)


def test_a_child_that_is_opened_several_times_later_is_to_its_parent_what_it_first_was(family: Family) -> None:
    told = told_of_a_failure(family)
    child = get_run(told[0]["run"])
    child.retry()
    family.kids.fail(family.kids.take(), "permanent", "still no money")
    child.retry()
    family.kids.complete(family.kids.take(), "at last")
    assert told_again(family) == told


def test_one_child_alone_is_to_its_parent_what_it_was(family: Family) -> None:
    [run_id] = family.hand.child(family.lease, "bill", family.child).runs
    family.park("bill")
    family.kids.fail(family.kids.take(), "permanent", "no money")
    family.desk.tick()
    told = family.results("bill")
    family.hand.park(family.lease, event("go", pos=2))
    get_run(run_id).retry()
    family.kids.work_off()
    family.run.signal("go")
    assert (family.results("bill"), told["status"]) == (told, "failed")


def test_a_child_that_is_retried_while_its_parent_still_waits_is_told_as_it_ends_then(family: Family) -> None:
    ids = family.start(2)
    family.park()
    first, second = sorted(family.kids.claim(), key=lambda lease: lease.input)
    family.kids.fail(first, "permanent", "no money")
    get_run(ids[0]).retry()
    family.kids.complete(second, "second")
    family.desk.tick()
    assert family.run.phase == "waiting"
    family.kids.complete(family.kids.take(), "first")
    family.desk.tick()
    assert [each["output"] for each in family.results()] == ["first", "second"]
    family.hand.park(family.lease, event("go"))
    get_run(ids[0]).retry("work")
    family.kids.fail(family.kids.take(), "permanent", "too late")
    assert [each["output"] for each in told_again(family)] == ["first", "second"]


def test_children_that_nobody_opened_again_are_copied_nowhere(family: Family) -> None:
    told_of_a_failure(family)
    assert (Checkpoint.objects.get(name="all").episodes, Checkpoint.objects.get(name="all").output) == (None, None)
    assert not Run.objects.exclude(last_end=None).exists()


def test_a_run_that_is_nobodys_child_keeps_no_end_when_it_is_retried(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start(1)
    hand.fail(hand.take(), "permanent")
    run.retry()
    assert desk.run(run).last_end is None


def test_children_of_a_step_that_began_anew_keep_no_end(family: Family) -> None:
    [old] = family.start(1)
    family.kids.fail(family.kids.take(), "permanent")
    family.hand.fail(family.lease, "permanent")
    family.run.retry()
    get_run(old).retry()
    assert Run.objects.get(pk=old).last_end is None


def test_a_parent_in_a_new_episode_still_has_what_its_other_step_was_told(desk: Desk, commits: Any) -> None:
    parent: Any = Workflow("two", [Step("work", run=body), Step("beside", run=body, retry=Retry(1, exhausted="pause"))])
    family = Family.__new__(Family)
    family.desk, family.workflow, family.child = desk, parent, job("kid")
    family.hand, family.kids = desk.worker(parent), desk.worker(family.child, name="kids")
    family.run = parent.start(1)
    leases = {lease.step: lease for lease in family.hand.claim()}
    family.hand.start(leases["work"])
    family.lease = leases["work"]
    [run_id] = family.start(1)
    family.park()
    commits(family.kids.fail, family.kids.take(), "permanent", "no money")
    family.lease = family.hand.take()
    told = brought(family.lease, "all").output
    family.hand.park(family.lease, event("go"))
    family.hand.fail(leases["beside"], "permanent")
    family.run.resume()
    get_run(run_id).retry()
    family.kids.work_off()
    family.run.signal("go")
    again = {lease.step: lease for lease in family.hand.claim()}
    assert brought(again["work"], "all").output == told


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer: nobody opens a run while another is being told")
@pytest.mark.django_db(transaction=True)
def test_a_child_that_is_opened_while_its_parent_is_being_told_is_told_as_it_was(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent's transaction has seen it over and has not committed: the child's own can't see that it was told."""
    family = Family(desk)
    [run_id] = family.start(1)
    family.kids.fail(family.kids.take(), "permanent", "no money")
    meet, retry = parking._meet, [get_run(run_id).retry]

    def meet_and_retry(*given: Any) -> bool:
        elsewhere(retry.pop())
        return meet(*given)

    monkeypatch.setattr(parking, "_meet", meet_and_retry)
    assert (family.park(), retry) == ("ready", [])
    monkeypatch.undo()
    assert get_run(run_id).status == "running"
    assert [(each["status"], each["error"]["message"]) for each in family.results()] == [("failed", "no money")]


def test_of_many_children_one_that_is_opened_again_changes_none(desk: Desk) -> None:
    family = Family(desk)
    family.start(200)
    family.park()
    while family.kids.work_off():
        pass
    desk.tick()
    told = family.results()
    assert (len(told), {each["status"] for each in told}) == (200, {"succeeded"})
    family.hand.park(family.lease, end_of("all"), event("go"))
    get_run(told[7]["run"]).retry("work")
    assert told_again(family) == told
