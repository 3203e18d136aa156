"""Tasks of `django.tasks` in a real worker: found by themselves, run, told, and run again where their worker was killed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from ezgh_workflows_django.contrib.tasks import wiring
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.engine.invariants import violations
from tests.process.conftest import Fleet, Folder, until

pytestmark = pytest.mark.process

TASKS = {
    "default": {
        "BACKEND": "ezgh_workflows_django.contrib.tasks.WorkflowsBackend",
        "QUEUES": ["default", "emails"],
        "OPTIONS": {"MODULES": ["tests.contrib.jobs", "tests.process.workers.tasks"]},
    }
}
QUICK = {"LEASE_TTL": 2, "RECOVERY_WINDOW": 1, "HEARTBEAT": 1, "OFFER_TTL": 2}


@pytest.fixture(autouse=True)
def used(monkeypatch: pytest.MonkeyPatch, transactional_db: None) -> Iterator[None]:
    """This process and its children use the backend, and have migrated with it."""
    monkeypatch.setenv("TASKS", json.dumps(TASKS))
    registry.swap(before := registry.swap())
    with override_settings(TASKS=TASKS):
        wiring.connect()
        wiring.provision("default")
        yield
    registry.swap(before)


@pytest.mark.long
def test_a_worker_runs_the_tasks_of_its_queues_and_outlives_a_kill(fleet: Fleet, folder: Folder) -> None:
    from tests.contrib import jobs
    from tests.process.workers import tasks

    both = ("--app", "default", "--app", "emails")
    worker = fleet.worker("w0", *both, **QUICK)
    done: list[Any] = [jobs.add.enqueue(2), jobs.send.enqueue("ada@example.org"), jobs.fetch.enqueue("https://example.org"), jobs.fail.enqueue("luck")]
    until(lambda: all(each.refresh() is None and each.is_finished for each in done))
    assert [each.return_value for each in done[:3]] == [3, "sent to ada@example.org", {"url": "https://example.org"}]
    assert "in fail" in done[3].errors[0].traceback
    assert done[3].errors[0].exception_class is ValueError
    gated = tasks.gated.enqueue(str(folder))
    until(lambda: folder.heard("begun"))
    gated.refresh()
    assert (gated.status, gated.worker_ids) == ("RUNNING", ["w0"])
    worker.send(signal.SIGKILL)
    fleet.worker("w1", *both, **QUICK)
    until(lambda: len(folder.heard("begun")) == 2)
    folder.say("go")
    until(lambda: gated.refresh() is None and gated.is_finished)
    assert (gated.status, len(gated.worker_ids), gated.attempts) == ("SUCCESSFUL", 2, 2)
    assert violations() == []
