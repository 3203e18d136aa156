"""What goes wrong in a duty stops that duty only; a definition that can't be read stops neither maintenance nor a newer one."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, connection

from ezgh_workflows_django import Concurrency, Step, Wait, Workflow, emit
from ezgh_workflows_django.engine import catalog, maintenance
from ezgh_workflows_django.engine.direct import DirectEngine
from ezgh_workflows_django.models import Definition, Run, Tick
from tests.engine.bodies import Family
from tests.engine.conftest import Desk
from tests.engine.graphs import job


def one(limit: int) -> Any:
    """So many runs at a time."""
    return job("one", concurrency=Concurrency(limit))


def make_unreadable(workflow: str) -> None:
    """A definition as no verb would have stored it."""
    Definition.objects.filter(workflow=workflow).update(spec="{}")
    catalog.plan.cache_clear()


def raises(error: Exception, ran: list[str], name: str, now: datetime, limit: int) -> int:
    """A duty that fails."""
    ran.append(name)
    raise error


@pytest.fixture
def all_due(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make every duty due, and do that."""

    def set_to(run_once: Any) -> None:
        always = partial(Tick.objects.values, "ticked_at")
        watched = [
            replace(duty, earliest=lambda: always()[:1], keep=lambda: timedelta(0), run_once=partial(run_once, duty.name)) for duty in maintenance.DUTIES
        ]
        monkeypatch.setattr(maintenance, "DUTIES", tuple(watched))

    return set_to


@pytest.mark.plants_faults
def test_a_run_in_line_that_is_pinned_to_an_unreadable_definition_stops_no_duty(desk: Desk) -> None:
    one(1).start_many(range(2))
    waiting: Any = Workflow("waiting", [Step("wait", wait=Wait("paid"))]).start(1)
    desk.tick()
    make_unreadable("one")
    desk.worker(one(2))
    emit("paid")
    desk.tick()
    assert (waiting.phase, Definition.objects.filter(due_at__isnull=False).count()) == ("succeeded", 0)


@pytest.mark.plants_faults
def test_a_newer_definition_is_stored_though_the_newest_one_can_not_be_read(desk: Desk) -> None:
    one(1).start_many(range(2))
    make_unreadable("one")
    desk.worker(one(2))
    newest = Definition.objects.filter(workflow="one").order_by("-pk")[0]
    assert (Definition.objects.filter(workflow="one").count(), newest.due_at) == (2, desk.now)


@pytest.mark.plants_faults
def test_a_child_that_can_not_be_read_keeps_none_of_its_siblings_at_work(desk: Desk) -> None:
    family = Family(desk)
    family.start(3)
    desk.worker(job("odd"), name="odd")
    [odd] = family.hand.child(family.lease, "odd", "odd").runs
    family.run.cancel()
    make_unreadable("odd")
    desk.tick()
    assert [str(run.pk) for run in family.children.exclude(status="cancelled")] == [odd]


@pytest.mark.parametrize(
    "error", [KeyError("nodes"), RuntimeError("a bug"), OperationalError("no such column"), InterfaceError("odd")], ids=lambda error: type(error).__name__
)
def test_every_duty_has_its_turn_though_each_fails(desk: Desk, all_due: Any, caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    ran: list[str] = []
    all_due(partial(raises, error, ran))
    with caplog.at_level(logging.ERROR):
        desk.tick()
        desk.tick()
    names = [duty.name for duty in maintenance.DUTIES]
    assert ran == names * 2
    assert [record.getMessage() for record in caplog.records][:16] == [f"the duty of {name} failed; the next tick tries again" for name in names]


def test_a_worker_that_tends_outlives_a_duty_that_fails(desk: Desk, all_due: Any) -> None:
    ran: list[str] = []
    all_due(partial(raises, KeyError("nodes"), ran))
    desk.tick()
    desk.now += timedelta(seconds=10)
    DirectEngine().tend()
    assert ran == [duty.name for duty in maintenance.DUTIES] * 2


def test_a_duty_that_loses_its_connection_leaves_the_others_a_new_one(transactional_db: None, desk: Desk, all_due: Any) -> None:
    ran: list[str] = []

    def lose(name: str, now: datetime, limit: int) -> int:
        ran.append(name)
        connection.close()
        raise OperationalError("server closed the connection unexpectedly")

    all_due(lose)
    desk.tick()
    assert len(ran) == len(maintenance.DUTIES)
    assert Run.objects.count() == 0


def test_a_database_that_can_not_be_reached_ends_the_tick(transactional_db: None, desk: Desk, all_due: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    away = OperationalError("connection refused")

    def refuse() -> None:
        raise away

    with monkeypatch.context() as patch:

        def lose(name: str, now: datetime, limit: int) -> int:
            ran.append(name)
            connection.close()
            patch.setattr(connection, "ensure_connection", refuse)
            raise OperationalError("server closed the connection unexpectedly")

        all_due(lose)
        with pytest.raises(OperationalError, match="connection refused"):
            desk.tick()
    assert ran == ["timers"]
