"""PostgreSQL goes and comes back under held claims: nobody is lost, nothing is answered with a fault of ours (cases B16, B38)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.cluster import Cluster, programs
from tests.api.crowd import Crowd, Heard
from tests.api.server import Server
from tests.conftest import ROOT, environment
from tests.engine.graphs import job
from tests.process.conftest import until

pytestmark = [pytest.mark.process, pytest.mark.live]

HELD = 100


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server of this test's own."""
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL's own programs are not on this machine")
    cluster = Cluster(found)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def env(cluster: Cluster) -> Mapping[str, str]:
    """The environment of processes that use it."""
    return {**environment(cluster.url), "PGAPPNAME": "ezgh-held", "WORKFLOWS": json.dumps({"KEY_RATE": 0, "LEASE_TTL": 60, "REQUEST_TIMEOUT": 60})}


@pytest.fixture
def server(cluster: Cluster, env: Mapping[str, str], tmp_path: Path) -> Iterator[Server]:
    """A live server on it."""
    manage(env, "migrate", "--verbosity", "0")
    running = Server(env, tmp_path / "server.log")
    try:
        running.wait_until_up()
        yield running
    finally:
        running.close()


@pytest.fixture
def client(server: Server, env: Mapping[str, str]) -> Iterator[httpx.Client]:
    """A client of that server, with a key that may do everything."""
    key = json.loads(manage(env, "workflows_key", "create", "remote", "--permission", "admin", "--format", "json"))["key"]
    with httpx.Client(base_url=f"{server.url}/v1/api/", headers={"authorization": f"Bearer {key}"}, timeout=60) as client:
        yield client


def manage(env: Mapping[str, str], *arguments: str) -> str:
    """What a management command prints."""
    done = subprocess.run([sys.executable, "manage.py", *arguments], cwd=ROOT, env=dict(env), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_held_claims_outlive_a_restart_of_the_database(cluster: Cluster, server: Server, client: httpx.Client) -> None:
    """While it is away calls are answered 503 with Retry-After; afterwards leases live on, held claims get what comes, and the bell rings again."""
    workflow = job()
    worker_id = client.post("workers/register", json={"worker": "w", "app": "default", "definitions": [workflow.to_spec()]}).json()["worker_id"]

    def claim(**rest: Any) -> Any:
        serves = [{"name": "job", "revision": workflow.revision}]
        return {"worker_id": worker_id, "claim_id": uuid.uuid4().hex, "max": 1, "wait_ms": 45_000, "serves": serves, **rest}

    first = client.post("runs", json={"workflow": "job"}).json()["id"]
    later = client.post("runs", json={"workflow": "job", "delay_ms": 120_000}).json()["id"]
    [lease] = client.post("steps/claim", json=claim()).json()["leases"]
    assert client.post(f"steps/{lease['id']}/started", json={}).status_code == 200
    away = {
        f"steps/{lease['id']}/heartbeat": {},
        f"steps/{lease['id']}/complete": {"output": 1},
        "steps/heartbeat": {"leases": [{"id": lease["id"]}]},
        "steps/outcomes": {"outcomes": [{"id": lease["id"], "complete": {"output": 1}}]},
        "steps/claim": claim(),
        "runs": {"workflow": "job"},
    }

    async def story() -> tuple[list[Heard], list[Heard]]:
        async with Crowd(server.url, client.headers["authorization"].split()[1]) as crowd:
            claims = await crowd.ask("POST", "steps/claim", [claim() for _ in range(HELD)])
            watching = await crowd.ask("GET", f"runs/{first}?wait_ms=45000", [None] * 5)
            await asyncio.to_thread(until, lambda: client.get("health").json()["held"] == HELD + 5)
            await asyncio.to_thread(cluster.kill)
            for path, body in away.items():
                told = await asyncio.to_thread(client.post, path, json=body)
                assert (path, told.status_code, told.headers["retry-after"]) == (path, 503, "2"), told.text
                assert told.json()["error"]["code"] == "unavailable"
            await asyncio.to_thread(until, lambda: all(text in server.log.read_text() for text in ("could not look for work", "could not look how runs stand")))
            assert not [each for each in claims + watching if each.done()]
            await asyncio.to_thread(cluster.start)
            await asyncio.to_thread(until, lambda: client.post(f"steps/{lease['id']}/heartbeat", json={}).status_code == 200)
            await asyncio.to_thread(until, lambda: cluster.ask("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'") == 1)
            await asyncio.to_thread(start, client, HELD)
            await asyncio.to_thread(until, lambda: client.post(f"steps/{lease['id']}/complete", json={"output": 7}).status_code in (200, 409))
            return await asyncio.gather(*claims), await asyncio.gather(*watching)

    claimed, watched = asyncio.run(story())
    assert {each.status for each in claimed} == {200}
    assert len({given["run_id"] for each in claimed for given in each.body["leases"]}) == HELD
    assert {(each.status, each.body["status"], each.body["output"]) for each in watched} == {(200, "succeeded", 7)}
    assert client.get(f"runs/{later}").json()["status"] == "queued"
    assert client.get("health").json()["held"] == 0
    assert '" 500' not in server.log.read_text()


def start(client: httpx.Client, count: int) -> None:
    """Start so many runs. A connection that died with the database may be met once more on each of the server's threads."""
    while count:
        told = client.post("runs", json={"workflow": "job"})
        assert told.status_code in (201, 503), told.text
        count -= told.status_code == 201
