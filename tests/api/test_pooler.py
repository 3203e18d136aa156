"""Through pgbouncer in transaction mode (case B73): no session's feature is needed but LISTEN, which has a way of its own or is done without."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from django.db import connection, connections

from tests.addresses import url_of
from tests.api.crowd import Crowd
from tests.api.pooler import SESSIONS, Pooler, program
from tests.api.server import Server
from tests.api.test_holds import Holding, connections_of
from tests.engine.graphs import job
from tests.process.conftest import until

pytestmark = [
    pytest.mark.process,
    pytest.mark.live,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="pgbouncer is PostgreSQL's"),
    pytest.mark.skipif(program() is None, reason="pgbouncer is not on this machine"),
]

HELD = 20


@pytest.fixture
def pooler(transactional_db: None) -> Iterator[Pooler]:
    """In front of the test's database."""
    found = program()
    assert found is not None
    pooler = Pooler(found, connections["default"].settings_dict)
    yield pooler
    pooler.close()


@pytest.fixture
def child_env(child_env: Mapping[str, str], pooler: Pooler) -> Mapping[str, str]:
    """The server only knows the pooler."""
    settings = connections["default"].settings_dict
    return {**child_env, "DATABASE_URL": url_of({**settings, "HOST": "127.0.0.1", "PORT": pooler.port})}


@pytest.fixture
def workflows(listens: bool, transactional_db: None) -> Mapping[str, Any]:
    """With a way past the pooler, or without."""
    return {"LISTEN_DSN": url_of(connections["default"].settings_dict)} if listens else {}


@pytest.mark.parametrize("listens", [True, False], ids=["LISTEN_DSN", "no LISTEN_DSN"])
def test_a_server_behind_a_pooler_holds_claims_and_carries_runs_to_their_end(remote: httpx.Client, server: Server, listens: bool) -> None:
    holding = Holding(remote, 0)

    async def story() -> list[Any]:
        async with Crowd(server.url, remote.headers["authorization"].split()[1]) as crowd:
            waiting = await crowd.ask("POST", "steps/claim", [holding.body() for _ in range(HELD)])
            await asyncio.to_thread(holding.are_held, HELD)
            await asyncio.to_thread(until, lambda: listens or "set LISTEN_DSN" in server.log.read_text())
            await asyncio.to_thread(_start)
            return [(await each).body["leases"] for each in waiting]

    def _start() -> None:
        for n in range(HELD):
            job().start(n)
        connection.close()  # this thread's

    given = asyncio.run(story())
    assert sorted(lease["input"] for leases in given for lease in leases) == list(range(HELD))
    for [lease] in given:
        for call, body in (("started", {}), ("heartbeat", {"progress": 1}), ("complete", {"output": 1})):
            told = remote.post(f"steps/{lease['id']}/{call}", json=body)
            assert told.status_code == 200, told.text
    assert told.json()["run"] == "succeeded"
    assert connections_of("ezgh-held") <= SESSIONS + listens
    assert ("set LISTEN_DSN" in server.log.read_text()) is not listens
    assert '" 500' not in server.log.read_text()
