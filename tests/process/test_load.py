"""Many processes and many runs at once, and a database that goes away under them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, connection, connections

from ezgh_workflows_django import Start
from ezgh_workflows_django.models import Lease, Run, Step
from ezgh_workflows_django.protocol.states import LeaseStatus, RunStatus, StepStatus

from .conftest import Fleet, Folder, at_work, leases, until
from .workers.workflows import gated, quick

pytestmark = pytest.mark.process


@pytest.mark.long
def test_four_processes_claiming_a_thousand_ready_steps_get_each_of_them_once(fleet: Fleet) -> None:
    quick.start_many([Start(payload=number) for number in range(1_000)])
    claimers = [fleet.program("-m", "tests.process.claimer", OFFER_TTL=600) for _ in range(4)]

    assert [claimer.ends(within=60) for claimer in claimers] == [0, 0, 0, 0], [claimer.output for claimer in claimers]
    claimed = [lease for claimer in claimers for lease in json.loads(claimer.output)]  # nothing else was printed: no error was shown
    assert len(set(claimed)) == len(claimed) == 1_000
    assert Lease.objects.filter(pk__in=claimed[:500]).values("step").distinct().count() == 500
    assert Lease.objects.values("step").distinct().count() == Lease.objects.count() == 1_000
    assert set(Step.objects.values_list("status", flat=True)) == {StepStatus.LEASED}


def terminate_postgresql() -> None:
    """End every session of this database but our own."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")


def kill_mariadb() -> None:
    """End every session of this database but our own."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
        for (number,) in cursor.fetchall():
            with suppress(OperationalError):  # it ended by itself meanwhile
                cursor.execute(f"KILL {int(number)}")


def block_sqlite() -> None:
    """A file has no sessions to end: hold its write lock for two seconds, from a thread."""

    def hold() -> None:
        own: Any = connections.create_connection("default")
        with own.cursor() as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            threading.Event().wait(2)
            cursor.execute("ROLLBACK")
        own.close()

    threading.Thread(target=hold, daemon=True).start()


TROUBLES: dict[str, tuple[Callable[[], None], int]] = {"postgresql": (terminate_postgresql, 30), "mysql": (kill_mariadb, 12), "sqlite": (block_sqlite, 6)}
"""What is done to each database every three seconds, and for how many seconds in all."""

EVERY = 3

PATIENT = {"LEASE_TTL": 5, "RECOVERY_WINDOW": 20}
"""Seconds: a body whose heartbeats no longer land is lost before the trouble on PostgreSQL is over, and on no machine sooner."""


def is_past(moment: float) -> bool:
    """Whether that moment of the monotonic clock has come."""
    return time.monotonic() >= moment


@pytest.mark.long
def test_two_hundred_runs_succeed_while_every_connection_is_ended_every_three_seconds(fleet: Fleet, folder: Folder) -> None:
    """B16: the worker loses its connections while idle, mid-claim and mid-body, and lives."""
    make_trouble, seconds = TROUBLES[connection.vendor]
    rounds = seconds // EVERY
    worker, held = at_work(fleet, folder, gated, "worker", **PATIENT)
    begun = time.monotonic()
    for turn in range(rounds):
        quick.start_many([Start(payload=number) for number in range(200 // rounds)])
        make_trouble()
        until(partial(is_past, begun + (turn + 1) * EVERY))
    make_trouble()
    until(lambda: Run.objects.filter(status=RunStatus.SUCCEEDED).count() == 200, 60)

    assert Run.objects.count() == 200 + 1
    assert worker.is_alive
    folder.say("go")
    assert held.result(timeout=30) == worker.pid
    assert [(lease.status, lease.attempt) for lease in leases(held)] == [(LeaseStatus.COMPLETED, 1)]
    assert quick.start(7).result(timeout=30) == 7


def sessions() -> int:
    """How many others are connected to this test's database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
        return int(cursor.fetchone()[0])


@pytest.mark.long
@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL tells who is connected")
def test_a_worker_takes_six_connections_and_one_for_each_body(fleet: Fleet) -> None:
    """B76; docs/deploy.md says so."""
    quick.start_many([Start(payload=number) for number in range(200)])
    fleet.worker("worker", "--concurrency", "4")
    seen: list[int] = []

    def are_done() -> bool:
        seen.append(sessions())
        return Run.objects.filter(status=RunStatus.SUCCEEDED).count() == 200

    until(are_done, 60)
    print(f"at most {max(seen)} connections")
    assert 1 < max(seen) <= 6 + 4
