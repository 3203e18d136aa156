"""A run that is old and must be kept is looked at again when that may be over: retention is not due for ever because of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django import emit
from ezgh_workflows_django.engine import catalog, maintenance, retention
from ezgh_workflows_django.models import Definition, Event, Receipt, Run
from tests.engine.bodies import Family
from tests.engine.conftest import Desk
from tests.engine.graphs import body, job
from tests.engine.test_faults import failing_at
from tests.engine.threads import elsewhere

YEAR = timedelta(days=365)


def with_a_key(desk: Desk) -> Any:
    """Its key serves for seven days, and it would go at once."""
    run = job().start(1, idempotency_key="k")
    run.cancel()
    return run


def child_of_a_live_parent(desk: Desk) -> Any:
    """The parent may still read what it came to."""
    family = Family(desk)
    family.start(1)
    family.park()
    family.kids.work_off()
    family.run.pause()
    return family.run


def parent_of_a_live_child(desk: Desk) -> Any:
    """Nobody has seen to the child yet, and the mark that says so is lost."""
    family = Family(desk, job("kid", on_failure=body))
    family.start(1)
    [lease] = family.kids.claim()
    family.kids.fail(lease, "permanent")
    family.run.cancel()
    Run.objects.update(kin_at=None)
    return family.run


KEPT = [with_a_key, child_of_a_live_parent, parent_of_a_live_child]


@pytest.mark.plants_faults
@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.__name__)
def test_a_run_that_must_be_kept_does_not_make_retention_due_for_ever(desk: Desk, settings: Any, kept: Any) -> None:
    settings.EZGH_WORKFLOWS = {"RETENTION": timedelta(hours=1), "EVENT_RETENTION": YEAR}
    kept(desk)
    desk.tick()
    desk.advance(hours=1)
    assert Run.objects.filter(ended_at__isnull=False).count() == 1
    with CaptureQueriesContext(connection) as captured:
        ticked = maintenance.tick()
    assert (len(captured), ticked.handled) == (1, 0)
    assert ticked.next_due is not None
    assert ticked.next_due > desk.now


def test_a_run_that_must_be_kept_makes_no_tick_late(desk: Desk, settings: Any) -> None:
    settings.EZGH_WORKFLOWS = {"RETENTION": 0}
    with_a_key(desk)
    for _ in range(3):
        desk.tick()
        desk.now += timedelta(hours=1)
    tick = maintenance.status()
    assert tick is not None
    assert tick.lateness_ms == 0


def test_a_run_with_a_key_goes_when_its_key_has_served(desk: Desk, settings: Any) -> None:
    settings.EZGH_WORKFLOWS = {"RETENTION": timedelta(days=1), "IDEMPOTENCY_TTL": timedelta(days=7)}
    with_a_key(desk)
    desk.advance(days=1)
    desk.advance(days=6, milliseconds=-1)
    assert Run.objects.count() == 1
    desk.advance(milliseconds=1)
    assert Run.objects.count() == 0


def test_a_child_goes_soon_after_its_parent_needs_it_no_longer(desk: Desk, settings: Any) -> None:
    settings.EZGH_WORKFLOWS = {"RETENTION": timedelta(days=30)}
    run = child_of_a_live_parent(desk)
    desk.tick()
    desk.advance(days=40)
    run.cancel()
    desk.advance(seconds=1)
    assert Run.objects.count() == 2
    desk.advance(days=1)
    assert list(Run.objects.values_list("pk", flat=True)) == [run.run.pk]


def test_a_run_that_is_kept_keeps_none_behind_it(desk: Desk, settings: Any) -> None:
    settings.EZGH_WORKFLOWS = {"RETENTION": 0}
    kept = [job().start(1, idempotency_key=f"k{place}") for place in range(3)]
    for run in kept:
        run.cancel()
    desk.now += timedelta(seconds=1)
    job().start(1).cancel()
    desk.now += timedelta(seconds=1)
    for _ in range(3):
        retention.run_once(desk.now, 2)
    assert Run.objects.count() == 3


def test_a_run_that_can_not_be_read_is_left_alone_and_keeps_none_behind_it(desk: Desk) -> None:
    job("bad").start(1).cancel()
    desk.now += timedelta(seconds=1)
    job().start(1).cancel()
    spec = Definition.objects.get(workflow="bad").spec
    Definition.objects.filter(workflow="bad").update(spec="{}")
    catalog.plan.cache_clear()
    desk.advance(days=30)
    assert list(Run.objects.values_list("workflow", flat=True)) == ["bad"]
    with CaptureQueriesContext(connection) as captured:
        maintenance.tick()
    assert len(captured) == 1
    Definition.objects.filter(workflow="bad").update(spec=spec)


def test_a_run_that_is_retried_is_kept_from_its_new_end(desk: Desk) -> None:
    run = job().start(1)
    run.cancel()
    assert desk.run(run).kept_since == desk.now
    run.retry()
    assert desk.run(run).kept_since is None


# Events


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_events_and_their_receipts_go_together_or_not_at_all(desk: Desk, after: bool) -> None:
    event_pk, run = emit("paid").id, job().start(1)
    Event.objects.update(due_at=None)
    step = desk.step(run, "work")
    Receipt.objects.create(event_id=event_pk, run=run.run, step=step, taken_at=desk.now)
    desk.now += timedelta(days=31)
    for statement in range(1, 10):
        with failing_at(statement, after=after) as fault:
            try:
                retention.run_once(desk.now, 10)
            except OperationalError:
                assert (Event.objects.count(), Receipt.objects.count()) == (1, 1)
                raise
        if not fault.hit:
            break
    assert (statement > 3, Event.objects.count(), Receipt.objects.count()) == (True, 0, 0)


def test_an_event_that_somebody_holds_is_passed_over(transactional_db: None, desk: Desk) -> None:
    if not connection.features.has_select_for_update_skip_locked:
        pytest.skip("on SQLite a writer holds the whole file: nobody is passed over")
    taken, _ = emit("paid").id, emit("paid").id
    Event.objects.update(due_at=None)
    desk.now += timedelta(days=31)
    with transaction.atomic():
        Event.objects.select_for_update().get(pk=taken)
        assert elsewhere(lambda: retention.run_once(desk.now, 10)) == 1
        assert elsewhere(lambda: list(Event.objects.values_list("pk", flat=True))) == [taken]
    retention.run_once(desk.now, 10)
    assert Event.objects.count() == 0
