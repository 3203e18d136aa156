"""Durable functions in real processes that are killed: nothing is done twice, nothing is lost, one journal."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from typing import Any

import pytest
from django.contrib.auth.models import Group

from ezgh_workflows_django import get_run
from ezgh_workflows_django.engine.invariants import violations
from ezgh_workflows_django.models import Checkpoint, Lease, Receipt, Run
from tests.process.conftest import Fleet, Folder, until
from tests.process.workers import workflows

pytestmark = pytest.mark.process

QUICK = {"LEASE_TTL": 2, "RECOVERY_WINDOW": 1, "HEARTBEAT": 1, "OFFER_TTL": 2, "MAX_RECLAIMS": 50}


def statuses(workflow: Any) -> Counter[str]:
    """How the runs of a workflow stand."""
    return Counter(Run.objects.filter(workflow=workflow.name).values_list("status", flat=True))


@pytest.mark.long
def test_a_thousand_transactional_steps_write_a_thousand_rows_while_workers_are_killed(fleet: Fleet) -> None:
    chance = random.Random(17)
    workflows.ledgering.start_many([20] * 50)
    workers = [fleet.worker(f"w{number}", **QUICK) for number in range(2)]
    for death in range(5):
        time.sleep(0.3 + chance.random())
        workers[death % 2].send(signal.SIGKILL)
        workers[death % 2] = fleet.worker(f"w{death + 2}", **QUICK)
    until(lambda: statuses(workflows.ledgering) == {"succeeded": 50}, 100)
    rows = Counter(name.rsplit(" ", 1)[0] for name in Group.objects.values_list("name", flat=True))
    assert len(rows) == 1000
    assert set(rows.values()) == {1}
    assert violations() == []


@pytest.mark.long
def test_events_around_the_moment_a_wait_opens_are_neither_lost_nor_taken_twice(fleet: Fleet) -> None:
    """Cases B08, B58: 150 waits open while three processes send; each event has one taker, and each wait its own."""
    keys = [f"k{number}" for number in range(150)]
    workflows.listening.start_many(keys)  # before any event: a wait looks back to its run's creation
    workers = [fleet.worker("w0", **QUICK)]
    emitters = [fleet.program("-m", "tests.process.emitter", str(seed), *keys[seed::3]) for seed in range(3)]
    workers.append(fleet.worker("w1", **QUICK))
    until(lambda: statuses(workflows.listening) == {"succeeded": 150}, 60)
    assert all(emitter.ends() == 0 for emitter in emitters)
    assert sorted(get_run(str(pk)).result() for pk in Run.objects.values_list("pk", flat=True)) == sorted(keys)
    assert Receipt.objects.count() == 150
    assert all(worker.is_alive for worker in workers)
    assert violations() == []


@pytest.mark.long
def test_a_loop_receives_a_hundred_signals_in_order_while_its_worker_is_killed_twice(fleet: Fleet) -> None:
    run = workflows.collecting.start(100)
    worker = fleet.worker("w0", **QUICK)
    for number in range(100):
        run.signal("message", number)
        if number in (30, 60):
            worker.send(signal.SIGKILL)
            worker = fleet.worker(f"w{number}", **QUICK)
    until(lambda: run.status == "succeeded", 60)
    assert run.result() == list(range(100))
    assert violations() == []


@pytest.mark.long
def test_a_batch_goes_on_after_its_worker_is_killed_and_no_child_is_started_twice(fleet: Fleet) -> None:
    run = workflows.batching.start(400)
    worker = fleet.worker("w0", **QUICK)
    until(lambda: Run.objects.filter(parent__pk=run.id).exists())
    worker.send(signal.SIGKILL)
    worker = fleet.worker("w1", **QUICK)
    until(lambda: Run.objects.filter(parent__pk=run.id, status="succeeded").count() > 50, 60)
    worker.send(signal.SIGKILL)
    fleet.worker("w2", **QUICK)
    until(lambda: run.status == "succeeded", 100)
    assert run.result() == sum(place**3 for place in range(400))
    assert Run.objects.filter(parent__pk=run.id).count() == 400
    assert violations() == []


@pytest.mark.long
def test_a_cancelled_parent_stops_the_bodies_of_its_children(fleet: Fleet, folder: Folder) -> None:
    """By a heartbeat: their leases outlast what is waited for here."""
    worker = fleet.worker("w0", **QUICK | {"LEASE_TTL": 120})
    run = workflows.cancelling_parent.start(str(folder))
    until(lambda: Run.objects.filter(parent__pk=run.id).count() == 3)
    until(lambda: Lease.objects.filter(run__parent__isnull=False, status="started").count() == 3)
    run.cancel("enough")
    children = [str(pk) for pk in Run.objects.filter(parent__pk=run.id).values_list("pk", flat=True)]
    until(lambda: all(folder.heard(f"ended-{child}") for child in children))  # each body has really ended
    assert folder.heard("stopped-run_terminal") == [worker.pid]
    until(lambda: set(Run.objects.values_list("status", flat=True)) == {"cancelled"})
    assert violations() == []


def test_a_function_asleep_for_a_month_is_in_nobodys_hands(fleet: Fleet) -> None:
    run = workflows.napping.start()
    worker = fleet.worker("w0", **QUICK)
    until(lambda: run.phase == "sleeping")
    assert not Lease.objects.filter(live_step__isnull=False).exists()
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0
    assert run.phase == "sleeping"
    assert Checkpoint.objects.get().due_at is not None
