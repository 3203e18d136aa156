"""A program: what the API, a worker, maintenance and the commands do, in the project of these settings. Ends with code 0 if it is all in one database."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import django

django.setup()

from django.core.management import call_command  # noqa: E402 - after Django is set up
from django.db import connections  # noqa: E402
from django.test import Client  # noqa: E402

from ezgh_workflows_django import Worker, emit  # noqa: E402
from ezgh_workflows_django.engine import maintenance  # noqa: E402
from ezgh_workflows_django.engine.direct import DirectEngine  # noqa: E402
from ezgh_workflows_django.worker.transports.direct import DirectTransport  # noqa: E402
from testproject.workflows import order, quote  # noqa: E402
from tests.aliases.settings import ALIAS, OURS  # noqa: E402

OTHERS = [alias for alias in connections if alias != ALIAS]


def close() -> None:
    """Forget who connected to the other databases: Django itself, for a command that wants to know which migrations there are."""
    for alias in OTHERS:
        connections[alias].close()


def unopened() -> None:
    """Nobody has as much as connected to one since."""
    opened = [alias for alias in OTHERS if connections[alias].connection is not None]
    assert not opened, f"connected to {opened}"


def printed(*arguments: Any) -> str:
    """What a command prints."""
    output = io.StringIO()
    call_command(*arguments, stdout=output)
    return output.getvalue()


def migrate() -> None:
    """Each database gets its tables."""
    for alias in ("default", ALIAS):
        call_command("migrate", database=alias, verbosity=0)
    assert not [name for name in connections["default"].introspection.table_names() if name.startswith(OURS)]


class Caller:
    """Calls the API."""

    def __init__(self, key: str) -> None:
        self._client = Client(headers={"authorization": f"Bearer {key}"})

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """One request, which has to succeed."""
        told = self._client.generic(method, f"/v1/{path}", b"" if body is None else json.dumps(body).encode(), "application/json")
        assert told.status_code in (200, 201), (path, told.status_code, told.content)
        return json.loads(told.content)


def over_http(call: Caller) -> None:
    """A worker's calls, a client's and an operator's."""
    worker = call("POST", "api/workers/register", {"worker": "w", "app": "default", "definitions": [quote.to_spec(), order.to_spec()]})
    run = call("POST", "api/runs", {"workflow": "quote", "payload": {"sku": "kite"}, "labels": {"order": "A-1"}, "idempotency_key": "A-1"})["id"]
    serves = [{"name": quote.name, "revision": quote.revision}]
    claim = {"worker_id": worker["worker_id"], "claim_id": "c1", "max": 10, "wait_ms": 1000, "serves": serves}
    for lease in call("POST", "api/steps/claim", claim)["leases"]:
        call("POST", f"api/steps/{lease['id']}/started", {})
        call("POST", f"api/steps/{lease['id']}/heartbeat", {"progress": 1})
        call("POST", f"api/steps/{lease['id']}/checkpoint", {"name": "one", "pos": 1, "kind": "step", "output": 1})
        call("POST", f"api/steps/{lease['id']}/complete", {"output": {"price": 1}, "usage": [{"unit": "calls", "amount": "1"}]})
    for path in ("", "/journal", "/graph"):
        call("GET", f"api/runs/{run}{path}")
    for path in ("runs?label.order=A-1", "workflows", "health"):
        call("GET", f"api/{path}")
    call("POST", f"api/runs/{run}/pause", {"reason": "look"})
    call("POST", f"api/runs/{run}/resume", {})
    call("POST", f"api/runs/{run}/cancel", {"reason": "enough"})
    call("POST", "api/events", {"name": "payment", "key": "A-9", "payload": {}})
    call("POST", "api/runs/cancel", {"filter": {"workflow": "quote"}, "dry_run": True})
    project = "organizations/default/projects/default"
    call("POST", f"{project}/apps", {"name": "second", "kind": "pull"})
    for path in ("apps", "apps/default", "apps/default/workflows", "apps/default/runs", "keys", "trails"):
        call("GET", f"{project}/{path}")
    call("POST", f"api/workers/{worker['worker_id']}/leave", {})


def in_process() -> None:
    """Starts, events, a worker on the database, maintenance."""
    run = order.start({"order": "A-2"}, labels={"order": "A-2"})
    emit("payment.succeeded", key="A-2", payload={"order": "A-2", "paid": 40})
    Worker(DirectTransport(DirectEngine()), workflows=[order], until_idle=True).run_sync()
    assert run.phase == "sleeping", run.phase
    maintenance.tick()


def commands() -> None:
    """Nothing of ours is asked in `default`."""
    asked: list[str] = []

    def noted(execute: Any, sql: str, *rest: Any) -> Any:
        asked.append(sql)
        return execute(sql, *rest)

    with connections["default"].execute_wrapper(noted):
        for command in (["workflows_check"], ["workflows_prune"], ["workflows_maintain", "--once"], ["workflows_key", "list"], ["workflows_app", "list"]):
            printed(*command)
    assert not [sql for sql in asked if OURS in sql], asked


def main() -> None:
    """The whole story."""
    migrate()
    key = json.loads(printed("workflows_key", "create", "remote", "--permission", "admin", "--format", "json"))["key"]
    close()
    over_http(Caller(key))
    in_process()
    unopened()
    commands()
    assert connections["replica"].connection is None
    sys.stdout.write("only the workflows' database was used\n")


if __name__ == "__main__":
    main()
