"""Held claims on a live ASGI server: woken, given back when the client goes, answered when the server is told to go (cases B03, B79)."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.db import connection

from ezgh_workflows_django.engine import keys
from ezgh_workflows_django.models import JournalEntry, Lease, Project
from tests.api.conftest import SYSTEM, MakeKey
from tests.api.crowd import Crowd
from tests.api.server import Server
from tests.engine.graphs import job
from tests.process.conftest import until

pytestmark = [pytest.mark.process, pytest.mark.live]

MANY = 1000
MOST_MS = 60_000
SOON = 5
"""Seconds: the server answers within one, on a machine that does nothing else."""
WAVE = 60


class Holding:
    """Some claims that are held, each in a thread of its own."""

    def __init__(self, remote: httpx.Client, count: int = 1) -> None:
        self.remote = remote
        self.session = remote.post("workers/register", json={"worker": "w", "app": "default", "definitions": [job().to_spec()]}).json()
        self.answers: list[httpx.Response] = []
        self.threads = [threading.Thread(target=self._hold, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def body(self, **rest: Any) -> dict[str, Any]:
        """A claim."""
        serves = [{"name": "job", "revision": job().revision}]
        return {"worker_id": self.session["worker_id"], "claim_id": uuid.uuid4().hex, "max": 1, "wait_ms": 20_000, "serves": serves, **rest}

    def _hold(self) -> None:
        self.answers.append(self.remote.post("steps/claim", json=self.body()))

    def are_held(self, count: int) -> None:
        """Wait until the server holds that many."""
        until(lambda: self.remote.get("health").json()["held"] == count)

    def end(self) -> list[Any]:
        """What they were answered."""
        for thread in self.threads:
            thread.join(30)
        return [answer.json() for answer in self.answers]


def test_a_held_claim_is_answered_when_work_comes(remote: httpx.Client) -> None:
    holding = Holding(remote, 3)
    holding.are_held(3)
    runs = {job().start({"n": n}).id for n in range(3)}
    assert {answer["leases"][0]["run_id"] for answer in holding.end()} == runs


def test_a_client_that_hangs_up_leaves_nothing_leased(remote: httpx.Client, server: Server) -> None:
    holding = Holding(remote)
    holding.are_held(1)
    with httpx.Client(base_url=remote.base_url, headers=remote.headers, timeout=httpx.Timeout(60, read=0.5)) as impatient, pytest.raises(httpx.ReadTimeout):
        impatient.post("steps/claim", json=holding.body())
    holding.are_held(1)
    run = job().start()
    [answer] = holding.end()
    assert answer["leases"][0]["run_id"] == run.id
    assert Lease.objects.count() == 1


def test_a_held_claim_whose_key_is_revoked_gets_nothing_and_the_next_in_line_does(remote: httpx.Client, server: Server, key: MakeKey, project: Project) -> None:
    text = key("worker")
    with httpx.Client(base_url=remote.base_url, headers={"Authorization": f"Bearer {text}"}, timeout=60) as revoked:
        first = Holding(revoked)
        first.are_held(1)
        second = Holding(remote)
        second.are_held(2)
        keys.revoke(text.split("_")[1], by=SYSTEM, project_id=project.pk)
        run = job().start()
        assert [answer["leases"][0]["run_id"] for answer in second.end()] == [run.id]
        assert [answer["leases"] for answer in first.end()] == [[]]
        assert revoked.post("steps/claim", json=first.body()).status_code == 401
    assert Lease.objects.count() == 1


def test_sigterm_answers_every_hold_and_the_server_ends(remote: httpx.Client, server: Server) -> None:
    holding = Holding(remote, 5)
    holding.are_held(5)
    server.stop(10)  # the claims asked for twenty
    assert [answer["leases"] for answer in holding.end()] == [[]] * 5
    assert not JournalEntry.objects.exists()


@pytest.mark.long
@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL tells who is connected")
def test_a_thousand_held_claims_cost_four_connections_keep_nobody_waiting_and_are_answered_at_sigterm(remote: httpx.Client, server: Server) -> None:
    body = Holding(remote, 0).body

    async def story() -> tuple[int, int, list[Any], float]:
        async with Crowd(server.url, remote.headers["authorization"].split()[1]) as crowd:
            waiting = await crowd.ask("POST", "steps/claim", [body(wait_ms=MOST_MS) for _ in range(MANY)])
            await asyncio.to_thread(until, lambda: remote.get("health").json()["held"] == MANY)
            count = await asyncio.to_thread(connections_of, "ezgh-held")
            status = (await asyncio.to_thread(remote.get, "runs")).status_code
            told_at = time.monotonic()
            await asyncio.to_thread(server.stop)
            heard = await asyncio.gather(*waiting)
            return count, status, [each.body["leases"] for each in heard], max(each.at for each in heard) - told_at

    count, status, leases, seconds = asyncio.run(story())
    print(f"{MANY} held claims over {count} connections, the last answered {seconds:.2f} s after SIGTERM")
    assert status == 200
    assert count <= 4
    assert leases == [[]] * MANY
    assert seconds < SOON


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_waves_of_claims_leave_no_thread_and_no_memory_behind(remote: httpx.Client, server: Server) -> None:
    """Case B76, with DEBUG on. Half of each wave hangs up; the first waves warm the process up."""
    body = Holding(remote, 0).body

    async def wave() -> None:
        async with Crowd(server.url, remote.headers["authorization"].split()[1]) as crowd, Crowd(server.url, crowd.key) as dead:
            waiting = await crowd.ask("POST", "steps/claim", [body(wait_ms=20_000) for _ in range(WAVE)])
            await dead.ask("POST", "steps/claim", [body(wait_ms=20_000) for _ in range(WAVE)])
            await asyncio.to_thread(until, lambda: remote.get("health").json()["held"] == 2 * WAVE)
            await dead.hang_up()
            await asyncio.to_thread(until, lambda: remote.get("health").json()["held"] == WAVE)
            for each in waiting:
                each.cancel()
        await asyncio.to_thread(until, lambda: remote.get("health").json()["held"] == 0)

    grown: list[tuple[int, int]] = []
    for _ in range(5):
        asyncio.run(wave())
        grown.append((size_of(server, "Threads"), size_of(server, "VmRSS")))
    print(f"threads and kB after each wave: {grown}")
    (threads, memory), (most_threads, most_memory) = grown[2], grown[-1]
    assert most_threads <= threads + 3
    assert most_memory <= memory * 1.1


def size_of(server: Server, what: str) -> int:
    """A number of the server's process, as Linux has it."""
    lines = Path(f"/proc/{server.popen.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{what}:")))


def connections_of(name: str) -> int:
    """How many sessions of that name this test's database has."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()", [name])
        count = int(cursor.fetchone()[0])
    connection.close()
    return count
