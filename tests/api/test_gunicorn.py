"""Under gunicorn: its ASGI workers hold claims as uvicorn does; its sync workers hold nothing, so that nobody starves (spec: api.md, "Under the server")."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from django.db import connection

from ezgh_workflows_django.models import Lease, Run
from tests.api.crowd import Crowd
from tests.api.server import AsgiGunicorn, Server, SyncGunicorn
from tests.api.test_holds import Holding, connections_of
from tests.engine.graphs import job
from tests.process.conftest import until

pytestmark = [pytest.mark.process, pytest.mark.live]

HELD = 40
WORKERS = 20
HOLD_MS = 20_000


@pytest.mark.parametrize("kind", [AsgiGunicorn])
def test_asgi_workers_hold_claims_let_go_of_the_dead_and_answer_all_at_sigterm(remote: httpx.Client, server: Server) -> None:
    holding = Holding(remote, 0)
    run = job().start(delay=60).id

    async def story() -> tuple[list[Any], list[Any], int]:
        async with Crowd(server.url, remote.headers["authorization"].split()[1]) as dead, Crowd(server.url, dead.key) as crowd:
            gone = await dead.ask("POST", "steps/claim", [holding.body(wait_ms=HOLD_MS)])
            await asyncio.to_thread(holding.are_held, 1)
            claims = await crowd.ask("POST", "steps/claim", [holding.body(wait_ms=HOLD_MS) for _ in range(HELD)])
            watching = await crowd.ask("GET", f"runs/{run}?wait_ms={HOLD_MS}", [None] * HELD)
            await asyncio.to_thread(holding.are_held, 1 + 2 * HELD)
            await dead.hang_up()
            await asyncio.gather(*gone, return_exceptions=True)
            await asyncio.to_thread(holding.are_held, 2 * HELD)
            count = await asyncio.to_thread(connections_of, "ezgh-held") if connection.vendor == "postgresql" else 0
            assert (await asyncio.to_thread(remote.post, "runs", json={"workflow": "job"})).status_code == 201
            given, _ = await asyncio.wait(claims, timeout=HOLD_MS / 2000, return_when=asyncio.FIRST_COMPLETED)
            server.popen.send_signal(signal.SIGTERM)
            await asyncio.gather(*claims, *watching)
            return [each.result().body for each in given], [each.result() for each in claims + watching], count

    given, heard, count = asyncio.run(story())
    assert server.popen.wait(30) == 0, server.log.read_text()
    assert [len(body["leases"]) for body in given] == [1]
    assert {each.status for each in heard} == {200}
    assert Lease.objects.count() == 1
    assert count <= 4


@pytest.mark.parametrize("kind", [SyncGunicorn])
def test_sync_workers_hold_nothing_and_keep_nobody_waiting(remote: httpx.Client, server: Server) -> None:
    """Two processes that serve one request at a time: with anything held, clients that wait less than a hold would give up."""
    holding = Holding(remote, 0)
    runs = [job().start(n).id for n in range(WORKERS)]
    done = threading.Event()
    polls: list[Any] = []

    def work(number: int) -> None:
        with httpx.Client(base_url=remote.base_url, headers=remote.headers, timeout=HOLD_MS / 2000) as client:
            while not done.is_set():
                told = client.post("steps/claim", json=holding.body(wait_ms=HOLD_MS))
                assert told.status_code == 200, told.text
                polls.append(told.json())
                for lease in told.json()["leases"]:
                    assert client.post(f"steps/{lease['id']}/started", json={}).status_code == 200
                    assert client.post(f"steps/{lease['id']}/complete", json={"output": number}).status_code == 200
                time.sleep(told.json().get("retry_after_ms", 0) / 1000)

    with ThreadPoolExecutor(WORKERS) as pool:
        working = [pool.submit(work, number) for number in range(WORKERS)]
        try:
            with httpx.Client(base_url=remote.base_url, headers=remote.headers, timeout=HOLD_MS / 2000) as person:
                later = person.post("runs", json={"workflow": "job", "delay_ms": 60_000}).json()["id"]
                for _ in range(10):
                    assert person.get("runs").status_code == 200
                    told = person.get(f"runs/{later}?wait_ms={HOLD_MS}")
                    assert (told.status_code, told.json()["status"]) == (200, "queued")
            until(lambda: Run.objects.filter(pk__in=runs, status="succeeded").count() == WORKERS)
            until(lambda: sum(not poll["leases"] for poll in polls) >= 2 * WORKERS)
        finally:
            done.set()
    for each in working:
        each.result()
    assert {poll["retry_after_ms"] for poll in polls if not poll["leases"]} == {1000}
    assert server.stop() == 0, server.log.read_text()
