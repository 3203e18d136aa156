"""While the database takes no writes, as in a failover, what would write is a 503 that says when to come back; what only reads goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from django.db import connection

from tests.api.conftest import Caller, MakeKey
from tests.engine.graphs import job

SWITCHES: Final = {
    "sqlite": ("PRAGMA query_only = ON", "PRAGMA query_only = OFF"),
    "postgresql": ("SET default_transaction_read_only = on", "SET default_transaction_read_only = off"),
    "mysql": ("SET SESSION TRANSACTION READ ONLY", "SET SESSION TRANSACTION READ WRITE"),
}


@pytest.fixture
def read_only(transactional_db: None) -> Iterator[Callable[[], None]]:
    """`read_only()`: from now on this connection may not write."""
    on, off = SWITCHES[connection.vendor]

    def switch(statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    yield lambda: switch(on)
    switch(off)


def test_what_would_write_is_a_503_and_what_reads_goes_on(read_only: Callable[[], None], key: MakeKey) -> None:
    api = Caller(key("admin"))
    session = api.register(job())
    job().start()
    lease: Any = session.take()
    assert api.get("api/runs").status == 200  # the key's use has been noted
    read_only()
    answers = [
        api.post("api/runs", {"workflow": "job"}),
        api.post("api/events", {"name": "paid"}),
        api.post("api/workers/register", {"worker": "w", "app": "default"}),
        session.on(lease, "complete", {"output": 1}),
        api.post(f"api/runs/{lease['run_id']}/cancel"),
    ]
    assert [(told.why, int(told.headers["Retry-After"]) > 0) for told in answers] == [((503, "unavailable"), True)] * len(answers)
    assert api.get("api/runs").status == 200
