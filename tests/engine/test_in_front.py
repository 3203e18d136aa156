"""What a claim does not ask for costs it nothing, however much of it stands in front: the same plan, the same pages read."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from ezgh_workflows_django import Step, Workflow
from ezgh_workflows_django.engine import apps
from ezgh_workflows_django.engine.sql import looking
from ezgh_workflows_django.models import App
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.protocol.messages import Serve
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body, job
from tests.engine.test_asleep import _copy, analyzed, in_new_files, plan_of_the_look

MANY = 6_000
FEW = 6_000
SLACK = 3
"""Pages: an index of twice the rows may be a level deeper."""

STEADY = {"postgresql": {0}, "mysql": {True}, "sqlite": {True}}
"""No step is read that is not taken; each is found in an index."""


def two() -> Workflow:
    """Two steps beside each other."""
    return Workflow("two", [Step("a", run=body), Step("b", run=body)])


def copies(row: StepRow, count: int, available_at: datetime, claim_order: datetime | None, status: str = "ready") -> None:
    """So many rows more that are as this one is; their runs are left out."""
    moments = {"available_at": available_at, "claim_order": claim_order, "status": status}
    StepRow.objects.bulk_create(_copy(row, id=None, run_id=uuid.uuid4(), **moments) for _ in range(count))


def not_served_by_name(desk: Desk) -> None:
    """Ready since long before what is served."""
    long_ago = desk.now - timedelta(hours=1)
    copies(StepRow.objects.filter(name="a")[0], MANY, available_at=long_ago, claim_order=long_ago)


def due_in_a_day(desk: Desk) -> None:
    """Retries of a step that is served, of the highest priority."""
    tomorrow = desk.now + timedelta(days=1)
    copies(StepRow.objects.filter(name="b")[0], MANY, available_at=tomorrow, claim_order=tomorrow - looking.LEAD)


def of_a_paused_workflow(desk: Desk) -> None:
    """It is served, and held back."""
    apps.pause(App.objects.get(name="default"), by=("system", "test"), workflow="paused")
    long_ago = desk.now - timedelta(hours=1)
    copies(StepRow.objects.filter(run__workflow="paused")[0], MANY, available_at=long_ago, claim_order=long_ago)


def behind_what_is_taken(desk: Desk) -> None:
    """Ready, served, and younger than what is taken, of one of several revisions."""
    copies(StepRow.objects.filter(name="b")[0], MANY, available_at=desk.now, claim_order=desk.now)


def served_by(hand: Hand) -> tuple[Serve, ...]:
    """All but `a`."""
    return tuple(Serve(each.name, each.revision, frozenset("b") if each.name == "two" else None) for each in hand.serves)


@pytest.mark.long
@pytest.mark.plants_faults  # the copies have no runs
@pytest.mark.parametrize("in_front", [not_served_by_name, due_in_a_day, of_a_paused_workflow, behind_what_is_taken])
def test_the_look_of_a_claim_is_the_same_whatever_it_does_not_take(transactional_db: None, desk: Desk, in_front: Callable[[Desk], None]) -> None:
    in_new_files()
    hand = desk.worker(two(), job(), job("paused"))
    desk.now -= timedelta(minutes=1)
    for workflow in (two(), job("paused"), *[job()] * looking_for(hand)):
        workflow.start()
    desk.now += timedelta(minutes=1)
    copies(StepRow.objects.filter(run__workflow="job")[0], FEW, status="succeeded", available_at=desk.now, claim_order=None)
    analyzed()
    before, pages_before = plan_of_the_look(lambda: hand.claim(1, serves=served_by(hand)))

    in_front(desk)
    analyzed()
    after, pages_after = plan_of_the_look(lambda: hand.claim(1, serves=served_by(hand)))
    assert steady(before) == steady(after) == STEADY[connection.vendor]
    assert pages_after <= pages_before + SLACK
    assert [lease.step for lease in hand.claim(1, serves=served_by(hand))] != []


def looking_for(hand: Hand) -> int:
    """More than one claim looks at."""
    return len(hand.serves) * 4


def steady(plan: list[Any]) -> set[Any]:
    """How many steps are read in vain, where the database says so; else whether they are found in an index, which of ours is the planner's affair."""
    if connection.vendor == "postgresql":
        return {removed for _, _, removed in plan}
    keys = [node[2] if isinstance(node, tuple) else node for node in plan if "step" in str(node)]
    return {"ezw_step_" in str(key) for key in keys}


@pytest.mark.parametrize("most", [0, 1, looking.MOST])
def test_looked_for_together_or_each_for_itself_the_same_is_found(desk: Desk, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(looking, "MOST", most)
    hand = desk.worker(two(), job(), job("paused"))
    apps.pause(App.objects.get(name="default"), by=("system", "test"), workflow="paused")
    runs: Mapping[str, str] = {each.name: each.start().id for each in (two(), job("paused"), job())}
    assert {(lease.run_id, lease.step) for lease in hand.claim(serves=served_by(hand))} == {(runs["job"], "work"), (runs["two"], "b")}
