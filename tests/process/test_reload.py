"""`runworker --reload`: the code that is on the disk is the code that runs, and what was in hand goes back at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ezgh_workflows_django import start_run
from ezgh_workflows_django.models import Lease, Worker
from ezgh_workflows_django.protocol.states import LeaseStatus
from tests.conftest import ROOT

from .conftest import TIMES, Folder, Process, leases, until
from .workers.workflows import gated

pytestmark = [pytest.mark.process, pytest.mark.live]

APP = """from ezgh_workflows_django import Step, Workflow

changing = Workflow("changing", steps=[Step("only", run=lambda: {returned})])
"""


class Project:
    """An app whose code changes, and a worker that reloads it."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._app = folder / "changing"
        self._app.mkdir()
        (self._app / "__init__.py").touch()
        self.write(APP.format(returned=1))
        own = {"EXTRA_APPS": "tests.process.workers,changing", "WORKFLOWS": json.dumps(TIMES), "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
        self.worker = Process(["manage.py", "runworker", "--reload", "--name", "worker"], {**env, **own}, folder / "worker.log")
        until(lambda: self.worker.said(": ready"))

    def write(self, code: str) -> None:
        """Change the code, in one piece, as editors do."""
        fresh = self._app / "fresh.txt"
        fresh.write_text(code)
        shutil.move(fresh, self._app / "workflows.py")


@pytest.fixture
def project(tmp_path: Path, child_env: Mapping[str, str]) -> Iterator[Project]:
    """The project of a test; its worker does not outlive it."""
    project = Project(tmp_path, child_env)
    yield project
    project.worker.close()


def test_a_change_of_code_is_run_and_what_was_in_hand_goes_back(project: Project, folder: Folder) -> None:
    assert start_run("changing").result(timeout=20) == 1
    run = gated.start(str(folder))
    until(lambda: folder.heard("begun"))
    project.write(APP.format(returned=2))
    until(lambda: project.worker.said("workflows.py has changed: starting again"))
    until(lambda: Worker.objects.count() == 2)

    assert leases(run)[0].status == LeaseStatus.RETURNED
    assert start_run("changing").result(timeout=20) == 2
    folder.say("go")
    assert run.result(timeout=20) in folder.heard("ended")
    project.worker.send(signal.SIGTERM)
    assert project.worker.ends() == 0
    assert not Lease.objects.filter(live_step__isnull=False).exists()


def test_code_that_does_not_load_is_waited_for_until_it_does(project: Project) -> None:
    project.write("this is no Python")
    until(lambda: project.worker.said("it starts again when the code has changed"))
    assert project.worker.is_alive
    project.write(APP.format(returned=3))
    until(lambda: Worker.objects.count() == 2)
    assert start_run("changing").result(timeout=20) == 3
    project.worker.send(signal.SIGINT)
    assert project.worker.ends() == 0
