"""`runworker --processes`: bodies in processes of their own, and what is left of the others when one of those dies."""

from __future__ import annotations

import os
import signal

import pytest
from django.contrib.auth.models import User

from ezgh_workflows_django import Start
from ezgh_workflows_django.models import Lease, SpanRecord, UsageRecord
from ezgh_workflows_django.protocol.states import FailureClass, LeaseStatus, RunStatus

from .conftest import HEARTBEAT, MARGIN, TTL, Fleet, Folder, at_work, leases, until
from .workers.workflows import GIL_SECONDS, cancellable, crashing, durable, gated, gil, leaving, offloading, quick, stubborn, where

pytestmark = [pytest.mark.process, pytest.mark.live]

PROCESSES = ("--processes", "2")


@pytest.mark.parametrize(
    ("how", "said"), [("SIGSEGV", "was ended by SIGSEGV"), ("SIGKILL", "was ended by SIGKILL, as the system does with one that takes too much memory")]
)
def test_a_body_that_ends_its_process_fails_its_attempt_and_nothing_else(fleet: Fleet, folder: Folder, how: str, said: str) -> None:
    worker, neighbour = at_work(fleet, folder, gated, "worker", *PROCESSES)
    run = crashing.start(how)
    until(lambda: run.status == RunStatus.FAILED)
    later = [quick.start(number) for number in range(5)]
    assert [each.result(timeout=20) for each in later] == list(range(5))
    folder.say("go")

    assert run.failure is not None
    assert (run.failure.class_, run.failure.message) == (FailureClass.CRASHED, f"the process that ran the body {said}")
    assert neighbour.result(timeout=20) in folder.heard("begun")
    assert neighbour.result(timeout=0) != worker.pid
    assert [lease.attempt for lease in leases(neighbour)] == [1]
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0


def test_as_many_bodies_run_at_once_as_there_are_processes(fleet: Fleet, folder: Folder) -> None:
    worker = fleet.worker("worker", *PROCESSES)
    assert worker.said("2 bodies at once, each in a process of its own")
    runs = [gated.start(str(folder)) for _ in range(3)]
    until(lambda: len(folder.heard("begun")) == 2)
    assert Lease.objects.filter(live_step__isnull=False).count() == 2
    folder.say("go")
    assert worker.pid not in {run.result(timeout=20) for run in runs}


def test_what_is_no_exception_and_an_async_body_end_as_in_a_thread(fleet: Fleet, folder: Folder) -> None:
    fleet.worker("worker", *PROCESSES)
    run = leaving.start("SystemExit")
    until(lambda: run.status == RunStatus.FAILED)
    parked = offloading.start(str(folder))
    until(lambda: folder.heard("begun"))
    parked.cancel()
    assert run.failure is not None
    assert run.failure.class_ == FailureClass.ERROR
    assert quick.start(1).result(timeout=20) == 1


def test_a_durable_function_keeps_its_results_and_its_transaction(fleet: Fleet, folder: Folder) -> None:
    worker = fleet.worker("worker", *PROCESSES)
    run = durable.start(str(folder))
    until(lambda: Lease.objects.filter(run__pk=run.id, progress__contains="first").exists())
    folder.say("go")
    first, third = run.result(timeout=30)
    assert worker.pid not in (first, third)
    assert User.objects.filter(username=f"made-{first}").count() == 1


def test_a_body_that_ignores_its_timeout_is_ended_with_its_process(fleet: Fleet, folder: Folder) -> None:
    worker = fleet.worker("worker", *PROCESSES)
    stuck = [stubborn.start(str(folder)) for _ in range(2)]
    until(lambda: [run.status for run in stuck] == [RunStatus.FAILED] * 2)
    assert [run.failure.class_ for run in stuck if run.failure] == ["timeout", "timeout"]
    assert [(record.unit, record.amount) for record in UsageRecord.objects.all()] == [("calls", 3)] * 2
    assert list(SpanRecord.objects.values_list("name", flat=True)) == ["call"] * 2
    until(lambda: not any(_is_alive(pid) for pid in folder.heard("begun")))
    assert [run.result(timeout=20) for run in quick.start_many([Start(payload=number) for number in range(5)])] == list(range(5))
    assert not worker.said("are stuck")


def test_a_cancel_reaches_a_body_in_its_process(fleet: Fleet, folder: Folder) -> None:
    worker, run = at_work(fleet, folder, cancellable, "worker", *PROCESSES)
    run.cancel("not wanted any more")
    until(lambda: folder.heard("stopped-run_terminal"), HEARTBEAT + MARGIN)
    assert worker.is_alive


def test_a_body_that_holds_the_gil_of_its_process_keeps_its_lease(fleet: Fleet, folder: Folder) -> None:
    assert GIL_SECONDS >= 2 * TTL
    _, run = at_work(fleet, folder, gil, "worker", *PROCESSES)
    fleet.worker("idle")
    folder.say("go")
    assert run.result(timeout=30) in folder.heard("begun")
    assert [lease.status for lease in leases(run)] == [LeaseStatus.COMPLETED]


def test_a_signal_to_the_whole_group_lets_the_bodies_finish(fleet: Fleet, folder: Folder) -> None:
    worker, run = at_work(fleet, folder, gated, "worker", *PROCESSES, "--grace", "60")
    os.killpg(worker.pid, signal.SIGTERM)
    until(lambda: worker.said("stopping: 1 bodies at work"))
    folder.say("go")
    assert run.result(timeout=20) in folder.heard("ended")
    assert worker.ends() == 0


def test_what_does_not_end_in_the_grace_period_is_handed_back_and_ended(fleet: Fleet, folder: Folder) -> None:
    worker, run = at_work(fleet, folder, gated, "worker", *PROCESSES, "--grace", "1")
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0
    assert [lease.status for lease in leases(run)] == [LeaseStatus.RETURNED]
    until(lambda: not any(_is_alive(pid) for pid in folder.heard("begun")))


def test_no_process_outlives_a_worker_that_is_killed(fleet: Fleet, folder: Folder) -> None:
    worker, _ = at_work(fleet, folder, gated, "worker", *PROCESSES)
    worker.send(signal.SIGKILL)
    until(lambda: not any(_is_alive(pid) for pid in folder.heard("begun")))


def test_until_idle_ends_well(fleet: Fleet, folder: Folder) -> None:
    runs = [where.start(str(folder)) for _ in range(6)]
    process = fleet.command("runworker", "--until-idle", *PROCESSES)
    assert process.ends(40) == 0, process.output
    assert len({run.result(timeout=0) for run in runs}) <= 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--processes", "0"], "--processes: 0 processes run nothing"),
        (["--processes", "2", "--concurrency", "10"], "--concurrency: with 2 processes, as many bodies run at once"),
        (["--max-tasks", "0"], "--max-tasks: 0 would replace the process"),
        (["--max-memory", "0"], "--max-memory: 0 would replace the process"),
    ],
)
def test_flags_that_cannot_be_are_refused(fleet: Fleet, flags: list[str], said: str) -> None:
    process = fleet.command("runworker", *flags)
    assert process.ends(30) == 1
    assert said in process.output


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
