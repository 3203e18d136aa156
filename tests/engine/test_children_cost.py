"""What children cost their parent: as many statements for a thousand as for ten (case B62)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django import Sleep, Step, Workflow
from ezgh_workflows_django.protocol.messages import Lease as Offered
from tests.engine.bodies import Family
from tests.engine.conftest import Desk
from tests.engine.graphs import body


def statements(call: Callable[[], Any]) -> int:
    """How many statements a call makes: rows that SQLite takes in several slices count as one insert, the test's own savepoints not at all."""
    with CaptureQueriesContext(connection) as captured:
        call()
    made = [query["sql"] for query in captured.captured_queries if not query["sql"].startswith(("SAVEPOINT", "RELEASE"))]
    return len(list(groupby(made, lambda sql: sql.split("(")[0] if sql.startswith("INSERT") else sql)))


def test_starting_five_hundred_children_takes_as_many_statements_as_ten(desk: Desk) -> None:
    """B62."""
    family = Family(desk, labels={"a": "1"})
    family.start(1, "warm")
    ten, many = (statements(partial(family.start, count, f"all {count}")) for count in (10, 500))
    assert many == ten == 17


def test_starting_children_that_sleep_first_is_no_dearer_the_more_there_are(desk: Desk) -> None:
    family = Family(desk, Workflow("kid", [Step("nap", sleep=Sleep(60)), Step("work", run=body, after=["nap"])]))
    family.start(1, "warm")
    ten, many = (statements(partial(family.start, count, f"all {count}")) for count in (10, 100))
    assert many == ten


@pytest.mark.parametrize("count", [10, 100])
def test_the_end_of_a_child_costs_the_same_wherever_it_comes_and_however_many_there_are(
    desk: Desk, django_capture_on_commit_callbacks: Any, count: int
) -> None:
    """B62: only the last one lets its parent look."""
    family = Family(desk)
    family.start(count)
    family.park()
    offered = [lease for _ in range(count // 10) for lease in family.kids.claim()]

    def end(lease: Offered) -> None:
        with django_capture_on_commit_callbacks(execute=True):
            family.kids.complete(lease)

    costs = [statements(partial(end, lease)) for lease in offered]
    wake_up = 1 if connection.vendor == "postgresql" else 0
    assert costs == [8] * (count - 1) + [18 + wake_up]
    assert family.run.phase == "queued"


def test_a_cascade_cancels_ninety_children_in_as_many_statements_as_ten(desk: Desk) -> None:
    """B62: ten thousand are gone in seconds, whoever holds them."""
    costs = []
    for count in (10, 90):
        family = Family(desk)
        family.start(count)
        family.run.cancel("enough")
        costs.append(statements(desk.tick))
        desk.tick()  # what the children left marked for their parent
        assert {run.status for run in family.children} == {"cancelled"}
    assert costs[1] == costs[0]


def test_one_tick_cancels_many_batches_of_children(desk: Desk) -> None:
    family = Family(desk)
    family.start(450)
    family.run.cancel("enough")
    desk.tick()
    assert {run.status for run in family.children} == {"cancelled"}
