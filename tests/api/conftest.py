"""A key, and a caller that speaks JSON with it: over WSGI in the test's own transaction, or over ASGI on the process's own threads."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.test import AsyncClient, Client

from ezgh_workflows_django import Workflow
from ezgh_workflows_django.api.threads import threads
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.engine import keys, tenancy, wakeups
from ezgh_workflows_django.models import App, Project
from tests.api.server import Server

SYSTEM = ("system", "test")


@dataclass(frozen=True)
class Reply:
    """Status, headers and body of an answer."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def code(self) -> str | None:
        """The code of an error."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        return None if error is None else str(error["code"])

    @property
    def why(self) -> tuple[int, str | None]:
        """Status and code."""
        return self.status, self.code


def reply_of(response: Any) -> Reply:
    """The answer, its body read where it is JSON."""
    is_json = response.headers.get("Content-Type") == "application/json"
    return Reply(response.status_code, json.loads(response.content) if is_json else response.content.decode() or None, response.headers)


class Caller:
    """Calls the API with one key."""

    numbers = itertools.count(1)

    def __init__(self, key: str | None) -> None:
        self.headers: dict[str, str] = {} if key is None else {"authorization": f"Bearer {key}"}
        self._client = Client(raise_request_exception=True)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """One request."""
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        told = self._client.generic(method, f"/v1/{path}", content, "application/json", headers=self.headers | headers)
        return reply_of(told)

    def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        """`POST v1/{path}`."""
        return self.call("POST", path, {} if body is None else body, **headers)

    def get(self, path: str) -> Reply:
        """`GET v1/{path}`."""
        return self.call("GET", path)

    def register(self, *workflows: Workflow, app: str = "default", **rest: Any) -> Session:
        """A worker session that serves these workflows."""
        specs = [workflow.to_spec() for workflow in workflows]
        told = self.post("api/workers/register", {"worker": "w1", "app": app, "definitions": specs, **rest})
        assert told.status == 200, told.body
        return Session(self, told.body, workflows)


class Session:
    """One worker session over HTTP."""

    def __init__(self, caller: Caller, told: Any, workflows: tuple[Workflow, ...]) -> None:
        self.caller = caller
        self.told = told
        self.id = told["worker_id"]
        self.serves = [{"name": workflow.name, "revision": workflow.revision} for workflow in workflows]

    def body(self, **rest: Any) -> dict[str, Any]:
        """The body of a claim."""
        return {"worker_id": self.id, "claim_id": f"c{next(Caller.numbers)}", "max": 10, "wait_ms": 0, "serves": self.serves, **rest}

    def claim(self, **rest: Any) -> list[Any]:
        """The leases of one claim."""
        told = self.caller.post("api/steps/claim", self.body(**rest))
        assert told.status == 200, told.body
        return list(told.body["leases"])

    def take(self) -> Any:
        """The one lease there is, started."""
        [lease] = self.claim(max=1)
        assert self.on(lease, "started").status == 200
        return lease

    def on(self, lease: Any, call: str, body: Any = None) -> Reply:
        """A call on a lease."""
        return self.caller.post(f"api/steps/{lease['id']}/{call}", body)


@pytest.fixture
def project(db: None) -> Project:
    """The default project."""
    tenancy.provision()
    return Project.objects.get(slug="default")


MakeKey = Callable[..., str]


@pytest.fixture
def key(project: Project) -> MakeKey:
    """`key("worker")`: a new key with these permissions, policies or scopes."""

    def make(*grants: str, app: App | None = None, of: Project | None = None, name: str = "bot") -> str:
        return keys.create(name, grants or ("admin",), by=SYSTEM, project=of or project, app=app)[1]

    return make


@pytest.fixture
def api(key: MakeKey) -> Caller:
    """A caller with a key that may do everything in the default project."""
    return Caller(key("admin"))


@pytest.fixture(autouse=True)
def own_registry(request: pytest.FixtureRequest) -> Iterator[None]:
    """The registry is as it was afterwards, and before the database is flushed: what `migrate` leaves there is made from it."""
    if "transactional_db" in request.fixturenames:
        request.getfixturevalue("transactional_db")
    before = registry.swap()
    yield
    registry.swap(before)


@pytest.fixture
def over_asgi(transactional_db: None) -> Iterator[AsyncClient]:
    """A client through ASGI. The process's own threads let go of the database afterwards."""
    yield AsyncClient()
    threads.close()
    wakeups.listener.close()


@pytest.fixture
def workflows() -> Mapping[str, Any]:
    """Settings of the live server; a test may have its own."""
    return {}


@pytest.fixture
def kind() -> type[Server]:
    """Which server it is; a test may have another."""
    return Server


@pytest.fixture
def server(child_env: Mapping[str, str], tmp_path: Path, workflows: Mapping[str, Any], kind: type[Server]) -> Iterator[Server]:
    """A live server on this test's database."""
    tenancy.provision()
    running = kind({**child_env, "PGAPPNAME": "ezgh-held", "WORKFLOWS": json.dumps(workflows)}, tmp_path / "server.log")
    try:
        running.wait_until_up()
        yield running
    finally:
        running.close()


@pytest.fixture
def remote(server: Server) -> Iterator[httpx.Client]:
    """A client of that server, with a key that may do everything."""
    project = Project.objects.get(slug="default")
    secret = keys.create("remote", ["admin"], by=SYSTEM, project=project)[1]
    with httpx.Client(base_url=f"{server.url}/v1/api/", headers={"authorization": f"Bearer {secret}"}, timeout=60) as client:
        yield client
