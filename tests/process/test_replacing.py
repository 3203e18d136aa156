"""Workers that make room for fresh ones: after so many tasks, over so much memory. What they have in hand is finished."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from ezgh_workflows_django import Start
from ezgh_workflows_django.models import Worker
from ezgh_workflows_django.protocol.states import LeaseStatus, RunStatus
from ezgh_workflows_django.worker.offspring import SHUTDOWNS

from .conftest import Fleet, Folder, at_work, leases, until
from .workers.workflows import filling, gated, quick, where

pytestmark = [pytest.mark.process, pytest.mark.live]


def sessions() -> int:
    """How many worker sessions there have been."""
    return Worker.objects.count()


def test_after_so_many_tasks_a_worker_finishes_what_it_has_and_begins_anew_under_its_process_id(fleet: Fleet, folder: Folder) -> None:
    worker, run = at_work(fleet, folder, gated, "worker", "--max-tasks", "2", "--grace", "0")
    first = quick.start_many([Start(payload=number) for number in range(2)])
    until(lambda: worker.said("2 tasks are done: this process takes no more work"))
    later = quick.start(7)
    folder.say("go")  # it was at work longer than the grace period, and nobody told it to hurry

    assert run.result(timeout=20) == worker.pid
    assert later.result(timeout=30) == 7
    assert [each.result(timeout=0) for each in first] == [0, 1]
    assert [lease.status for lease in leases(run)] == [LeaseStatus.COMPLETED]
    assert sessions() == 2
    assert worker.is_alive
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0


def test_a_worker_that_takes_too_much_memory_is_replaced(fleet: Fleet) -> None:
    worker = fleet.worker("worker", "--max-memory", "250")
    assert filling.start(300).result(timeout=20) == worker.pid
    until(lambda: sessions() == 2)
    assert quick.start(1).result(timeout=20) == 1
    assert worker.said("MB of memory are in use, over 250: this process takes no more work")


def test_a_worker_that_is_told_to_stop_while_it_makes_room_ends_for_good(fleet: Fleet, folder: Folder) -> None:
    worker, run = at_work(fleet, folder, gated, "worker", "--max-tasks", "1", "--grace", "60")
    quick.start(1)
    until(lambda: worker.said("1 tasks are done"))
    worker.send(signal.SIGTERM)
    until(lambda: worker.said("stopping: 1 bodies at work"))
    folder.say("go")
    assert worker.ends() == 0
    assert run.status == RunStatus.SUCCEEDED
    assert sessions() == 1


def test_a_worker_that_is_told_to_stop_while_it_begins_anew_ends_in_order(fleet: Fleet) -> None:
    worker = fleet.worker("worker", "--max-tasks", "1")
    quick.start(1)

    def begins_anew() -> bool:
        [held_back] = re.findall(r"^SigBlk:\s*(\w+)$", Path(f"/proc/{worker.pid}/status").read_text(), re.MULTILINE)
        return {number for number in SHUTDOWNS if int(held_back, 16) >> (number - 1) & 1} == {signal.SIGTERM, signal.SIGINT}

    until(begins_anew)
    worker.send(signal.SIGTERM)
    assert worker.ends(60) == 0


def test_several_apps_of_one_process_make_room_together(fleet: Fleet) -> None:
    worker = fleet.worker("worker", "--app", "default", "--app", "dev-ann", "--max-tasks", "1")
    until(lambda: sessions() == 2)
    assert quick.start(1).result(timeout=20) == 1
    until(lambda: sessions() == 4)
    assert quick.start(2, app="dev-ann").result(timeout=20) == 2
    assert worker.is_alive


def test_processes_that_run_bodies_are_replaced_one_by_one_and_the_worker_lives_on(fleet: Fleet, folder: Folder) -> None:
    fleet.worker("worker", "--processes", "2", "--max-tasks", "2")
    ran_in = [run.result(timeout=40) for run in where.start_many([Start(payload=str(folder)) for _ in range(9)])]
    assert max(map(ran_in.count, ran_in)) == 2
    assert sessions() == 1


def test_a_process_that_runs_bodies_and_takes_too_much_memory_is_replaced(fleet: Fleet, folder: Folder) -> None:
    fleet.worker("worker", "--processes", "2", "--max-memory", "250")
    full = [filling.start(300).result(timeout=20) for _ in range(3)]
    assert len(set(full)) == 3
    assert sessions() == 1
