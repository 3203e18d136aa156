"""A body's own ORM writes and its checkpoint, or its outcome, in one transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, transaction

from ezgh_workflows_django.engine.atomically import atomically
from ezgh_workflows_django.engine.transactions import LostRace
from ezgh_workflows_django.models import Checkpoint
from ezgh_workflows_django.protocol.durable import Record
from ezgh_workflows_django.protocol.messages import Lease as Offered
from ezgh_workflows_django.protocol.outcomes import Outcome, Report
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import job, why
from tests.engine.threads import PATIENCE, elsewhere, together


@pytest.fixture
def at_work(desk: Desk) -> tuple[Hand, Offered]:
    """A worker and the lease it works on."""
    hand = desk.worker(job())
    job().start()
    return hand, hand.take()


def insert(lease: Offered, name: str = "paid", **rest: Any) -> Record:
    """A body that writes one row, and its result."""
    group = Group.objects.create(name=name)
    return Record(**{"lease_id": lease.id, "name": name, "pos": 1, "output": group.pk, **rest})


def rows() -> tuple[list[str], list[str]]:
    """What is stored: the body's rows, and the checkpoints."""
    return list(Group.objects.values_list("name", flat=True)), list(Checkpoint.objects.values_list("name", flat=True))


def test_the_row_and_the_checkpoint_are_one_commit(transactional_db: None, at_work: tuple[Hand, Offered]) -> None:
    _, lease = at_work
    seen: list[Any] = []

    def work() -> Record:
        done = insert(lease)
        transaction.on_commit(lambda: seen.append(elsewhere(rows)))
        return done

    stored = atomically(work)
    assert (stored.refused, stored.output) == (None, Group.objects.get().pk)
    assert seen == [(["paid"], ["paid"])]


def test_the_row_and_the_outcome_are_one_commit(at_work: tuple[Hand, Offered]) -> None:
    _, lease = at_work

    def work() -> Report:
        insert(lease)
        return Report(lease.id, Outcome.completed("done"))

    assert atomically(work).run == "succeeded"
    assert rows() == (["paid"], [])


def test_a_fenced_lease_rolls_the_row_back(desk: Desk, at_work: tuple[Hand, Offered]) -> None:
    _, lease = at_work
    desk.advance(seconds=31)
    desk.advance(seconds=31)
    hooks: list[str] = []

    def work() -> Record:
        transaction.on_commit(lambda: hooks.append("ran"))
        return insert(lease)

    assert why(atomically(work)) == "fenced"
    assert (rows(), hooks) == (([], []), [])


def test_what_is_lost_while_the_body_runs_rolls_the_row_back(desk: Desk, at_work: tuple[Hand, Offered]) -> None:
    """The lease is looked at after the body, before the commit."""
    hand, lease = at_work

    def work() -> Record:
        done = insert(lease)
        hand.fail(lease, "returned")
        return done

    assert why(atomically(work)) == "fenced"
    assert (rows(), desk.lease(lease).status) == (([], []), "started")


@pytest.mark.parametrize("rest", [{"output": float("nan")}, {"name": ""}], ids=["NaN", "no name"])
def test_a_result_that_can_not_be_stored_rolls_the_row_back(at_work: tuple[Hand, Offered], rest: dict[str, Any]) -> None:
    _, lease = at_work
    assert why(atomically(lambda: insert(lease, **rest) if "output" in rest else Record(lease_id=insert(lease).lease_id, pos=1, **rest))) == "invalid"
    assert rows() == ([], [])


def test_a_result_that_is_stored_already_leaves_nothing_of_the_second_time(at_work: tuple[Hand, Offered]) -> None:
    """The first answer was lost, and the body ran again."""
    _, lease = at_work
    first = atomically(lambda: insert(lease))
    again = atomically(lambda: Record(lease_id=lease.id, name="paid", pos=1, output=Group.objects.create(name="twice").pk))
    assert (again.output, again.repeated, again.refused) == (first.output, True, None)
    assert rows() == (["paid"], ["paid"])


def test_what_the_body_raises_comes_through_and_leaves_nothing(at_work: tuple[Hand, Offered]) -> None:
    _, lease = at_work

    def work() -> Record:
        insert(lease)
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        atomically(work)
    assert rows() == ([], [])


@pytest.mark.usefixtures("transactional_db")
@pytest.mark.parametrize("conflict", [lambda: LostRace("moved"), lambda: OperationalError("database is locked")], ids=["lost race", "locked"])
def test_after_a_conflict_the_whole_is_done_again_and_stored_once(at_work: tuple[Hand, Offered], conflict: Callable[[], Exception]) -> None:
    _, lease = at_work
    tries: list[int] = []
    hooks: list[int] = []

    def work() -> Record:
        tries.append(len(tries))
        transaction.on_commit(partial(hooks.append, tries[-1]))
        done = insert(lease)
        if len(tries) < 3:
            raise conflict()
        return done

    assert atomically(work).refused is None
    assert (tries, hooks, rows()) == ([0, 1, 2], [2], (["paid"], ["paid"]))


@pytest.mark.usefixtures("transactional_db")
def test_two_bodies_that_deadlock_are_both_stored_once(desk: Desk) -> None:
    """A real deadlock where the database has them: each body holds a row that the other wants."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer: nothing can deadlock")
    hand = desk.worker(job())
    job().start_many(range(2))
    leases = hand.claim()
    [hand.start(lease) for lease in leases]
    first, second = Group.objects.create(name="first"), Group.objects.create(name="second")

    meet = threading.Barrier(2)
    tried: list[str] = []

    def body(lease: Offered, order: tuple[int, int]) -> Record:
        tried.append(lease.id)
        list(Group.objects.select_for_update().filter(pk=order[0]))
        if tried.count(lease.id) == 1:
            meet.wait(PATIENCE)
        list(Group.objects.select_for_update().filter(pk=order[1]))
        return insert(lease, f"by {lease.run_id}")

    orders = ((first.pk, second.pk), (second.pk, first.pk))
    answers = together([partial(atomically, partial(body, lease, order)) for lease, order in zip(leases, orders, strict=True)])
    assert ([answer.refused for answer in answers], len(tried) >= 3) == ([None, None], True)
    assert Group.objects.filter(name__startswith="by ").count() == Checkpoint.objects.count() == 2
