"""Starts real workers on the test's database, hears what their bodies say, and sees that none outlives its test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ezgh_workflows_django import RunHandle, Workflow
from ezgh_workflows_django.models import JournalEntry, Lease
from tests.conftest import ROOT

TTL = 3
WINDOW = 2
HEARTBEAT = 1
TICK = 1
MARGIN = 3
"""Seconds. The margin is for two cores that others use too."""

TIMES = {"LEASE_TTL": TTL, "RECOVERY_WINDOW": WINDOW, "HEARTBEAT": HEARTBEAT, "OFFER_TTL": 5}


def until(condition: Callable[[], Any], seconds: float = 30) -> Any:
    """The first true answer of `condition`, asked again and again; the test fails where it takes longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"{condition} did not come true within {seconds} s"
        time.sleep(0.02)
    return answer


class Folder:
    """Where bodies leave their words, and find the test's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def __str__(self) -> str:
        return str(self.path)

    def say(self, word: str) -> None:
        """Let bodies that wait for it go on."""
        (self.path / word).touch()

    def heard(self, word: str) -> list[int]:
        """The processes whose bodies have left that word."""
        return [int(found.suffix[1:]) for found in self.path.glob(f"{word}.*")]


class Process:
    """One `manage.py` process, the leader of a group of its own."""

    def __init__(self, arguments: list[str], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self.popen = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=env, stdout=output, stderr=output, start_new_session=True)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.popen.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.popen.poll() is None

    def said(self, text: str) -> bool:
        """Whether it has printed that."""
        return text in self.output

    @property
    def output(self) -> str:
        """All it has printed."""
        return self.log.read_text()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; not to its heartbeat process."""
        self.popen.send_signal(number)

    def ends(self, within: float = 15) -> int:
        """Its exit code, once it has ended."""
        return self.popen.wait(within)

    def close(self) -> None:
        """See that nothing is left of it."""
        if self.is_alive:
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.wait(10)


class Fleet:
    """The worker processes of a test."""

    def __init__(self, env: Mapping[str, str], folder: Path) -> None:
        self._env = env
        self._folder = folder
        self._processes: list[Process] = []

    def program(self, *arguments: str, **workflows: Any) -> Process:
        """Start a Python program on the test's database; `workflows` are settings of its own."""
        env = {**self._env, "EXTRA_APPS": "tests.process.workers", "WORKFLOWS": json.dumps(TIMES | workflows)}
        process = Process(list(arguments), env, self._folder / f"{len(self._processes)}.log")
        self._processes.append(process)
        return process

    def command(self, name: str, *flags: str, **workflows: Any) -> Process:
        """Start a management command."""
        return self.program("manage.py", name, *flags, **workflows)

    def worker(self, name: str, *flags: str, **workflows: Any) -> Process:
        """Start a worker, and wait until it looks for work."""
        process = self.command("runworker", "--name", name, *flags, **workflows)

        def is_ready() -> bool:
            assert process.is_alive, process.output
            return process.said(": ready")

        until(is_ready)
        return process

    def close(self) -> None:
        """End them all."""
        for process in self._processes:
            process.close()


@pytest.fixture
def fleet(child_env: Mapping[str, str], tmp_path: Path) -> Iterator[Fleet]:
    """Starts processes; none outlives the test."""
    fleet = Fleet(child_env, tmp_path)
    yield fleet
    fleet.close()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Where this test and its bodies talk."""
    return Folder(tmp_path / "words")


def at_work(fleet: Fleet, folder: Folder, workflow: Workflow, name: str, *flags: str, **settings: Any) -> tuple[Process, RunHandle]:
    """A worker in whose hands the body of a run of that workflow has begun, and the run."""
    worker = fleet.worker(name, *flags, **settings)
    run = workflow.start(str(folder))
    until(lambda: folder.heard("begun"))
    return worker, run


def leases(handle: RunHandle) -> list[Lease]:
    """The leases of a run, in order."""
    return list(Lease.objects.filter(run__pk=handle.id).order_by("token"))


def kinds(handle: RunHandle) -> list[str]:
    """What happened to a run, in order."""
    return list(JournalEntry.objects.filter(run__pk=handle.id).order_by("seq").values_list("kind", flat=True))


def refusals(handle: RunHandle, worker: str) -> list[tuple[str, str]]:
    """The refused calls of that worker for a run: reason and call.

    Another's may be there too: a heartbeat that crosses its own completion is refused `already_applied`.
    """
    entries = JournalEntry.objects.filter(run__pk=handle.id, kind="lease.refused", worker=worker).order_by("seq")
    return [(data["reason"], data["call"]) for data in map(json.loads, entries.values_list("data", flat=True))]
