"""Rates: no span of their length ever holds more admissions than they allow, and nothing is dropped."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from ezgh_workflows_django import Concurrency, RateLimit
from ezgh_workflows_django.models import Admission, Rate, Run
from tests.engine.conftest import Desk
from tests.engine.graphs import job
from tests.engine.threads import together
from tests.invariant_guard import broken


def spaced(most: int, per: float, **options: Any) -> Any:
    """One step, `most` runs in each `per` seconds."""
    return job("spaced", rate=RateLimit(most, per=per), **options)


def begun() -> list[datetime]:
    """When each run that has begun did, in order."""
    return sorted(at for at in Run.objects.values_list("started_at", flat=True) if at is not None)


def fullest(most: int, per: float) -> bool:
    """Whether no span of that length, wherever it begins, holds more than `most`."""
    moments = begun()
    return all(later - earlier >= timedelta(seconds=per) for earlier, later in zip(moments, moments[most:], strict=False))


def test_one_more_may_begin_as_soon_as_the_nth_last_is_a_span_ago(desk: Desk) -> None:
    workflow = spaced(3, 60)
    start = desk.now
    workflow.start_many(range(2))
    desk.tick()
    desk.now += timedelta(seconds=50)
    workflow.start_many(range(6))
    desk.tick()
    for seconds in (9, 1, 49, 1, 9, 1):
        desk.advance(seconds=seconds)
    assert [(at - start).total_seconds() for at in begun()] == [0, 0, 50, 60, 60, 110, 120, 120]
    assert fullest(3, 60)
    assert (Rate.objects.get().due_at, Admission.objects.count()) == (desk.now + timedelta(seconds=50), 3), "what no longer counts is forgotten"
    desk.advance(hours=1)
    assert (Rate.objects.get().due_at, broken()) == (None, [])


def test_a_lab_may_visit_each_turn_and_nothing_is_lost_however_long_maintenance_slept(desk: Desk) -> None:
    workflow = spaced(5, 10)
    runs = workflow.start_many(range(23))
    desk.tick()
    desk.advance(days=1)
    assert len(begun()) == 10, "a long sleep earns no more than one span's worth"
    for _ in range(3):
        desk.advance(seconds=10)
    assert [run.status for run in runs] == ["running"] * 23
    assert [at for at in begun() if at == desk.now] == [desk.now] * 3


@pytest.mark.parametrize("shift", [timedelta(hours=1), timedelta(seconds=30)])
def test_a_clock_that_is_set_back_costs_one_span_at_most(desk: Desk, shift: timedelta) -> None:
    workflow = spaced(2, 60)
    runs = workflow.start_many(range(6))
    desk.tick()
    desk.now -= shift
    more = workflow.start(6)
    for _ in range(3):
        desk.advance(seconds=60)
    assert [run.status for run in [*runs, more]].count("running") >= 5
    desk.advance(hours=2)
    desk.advance(seconds=60)
    assert [run.status for run in [*runs, more]] == ["running"] * 7


def test_those_who_matter_more_have_the_next_turn(desk: Desk) -> None:
    workflow = spaced(1, 60)
    runs = [workflow.start(place, priority=priority) for place, priority in enumerate([0, 0, 5])]
    desk.tick()
    assert [run.status for run in runs] == ["queued", "queued", "running"]
    assert str(runs[0].waiting_for[0]) == "waiting for its turn: spaced begins 1 run in 1m"
    desk.advance(seconds=60)
    assert [run.status for run in runs] == ["running", "queued", "running"]


def test_a_full_bucket_in_front_leaves_its_turn_to_those_behind(desk: Desk) -> None:
    """B70: what waits for a slot does not stop what waits for a turn."""
    workflow = spaced(2, 60, concurrency=Concurrency(1, key_expr="payload"))
    hand = desk.worker(workflow)
    runs = workflow.start_many([*["a"] * 150, "b", "c"])
    desk.tick()
    assert {run.payload for run in runs if run.status == "running"} == {"a", "b"}
    desk.advance(seconds=60)
    assert sorted(run.payload for run in runs if run.status == "running") == ["a", "b", "c"]
    first = next(lease for lease in hand.claim() if lease.input == "a")
    hand.complete(first)
    desk.tick()
    assert (runs[1].status, runs[2].status) == ("running", "queued")
    assert fullest(2, 60)


def test_every_episode_takes_a_turn(desk: Desk) -> None:
    workflow = spaced(1, 60)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    desk.tick()
    for turn in range(3):
        hand.fail(hand.take(), "permanent")
        run.retry()
        desk.tick()
        assert (run.status, Admission.objects.count()) == ("queued", 1)
        desk.advance(seconds=60)
        assert (run.status, run.run.episode) == ("running", turn + 2)


def test_children_take_turns_too_and_share_only_slots(desk: Desk) -> None:
    workflow = spaced(1, 60, concurrency=Concurrency(1))
    hand = desk.worker(workflow)
    parent = workflow.start(1)
    desk.tick()
    lease = hand.take()
    hand.child(lease, "kid", workflow)
    desk.tick()
    kid = Run.objects.get(parent=parent.id)
    assert (kid.status, kid.bucket, kid.slot_key) == ("queued", None, "")
    desk.advance(seconds=60)
    assert Run.objects.get(parent=parent.id).status == "running"


def test_a_definition_that_changes_or_drops_the_rate_counts_for_all_in_line(desk: Desk) -> None:
    runs = job("spaced", concurrency=Concurrency(1)).start_many(range(20))
    desk.tick()
    desk.worker(job("spaced", concurrency=Concurrency(20), rate=RateLimit(5, per=60)))
    desk.tick()
    desk.tick()
    assert [run.status for run in runs].count("running") == 6, "the one from before, and five in this minute"
    desk.advance(seconds=60)
    assert [run.status for run in runs].count("running") == 11
    desk.worker(job("spaced", concurrency=Concurrency(20)))
    desk.tick()
    desk.tick()
    assert [run.status for run in runs].count("running") == 20
    alone = spaced(1, 3600)
    waiting = alone.start_many(range(3))
    desk.worker(job("spaced"))
    desk.tick()
    desk.tick()
    assert ([run.status for run in waiting], broken()) == (["running"] * 3, [])


def test_more_than_one_batch_has_its_turn_at_once(desk: Desk) -> None:
    workflow = spaced(120, 60)
    workflow.start_many(range(130))
    desk.tick()
    assert len(begun()) == 120
    desk.advance(seconds=60)
    assert len(begun()) == 130


@pytest.mark.usefixtures("transactional_db")
def test_starts_at_one_moment_never_take_more_turns_than_there_are(desk: Desk) -> None:
    workflow = spaced(5, 60)
    workflow.start(0)
    for _ in range(2):
        together([partial(workflow.start, place) for place in range(6)])
        assert fullest(5, 60)
        desk.advance(seconds=60)
    assert len(begun()) == 13


def test_the_moments_of_a_rate_outlive_its_runs(desk: Desk) -> None:
    """A run that is deleted takes nothing away from what was counted."""
    workflow = spaced(1, 60)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    desk.tick()
    hand.complete(hand.take())
    desk.tick()
    Run.objects.filter(pk=run.id).delete()
    second = workflow.start(2)
    desk.tick()
    assert second.status == "queued"
    desk.advance(seconds=60)
    assert second.status == "running"


def test_pairs_are_a_span_apart_for_a_rate_of_one(desk: Desk) -> None:
    workflow = spaced(1, 0.5)
    workflow.start_many(range(5))
    for _ in range(12):
        desk.advance(seconds=0.3)
    assert len(begun()) == 5
    assert all(later - earlier >= timedelta(seconds=0.5) for earlier, later in pairwise(begun()))
