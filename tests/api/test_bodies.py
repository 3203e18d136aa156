"""A body counts however it is sent: with its length, in chunks, or over a protocol that needs no length. What can't be read is refused by name."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from django.conf import settings
from django.test import Client, override_settings

from ezgh_workflows_django.api import plain_json
from ezgh_workflows_django.api.asgi import bounded
from ezgh_workflows_django.models import Step
from tests.api.conftest import Caller, Reply, reply_of
from tests.api.server import AsgiGunicorn, Server, SyncGunicorn
from tests.engine.graphs import job


def in_chunks(*parts: bytes) -> Iterator[bytes]:
    """A content whose length the client does not know: httpx sends it chunked."""
    yield from parts


def taken(remote: httpx.Client) -> str:
    """The id of a lease, started."""
    told = remote.post("workers/register", json={"worker": "w", "app": "default", "definitions": [job().to_spec()]}).json()
    remote.post("runs", json={"workflow": "job"})
    claim = {"worker_id": told["worker_id"], "claim_id": "c", "max": 1, "serves": [{"name": "job", "revision": "1"}]}
    [lease] = remote.post("steps/claim", json=claim).json()["leases"]
    assert remote.post(f"steps/{lease['id']}/started", json={}).status_code == 200
    return str(lease["id"])


@pytest.mark.live
@pytest.mark.parametrize("kind", [Server, AsgiGunicorn, SyncGunicorn], ids=["uvicorn", "asgi-gunicorn", "sync-gunicorn"])
def test_a_chunked_body_is_read(remote: httpx.Client) -> None:
    lease = taken(remote)
    told = remote.post(f"steps/{lease}/complete", content=in_chunks(b'{"output":', b'{"paid":', b"40}}"))
    assert (told.status_code, told.json()["step"]) == (200, "succeeded")
    assert json.loads(Step.objects.get().output or "null") == {"paid": 40}


@pytest.mark.live
@pytest.mark.parametrize("kind", [Server, AsgiGunicorn, SyncGunicorn], ids=["uvicorn", "asgi-gunicorn", "sync-gunicorn"])
@pytest.mark.parametrize("workflows", [{"MAX_REQUEST_BYTES": 4096}])
@pytest.mark.parametrize("is_chunked", [True, False], ids=["chunked", "with its length"])
def test_a_body_over_the_bound_is_refused_by_name(remote: httpx.Client, server: Server, is_chunked: bool) -> None:
    """To a client that reads only when it has sent all: a server that closes before resets it, and the client never reads why."""
    address = urlsplit(server.url)
    content = in_chunks(b'{"name": "', *[b"x" * 64_000] * 200, b'"}') if is_chunked else b"x" * 12_800_000
    with closing(http.client.HTTPConnection(str(address.hostname), int(address.port or 0), timeout=30)) as connection:
        connection.request("POST", "/v1/api/events", content, dict(remote.headers), encode_chunked=is_chunked)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["error"]["code"]) == (413, "payload_too_large")


class Broken(io.BytesIO):
    """A body whose client goes away after what is there."""

    def read(self, size: int | None = -1) -> bytes:
        """The next of it."""
        if self.tell() == len(self.getvalue()):
            raise ConnectionResetError
        return super().read(size)


def by_wsgi(caller: Caller, content: bytes, **environ: Any) -> Reply:
    """What an event in chunks is answered, through a WSGI server that says no length."""
    told = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/v1/api/events",
        "HTTP_TRANSFER_ENCODING": "chunked",
        "HTTP_AUTHORIZATION": caller.headers["authorization"],
        "wsgi.input": io.BytesIO(content),
    }
    return reply_of(Client().request(**{**told, **environ}))


def test_a_wsgi_server_that_decodes_no_chunks_has_them_refused_by_name(api: Caller) -> None:
    told = by_wsgi(api, b'{"name": "paid"}')
    assert told.why == (411, "length_required")
    assert "Content-Length" in told.body["error"]["message"]


def test_a_wsgi_server_that_decodes_chunks_has_them_read(api: Caller) -> None:
    told = by_wsgi(api, b'{"name": "paid"}', **{"wsgi.input_terminated": True})
    assert told.status == 201


def test_a_client_that_sends_for_ever_is_refused_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return b"x" * (size or 0)

    monkeypatch.setattr(plain_json, "LINGERING", 0.05)
    with pytest.raises(plain_json.TooLarge):
        plain_json.refuse_the_rest(Endless())


@pytest.mark.parametrize(("length", "why"), [(0, (400, "invalid")), (5000, (413, "payload_too_large"))])
def test_a_client_that_goes_away_while_it_sends_is_no_fault_of_ours(api: Caller, length: int, why: tuple[int, str]) -> None:
    with override_settings(EZGH_WORKFLOWS={**settings.EZGH_WORKFLOWS, "MAX_REQUEST_BYTES": 4096}):
        assert by_wsgi(api, b"", **{"wsgi.input_terminated": True, "wsgi.input": Broken(b"x" * length)}).why == why


@pytest.mark.parametrize("version", ["2", "3"])
def test_without_chunks_and_without_a_length_it_is_counted_too(version: str) -> None:
    """HTTP/2 and 3 need neither."""
    sent: list[Any] = []
    bodies = [b"x" * 600] * 5
    left: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": bodies.pop(), "more_body": bool(bodies)}

    async def send(message: Any) -> None:
        sent.append(message)
        left.append(len(bodies))

    async def application(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            continue

    scope = {"type": "http", "http_version": version, "path": "/v1/api/runs", "headers": []}
    with override_settings(EZGH_WORKFLOWS={**settings.EZGH_WORKFLOWS, "MAX_REQUEST_BYTES": 1024}):
        asyncio.run(bounded(application)(scope, receive, send))
    assert (sent[0]["status"], left) == (413, [3, 3, 0])
