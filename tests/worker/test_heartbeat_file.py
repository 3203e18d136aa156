"""`--heartbeat-file`: as old as the slowest loop of the process, whatever else in it is well."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ezgh_workflows_django.management.heartbeat_file import HeartbeatFile
from ezgh_workflows_django.protocol.messages import Claimed, ClaimRequest, Lease
from ezgh_workflows_django.testing.scripted import SESSION, ScriptedTransport, lease_of

from .bench import Ear, Running, one_step, told

Start = Callable[..., Running]


class Stuck(ScriptedTransport):
    """A server whose second claim does not come back until it is let go."""

    def __init__(self, *leases: Lease) -> None:
        super().__init__(*leases, session=replace(SESSION, max_wait_ms=100))
        self.is_stuck = threading.Event()
        self.let_go = threading.Event()

    def claim(self, request: ClaimRequest) -> Claimed:
        if self.named("claim"):
            self.is_stuck.set()
            self.let_go.wait(30)
        return super().claim(request)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "beat"


def is_touched(path: Path) -> bool:
    """Whether it was touched since it was asked last."""
    was = path.stat().st_mtime
    os.utime(path, (0, 0))
    return was > 0


def test_a_loop_that_is_stuck_touches_it_no_more_though_bodies_end_and_are_reported(work: Start, path: Path) -> None:
    go_on, never = threading.Event(), threading.Event()
    job, begun = told(lambda ctx: go_on.wait(30))
    lease = lease_of(job, "only")
    server = Stuck(lease)
    work(server, job, listener=HeartbeatFile(path, ["default"]).of("default", Ear()))
    assert server.is_stuck.wait(60)
    assert begun.wait(60)
    assert is_touched(path)
    go_on.set()
    server.wait_until(lambda: bool(server.outcomes[lease.id]))
    assert not is_touched(path)
    server.let_go.set()
    while not is_touched(path):
        assert not never.wait(0.02)


def test_an_app_whose_loop_is_stuck_is_not_hidden_by_the_others(path: Path) -> None:
    file = HeartbeatFile(path, ["a", "b"])
    one, other = file.of("a", Ear()), file.of("b", Ear())
    assert is_touched(path)
    for _ in range(3):
        one.alive()
    assert not is_touched(path)
    other.alive()
    assert is_touched(path)
    one.alive()
    assert not is_touched(path)


def test_a_worker_that_has_ended_is_waited_for_no_more(work: Start, path: Path) -> None:
    file = HeartbeatFile(path, ["default", "other"])
    other = file.of("other", Ear())
    work(ScriptedTransport(), one_step(lambda: None), until_idle=True, listener=file.of("default", Ear())).join()
    other.alive()
    is_touched(path)
    other.alive()
    assert is_touched(path)
