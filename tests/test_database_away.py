"""Commands while the database can't be reached: they wait for it, or say so, whichever kind of error its driver raises."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management.base import BaseCommand
from django.db import InterfaceError, OperationalError, connection

from ezgh_workflows_django.engine import hygiene
from ezgh_workflows_django.management import startup
from ezgh_workflows_django.management.commands import workflows_maintain
from ezgh_workflows_django.management.worker_command import WorkerCommand
from ezgh_workflows_django.models import App
from ezgh_workflows_django.worker.backoff import Backoff

away = pytest.mark.parametrize("error", [OperationalError("no answer"), InterfaceError("connection already closed")], ids=["operational", "interface"])


@away
def test_migrations_that_cannot_be_checked_are_said_and_the_worker_starts(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def check(self: BaseCommand) -> None:
        raise error

    monkeypatch.setattr(BaseCommand, "check_migrations", check)
    said = StringIO()
    WorkerCommand(stderr=said).check_migrations()
    assert f"could not be checked: {error}" in said.getvalue()


@away
def test_maintenance_that_cannot_run_backs_off(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def tick(self: Any) -> None:
        raise error

    monkeypatch.setattr(workflows_maintain.Command, "_tick", tick)
    said = StringIO()
    wait = workflows_maintain.Command(stderr=said)._turn(1.0, Backoff(first=8.0))
    assert 4.0 <= wait <= 8.0
    assert f"maintenance could not run ({error})" in said.getvalue()


@away
def test_the_start_up_block_says_that_the_database_does_not_answer(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    class Away:
        def using(self, alias: str) -> Any:
            raise error

    monkeypatch.setattr(App, "objects", Away())
    _, missing = startup._queues(("default",))
    assert str(error) in missing[0]


@pytest.mark.django_db(transaction=True)
@away
def test_a_connection_that_met_an_error_is_suspect(error: Exception) -> None:
    with pytest.raises(type(error)), hygiene.engine_call():
        raise error
    assert connection.errors_occurred
    connection.errors_occurred = False
