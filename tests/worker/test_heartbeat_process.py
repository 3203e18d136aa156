"""Heartbeats from a process of their own: with real processes, and the parts of it without."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from ezgh_workflows_django.errors import InvalidArgument, Unavailable
from ezgh_workflows_django.protocol.messages import Claimed, ClaimRequest, Lease
from ezgh_workflows_django.testing.scripted import ScriptedTransport, lease_of
from ezgh_workflows_django.worker import Worker, claims
from ezgh_workflows_django.worker.cancellation import Why
from ezgh_workflows_django.worker.hands import Hands, Held
from ezgh_workflows_django.worker.heartbeat import SILENT_AFTER
from ezgh_workflows_django.worker.heartbeat_child import ProcessHeartbeat
from ezgh_workflows_django.worker.heartbeat_process import Beater, Charge, _is_stopped
from ezgh_workflows_django.worker.transports.recipe import Recipe

from .beats import Desk
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
    thread.join(5)
    assert not thread.is_alive()


@pytest.fixture
def spawn(desk: Desk) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """`spawn(body)`: a worker process whose body has begun, the leader of a group of its own."""
    spawned: list[subprocess.Popen[str]] = []

    def start(body: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.worker.a_worker", desk.address, body],
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
    """The next line it says, within ten seconds."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 10)[0], "it says nothing"
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
    assert held.cancelled.wait(10)
    assert held.cancelled.why is Why.FENCED


@pytest.mark.process
def test_a_process_that_dies_is_replaced_and_told_all_anew(heartbeat: ProcessHeartbeat, desk: Desk, held: Held) -> None:
    desk.next_with(held.lease.id)
    first = heartbeat.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert desk.gone.wait(5)
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
    assert (line_of(process), line_of(process), process.wait(10)) == ("ended", "['completed']", 0)


@pytest.mark.process
def test_a_worker_that_is_killed_takes_its_heartbeats_along(spawn: Callable[[str], Any], desk: Desk) -> None:
    process = spawn("never_ends")
    desk.next_with("lease")
    process.kill()
    assert desk.gone.wait(5)


@pytest.mark.process
def test_sigterm_to_the_whole_group_lets_the_body_finish_with_its_heartbeats(spawn: Callable[[str], Any], desk: Desk) -> None:
    process = spawn("waits")
    os.killpg(process.pid, signal.SIGTERM)
    for _ in range(5):
        desk.next_with("lease")
    finish(process)
    assert (line_of(process), line_of(process), process.wait(10)) == ("ended", "['completed']", 0)
    assert desk.gone.wait(5)


@pytest.mark.process
def test_a_second_signal_ends_it_now(spawn: Callable[[str], Any]) -> None:
    process = spawn("never_ends")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 1


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
        assert time.monotonic() < begun_at + 10, "the heartbeat process was not started"
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


def test_a_charge_forgets_what_it_is_told_to_let_go() -> None:
    charge = Charge(1.0, 0.0)
    charge.told({"hold": ["a", "b"]}, 0.0)
    charge.told({"let_go": ["a"]}, 0.0)
    assert [beat.lease_id for beat in charge.beats()] == ["b"]


def test_progress_of_a_lease_that_is_gone_holds_nothing() -> None:
    charge = Charge(1.0, 0.0)
    charge.told({"progress": ["a", 1]}, 0.0)
    assert charge.beats() == []


@pytest.mark.parametrize(("now", "is_stopped", "calls"), [(SILENT_AFTER, False, 1), (SILENT_AFTER + 1, False, 0), (1.0, True, 0)])
def test_the_process_is_silent_for_a_dead_or_stopped_worker(now: float, is_stopped: bool, calls: int) -> None:
    charge, server = Charge(1.0, 0.0), ScriptedTransport()
    charge.told({"hold": ["a"]}, 0.0)
    Beater(server, charge, lambda said: None, lambda: is_stopped).run_once(now)
    assert len(server.named("heartbeat")) == calls


def test_a_stamp_of_the_workers_loop_lets_it_go_on() -> None:
    charge = Charge(1.0, 0.0)
    charge.told({"stamp": True}, SILENT_AFTER)
    assert not charge.is_silent(2 * SILENT_AFTER)


def test_the_process_tries_again_within_five_seconds() -> None:
    charge, server = Charge(20.0, 0.0), ScriptedTransport()
    charge.told({"hold": ["a"]}, 0.0)
    said: list[dict[str, Any]] = []
    server.fail("heartbeat", *(Unavailable("down") for _ in range(20)))
    beater = Beater(server, charge, said.append, lambda: False)
    assert max(beater.run_once(1.0) for _ in range(20)) <= 5
    assert "down" in said[0]["trouble"]


def test_heartbeats_in_a_process_need_a_recipe() -> None:
    with pytest.raises(InvalidArgument, match="recipe"):
        Worker(ScriptedTransport(), workflows=[one_step(lambda: None)], heartbeat="process").run_sync()
