"""One run at a time of each key, while the workers that run them are killed (I6; case B20)."""

from __future__ import annotations

import itertools
import os
import signal
from typing import Any

import pytest

from ezgh_workflows_django import Start
from ezgh_workflows_django.engine.invariants import violations
from ezgh_workflows_django.models import Run
from ezgh_workflows_django.protocol.states import RunStatus
from tests.sampling import sampled

from .conftest import Fleet, Folder, Process, until
from .workers.workflows import alone

pytestmark = pytest.mark.process

QUICK: dict[str, Any] = {"LEASE_TTL": 2, "RECOVERY_WINDOW": 1, "HEARTBEAT": 1, "OFFER_TTL": 1}


def work_off(fleet: Fleet, folder: Folder, count: int, keys: int, kills: int, seconds: float) -> None:
    """So many runs, `kills` workers killed in the midst of them, two at work at any time."""
    payloads = ({"folder": str(folder), "key": str(place % keys)} for place in range(count))
    for some in iter(lambda: list(itertools.islice(payloads, 1_000)), []):
        alone.start_many([Start(payload=payload) for payload in some])
    names = (f"w{number}" for number in itertools.count())
    with sampled(1) as most:
        workers: list[Process] = [fleet.worker(next(names), **QUICK) for _ in range(2)]
        for kill in range(kills):
            done = count * (kill + 1) // (kills + 2)
            until(lambda done=done: Run.objects.filter(status=RunStatus.SUCCEEDED).count() >= done, seconds)  # type: ignore[misc]  # a lambda's default
            workers[kill % 2].send(signal.SIGKILL)
            workers[kill % 2] = fleet.worker(next(names), **QUICK)
        until(lambda: not Run.objects.exclude(status=RunStatus.SUCCEEDED).exists(), seconds)
    assert max(most) == 1  # else nobody looked while they were at work
    assert folder.heard("met") == []
    assert Run.objects.count() == count
    until(lambda: not Run.objects.filter(slot_at__isnull=False).exists())
    assert violations() == []


@pytest.mark.long
def test_one_run_of_a_key_at_a_time_though_a_worker_is_killed(fleet: Fleet, folder: Folder) -> None:
    work_off(fleet, folder, count=60, keys=6, kills=1, seconds=60)


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_many_runs_go_one_by_one_for_each_key_while_workers_are_killed(fleet: Fleet, folder: Folder) -> None:
    """Before a release: `ADMISSION_RUNS=10000`, which takes some five minutes."""
    work_off(fleet, folder, count=int(os.environ.get("ADMISSION_RUNS", "1000")), keys=50, kills=6, seconds=900)
