"""A worker that is told to stop: what runs goes on to its end, nothing new begins, and the exit code says how it went."""

from __future__ import annotations

import signal

import pytest

from ezgh_workflows_django import Workflow
from ezgh_workflows_django.models import Lease
from ezgh_workflows_django.protocol.states import LeaseStatus, RunStatus

from .conftest import HEARTBEAT, MARGIN, TTL, Fleet, Folder, at_work, kinds, leases, until
from .workers.workflows import cancellable, gated, offloading, quick

pytestmark = pytest.mark.process


@pytest.mark.long
def test_a_running_body_outlives_sigterm_by_six_leases_with_no_gap_in_its_heartbeats(fleet: Fleet, folder: Folder) -> None:
    """B18: no claim after SIGTERM, exit 0, and the idle worker never sees the step."""
    stopping, run = at_work(fleet, folder, gated, "stopping", "--grace", "60")
    [lease] = leases(run)
    fleet.worker("idle")
    stopping.send(signal.SIGTERM)
    until(lambda: stopping.said("stopping: 1 bodies at work"))
    later = [quick.start(number) for number in range(10)]
    assert [other.result(timeout=20) for other in later] == list(range(10))

    def has_lived_six_leases() -> bool:
        found = Lease.objects.get(pk=lease.pk)
        assert found.started_at is not None
        return (found.expires_at - found.started_at).total_seconds() > 7 * TTL

    until(has_lived_six_leases, 60)
    folder.say("go")
    assert run.result(timeout=20) == stopping.pid
    assert stopping.ends() == 0
    assert [found.status for found in leases(run)] == [LeaseStatus.COMPLETED]
    assert "lease.orphaned" not in kinds(run)
    assert set(Lease.objects.filter(run__in=[other.id for other in later]).values_list("worker_name", flat=True)) == {"idle"}


@pytest.mark.parametrize("workflow", [gated, offloading], ids=lambda workflow: workflow.name)
def test_a_second_signal_ends_the_worker_now(fleet: Fleet, folder: Folder, workflow: Workflow) -> None:
    worker, run = at_work(fleet, folder, workflow, "worker", "--grace", "600")
    worker.send(signal.SIGTERM)
    until(lambda: worker.said("stopping: 1 bodies at work"))
    worker.send(signal.SIGTERM)

    assert worker.ends() == 1
    assert worker.said("a second signal")
    assert run.status == RunStatus.RUNNING


@pytest.mark.long
def test_what_a_cancelled_body_left_in_an_executor_does_not_keep_the_process(fleet: Fleet, folder: Folder) -> None:
    """Python would wait for that thread, although the worker has ended and the attempt was handed back."""
    worker, run = at_work(fleet, folder, offloading, "worker", "--grace", "0")
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0
    assert [lease.status for lease in leases(run)] == [LeaseStatus.RETURNED]
    assert worker.said("not waiting any longer for what bodies left running")


@pytest.mark.long
def test_what_does_not_end_in_the_grace_period_is_handed_back(fleet: Fleet, folder: Folder) -> None:
    worker, run = at_work(fleet, folder, gated, "worker", "--grace", "1")
    worker.send(signal.SIGINT)

    assert worker.ends() == 0
    assert [lease.status for lease in leases(run)] == [LeaseStatus.RETURNED]
    successor = fleet.worker("successor")
    folder.say("go")
    assert run.result(timeout=20) == successor.pid


@pytest.mark.long
def test_a_cancel_reaches_the_body_of_a_worker_that_is_stopping(fleet: Fleet, folder: Folder) -> None:
    """B44."""
    worker, run = at_work(fleet, folder, cancellable, "worker", "--grace", "60")
    worker.send(signal.SIGTERM)
    until(lambda: worker.said("stopping: 1 bodies at work"))
    run.cancel("not wanted any more")

    until(lambda: folder.heard("stopped-run_terminal"), HEARTBEAT + MARGIN)
    assert worker.ends() == 0
    assert run.status == RunStatus.CANCELLED
