"""Workers that die or hang: their steps run again in time, and what they say late is refused."""

from __future__ import annotations

import signal
from datetime import timedelta

import pytest

from ezgh_workflows_django import RunHandle, Workflow
from ezgh_workflows_django.engine import outcomes
from ezgh_workflows_django.models import Lease
from ezgh_workflows_django.protocol.outcomes import Outcome, Report
from ezgh_workflows_django.protocol.states import FailureClass, LeaseStatus, RunStatus

from .conftest import MARGIN, TICK, TTL, WINDOW, Fleet, Folder, Process, at_work, kinds, leases, refusals, until
from .workers.workflows import GIL_SECONDS, blocking, deadly, gated, gil, leaving, quick, spinning, stubborn

pytestmark = pytest.mark.process

AT_LEAST = timedelta(seconds=WINDOW)
STALL = 20
"""Seconds more for which the next attempt is waited for: one that comes too late is told by how late it was."""

AT_MOST = timedelta(seconds=WINDOW + TICK + MARGIN)
"""From the moment a lease expires to the start of the next attempt."""


def took_over(handle: RunHandle) -> Lease:
    """The second attempt's lease, once its body runs."""

    def has_second_attempt() -> Lease | None:
        return next((lease for lease in leases(handle) if lease.attempt == 2 and lease.started_at), None)

    lease: Lease = until(has_second_attempt, 2 * TTL + WINDOW + TICK + STALL)
    return lease


def waited(first: Lease, second: Lease) -> timedelta:
    """How long the step lay idle after the first attempt's lease expired."""
    assert second.started_at is not None
    return second.started_at - Lease.objects.get(pk=first.pk).expires_at


@pytest.mark.long
def test_the_step_of_a_killed_worker_runs_again_in_time_and_a_late_completion_is_fenced(fleet: Fleet, folder: Folder) -> None:
    victim, run = at_work(fleet, folder, gated, "victim")
    successor = fleet.worker("successor")
    [first] = leases(run)
    victim.send(signal.SIGKILL)
    second = took_over(run)
    folder.say("go")

    assert run.result(timeout=20) == successor.pid
    assert (first.worker_name, second.worker_name) == ("victim", "successor")
    assert AT_LEAST <= waited(first, second) < AT_MOST
    [answer] = outcomes.report([Report(str(first.pk), Outcome.completed("too late"))])
    assert answer.refused is not None
    assert answer.refused.reason == "fenced"
    assert refusals(run, "victim") == [("fenced", "complete")]
    assert run.result(timeout=0) == successor.pid


@pytest.mark.long
def test_a_worker_stopped_past_its_lease_is_fenced_when_it_goes_on(fleet: Fleet, folder: Folder) -> None:
    sleeper, run = at_work(fleet, folder, gated, "sleeper")
    successor = fleet.worker("successor")
    [first] = leases(run)
    sleeper.send(signal.SIGSTOP)
    second = took_over(run)
    folder.say("go")
    assert run.result(timeout=20) == successor.pid

    sleeper.send(signal.SIGCONT)
    until(lambda: sleeper.pid in folder.heard("ended"))
    until(lambda: refusals(run, "sleeper"))
    assert {reason for reason, _ in refusals(run, "sleeper")} == {"fenced"}
    assert AT_LEAST <= waited(first, second) < AT_MOST
    assert run.result(timeout=0) == successor.pid
    sleeper.send(signal.SIGTERM)
    assert sleeper.ends() == 0


@pytest.mark.long
def test_a_worker_that_reuses_a_name_neither_revives_nor_hides_the_old_ones_lease(fleet: Fleet, folder: Folder) -> None:
    """B26: killed, and back at once under the same name."""
    victim, run = at_work(fleet, folder, gated, "pod")
    [first] = leases(run)
    victim.send(signal.SIGKILL)
    back = fleet.worker("pod")
    second = took_over(run)
    folder.say("go")

    assert run.result(timeout=20) == back.pid
    assert (first.worker_name, second.worker_name) == ("pod", "pod")
    assert first.worker_id != second.worker_id
    assert AT_LEAST <= waited(first, second) < AT_MOST
    assert Lease.objects.get(pk=first.pk).status == LeaseStatus.RECLAIMED
    assert kinds(run).count("lease.recovered") == 0


@pytest.mark.long
def test_a_worker_that_starts_leaves_alone_what_another_has_in_hand(fleet: Fleet, folder: Folder) -> None:
    """B29: no recovery at start-up but the ordinary claim."""
    first, run = at_work(fleet, folder, gated, "first")
    fleet.worker("second")
    others = [quick.start(number) for number in range(20)]
    assert [other.result(timeout=20) for other in others] == list(range(20))
    folder.say("go")

    assert run.result(timeout=20) == first.pid
    assert folder.heard("begun") == [first.pid]
    assert len(leases(run)) == 1


@pytest.mark.long
def test_a_step_that_kills_its_workers_fails_as_poison_and_later_work_proceeds(fleet: Fleet, folder: Folder) -> None:
    """B04: `os._exit` in a body, and a supervisor that starts the worker again each time."""
    started: list[Process] = []

    def supervise() -> Process:
        if not started or not started[-1].is_alive:
            started.append(fleet.command("runworker", "--name", "pod", MAX_RECLAIMS=1))
        return started[-1]

    supervise()
    run = deadly.start(str(folder))
    until(lambda: supervise() and run.status == RunStatus.FAILED, 60)
    later = quick.start(1)
    until(lambda: supervise() and later.status == RunStatus.SUCCEEDED)

    assert run.failure is not None
    assert run.failure.class_ == FailureClass.POISON
    assert [lease.attempt for lease in leases(run)] == [1, 2]
    assert len(folder.heard("begun")) == 2


@pytest.mark.long
@pytest.mark.parametrize("raised", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
def test_what_is_no_exception_fails_the_attempt_at_once_and_the_worker_lives(fleet: Fleet, raised: str) -> None:
    """B47."""
    worker = fleet.worker("worker")
    run = leaving.start(raised)
    until(lambda: run.status == RunStatus.FAILED)

    assert run.failure is not None
    assert run.failure.type is not None
    assert run.failure.type.endswith(raised)
    assert quick.start(5).result(timeout=20) == 5
    assert worker.is_alive
    [lease] = leases(run)
    assert lease.ended_by == "worker"


@pytest.mark.long
def test_a_body_that_ignores_its_timeout_costs_a_thread_and_not_the_worker(fleet: Fleet, folder: Folder) -> None:
    """B41: two stubborn bodies in a worker of two, then five short ones; and it still stops when told to."""
    worker = fleet.worker("worker", "--concurrency", "2", "--grace", "1")
    stuck = [stubborn.start(str(folder)) for _ in range(2)]
    short = [quick.start(number) for number in range(5)]

    assert [run.result(timeout=30) for run in short] == [0, 1, 2, 3, 4]
    until(lambda: [run.status for run in stuck] == [RunStatus.FAILED] * 2)
    assert [run.failure.class_ for run in stuck if run.failure] == ["timeout", "timeout"]
    assert worker.said("2 threads are stuck")
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0


@pytest.mark.long
@pytest.mark.parametrize(("busy", "many"), [(gil, 1), (spinning, 1), (spinning, 32), (blocking, 1)], ids=["GIL", "loop", "32 loops", "event loop"])
def test_bodies_that_leave_no_time_for_heartbeats_keep_their_leases(fleet: Fleet, folder: Folder, busy: Workflow, many: int) -> None:
    """B17: one call into C, a loop, many of them, an event loop that is blocked; the heartbeats come from another process."""
    assert GIL_SECONDS >= 2 * TTL
    worker, run = at_work(fleet, folder, busy, "worker", "--concurrency", str(many))
    runs = [run, *(busy.start(str(folder)) for _ in range(many - 1))]
    fleet.worker("idle")
    folder.say("go")

    assert {each.result(timeout=60) for each in runs} == {worker.pid}
    for each in runs:
        assert [lease.status for lease in leases(each)] == [LeaseStatus.COMPLETED]
        assert "lease.orphaned" not in kinds(each)
