"""Heartbeats from a process of their own, with real processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from ezgh_workflows_django.protocol.messages import Claimed, ClaimRequest, Lease
from ezgh_workflows_django.testing.scripted import SESSION, ScriptedTransport, lease_of
from ezgh_workflows_django.worker import claims
from ezgh_workflows_django.worker.cancellation import Why
from ezgh_workflows_django.worker.hands import Hands, Held
from ezgh_workflows_django.worker.heartbeat_child import ProcessHeartbeat
from ezgh_workflows_django.worker.heartbeat_process import _is_stopped
from ezgh_workflows_django.worker.transports.recipe import Recipe

from .beats import EVERYTHING, Desk
from .bench import Ear, Running, one_step

Start = Callable[..., Running]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Where heartbeats arrive. Its folder's path is short, as a socket's must be."""
    with TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        yield desk
        desk.close()


@pytest.fixture
def held() -> Held:
    """A lease in hand."""
    return Held(lease_of(one_step(lambda: None), "only"), None, time.monotonic())


@pytest.fixture
def heartbeat(desk: Desk, held: Held) -> Iterator[ProcessHeartbeat]:
    """A heartbeat process that holds one lease."""
    hands = Hands(1)
    hands.take([held])
    heartbeat = ProcessHeartbeat(desk.recipe, hands, Ear(), on_lost_session=lambda: None)
    heartbeat.begin(0.05)
    thread = threading.Thread(target=heartbeat.run, daemon=True)
    thread.start()
    yield heartbeat
    heartbeat.close()
    thread.join(60)
    assert not thread.is_alive()


@pytest.fixture
def spawn(desk: Desk) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`spawn(body, *flags)`: a worker process whose body has begun, the leader of a group of its own."""
    spawned: list[subprocess.Popen[str]] = []

    def start(body: str, *flags: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.worker.a_worker", desk.address, body, *flags],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        spawned.append(process)
        assert line_of(process) == "begun"
        return process

    yield start
    for process in spawned:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line it says, within a minute."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 60)[0], "it says nothing"
    return process.stdout.readline().strip()


def finish(process: subprocess.Popen[str]) -> None:
    """Let the body of `waits` end."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.process
def test_the_process_beats_for_a_lease_in_hand_and_shows_its_progress(heartbeat: ProcessHeartbeat, desk: Desk, held: Held) -> None:
    desk.next_with(held.lease.id)
    held.progress = {"done": 1}
    heartbeat.progressed(held)
    desk.next_with(held.lease.id)
    assert desk.next_with(held.lease.id) == {held.lease.id: {"done": 1}}


@pytest.mark.process
def test_a_refusal_comes_back_over_the_pipe(heartbeat: ProcessHeartbeat, desk: Desk, held: Held) -> None:
    desk.refused[held.lease.id] = "fenced"
    assert held.cancelled.wait(60)
    assert held.cancelled.why is Why.FENCED


@pytest.mark.process
def test_a_refused_key_stops_the_worker_as_loudly_as_from_a_thread(work: Start, ear: Ear, desk: Desk) -> None:
    desk.refused[EVERYTHING] = "403: the key may not heartbeat, give it the permission"
    gate = threading.Event()
    job = one_step(lambda: gate.wait(60))
    server = ScriptedTransport(lease_of(job, "only"), session=replace(SESSION, heartbeat_ms=50))
    running = work(server, job, heartbeat="process", recipe=desk.recipe)
    assert running.join() == 1
    assert ear.errors == ["the server refuses this worker: 403: the key may not heartbeat, give it the permission"]
    assert not [said for said in ear.warnings if "starting another" in said]
    gate.set()


@pytest.mark.process
def test_a_process_that_dies_is_replaced_and_told_all_anew(heartbeat: ProcessHeartbeat, desk: Desk, held: Held) -> None:
    desk.next_with(held.lease.id)
    first = heartbeat.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert desk.gone.wait(60)
    while not desk.beats.empty():
        desk.beats.get()
    desk.next_with(held.lease.id)
    assert heartbeat.pid != first


@pytest.mark.process
def test_signals_to_the_process_do_not_end_it(heartbeat: ProcessHeartbeat, desk: Desk, held: Held) -> None:
    first = heartbeat.pid
    assert first is not None
    os.kill(first, signal.SIGTERM)  # it may not even have begun
    desk.next_with(held.lease.id)
    os.kill(first, signal.SIGINT)
    desk.next_with(held.lease.id)
    desk.next_with(held.lease.id)
    assert heartbeat.pid == first


@pytest.mark.process
def test_a_body_that_holds_the_gil_keeps_its_lease(spawn: Callable[[str], Any], desk: Desk) -> None:
    process = spawn("holds_the_gil")
    begun_at = time.monotonic()
    beats = 0
    while time.monotonic() < begun_at + 1.8:
        desk.next_with("lease")
        beats += 1
    assert beats >= 8
    assert (line_of(process), line_of(process), process.wait(60)) == ("ended", "['completed']", 0)


@pytest.mark.process
def test_a_worker_that_is_killed_takes_its_heartbeats_along(spawn: Callable[[str], Any], desk: Desk) -> None:
    process = spawn("never_ends")
    desk.next_with("lease")
    process.kill()
    assert desk.gone.wait(60)


@pytest.mark.process
def test_sigterm_to_the_whole_group_lets_the_body_finish_with_its_heartbeats(spawn: Callable[[str], Any], desk: Desk) -> None:
    process = spawn("waits")
    os.killpg(process.pid, signal.SIGTERM)
    for _ in range(5):
        desk.next_with("lease")
    finish(process)
    assert (line_of(process), line_of(process), process.wait(60)) == ("ended", "['completed']", 0)
    assert desk.gone.wait(60)


@pytest.mark.process
def test_a_second_signal_ends_it_now(spawn: Callable[[str], Any]) -> None:
    process = spawn("never_ends")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 1


@pytest.mark.process
def test_a_second_signal_ends_one_that_is_awaited_beside_an_event_loop_now(spawn: Callable[..., Any]) -> None:
    process = spawn("never_ends", "awaited")
    process.send_signal(signal.SIGTERM)
    assert line_of(process) == "stopping"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 1


@pytest.mark.process
def test_a_stopped_worker_is_not_kept_alive(spawn: Callable[[str], Any], desk: Desk) -> None:
    process = spawn("waits")
    desk.next_with("lease")
    assert not _is_stopped(process.pid)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert _is_stopped(process.pid)
    process.send_signal(signal.SIGCONT)
    finish(process)


class Onlooker(ScriptedTransport):
    """A server that notes at each claim whether the gate is there."""

    def __init__(self, gate: Path, *leases: Lease) -> None:
        super().__init__(*leases)
        self.seen: list[bool] = []
        self._gate = gate

    def claim(self, request: ClaimRequest) -> Claimed:
        self.seen.append(self._gate.exists())
        return super().claim(request)


@pytest.mark.process
def test_nothing_is_claimed_before_the_process_is_up(work: Start, desk: Desk, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = one_step(lambda: 1)
    server = Onlooker(gate, lease_of(job, "only"))
    heartbeat = {"heartbeat": "process", "recipe": Recipe("tests.worker.beats:late_transport", {"address": desk.address, "gate": str(gate)})}
    running = work(server, job, until_idle=True, **heartbeat)
    begun_at = time.monotonic()
    while not Path(f"{gate}.waiting").exists():
        assert time.monotonic() < begun_at + 60, "the heartbeat process was not started"
        time.sleep(0.01)
    gate.touch()
    assert running.join() == 0
    assert all(server.seen)


@pytest.mark.process
def test_a_process_that_does_not_come_up_only_delays_the_first_claim(work: Start, ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "UP_PATIENCE", 0.5)
    job = one_step(lambda: 1)
    server = ScriptedTransport(lease_of(job, "only"))
    assert work(server, job, until_idle=True, heartbeat="process", recipe=Recipe("tests.worker.beats:nothing")).join() == 0
    assert len([warning for warning in ear.warnings if "not up after 0.5 s" in warning]) == 1
    assert [step for step, _ in ear.done] == ["only"]


@pytest.mark.process
def test_a_worker_told_to_stop_does_not_wait_for_its_heartbeats(work: Start, tmp_path: Path) -> None:
    server = ScriptedTransport()
    recipe = Recipe("tests.worker.beats:late_transport", {"address": "", "gate": str(tmp_path / "never")})
    running = work(server, one_step(lambda: 1), heartbeat="process", recipe=recipe)
    server.wait_until(lambda: bool(server.named("register")))
    assert running.stop() == 0
    assert server.named("claim") == []
