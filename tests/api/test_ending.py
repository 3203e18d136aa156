"""A server that is told to go answers whatever it holds, at once (spec: api.md, "Under the server")."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from typing import Any

import httpx
import pytest
from django.core.asgi import get_asgi_application
from django.db import connection
from django.test import AsyncClient

from ezgh_workflows_django.api.asgi import bounded
from ezgh_workflows_django.api.dispatcher import Dispatcher
from ezgh_workflows_django.api.holds import holds
from ezgh_workflows_django.engine import leases
from ezgh_workflows_django.models import Lease
from ezgh_workflows_django.protocol.messages import Claimed
from ezgh_workflows_django.protocol.states import LeaseStatus
from tests.api.crowd import Crowd, Heard
from tests.api.server import Server
from tests.api.test_asgi import Remote
from tests.api.test_holds import Holding
from tests.engine.graphs import job
from tests.process.conftest import until

CLAIMS, WATCHING = 900, 100
MANY = CLAIMS + WATCHING
LONG = 45_000


class Asked:
    """One request to an application, as a server hands it in whose client stays: it says nothing more, whatever it is answered."""

    def __init__(self, application: Any, remote: Remote, method: str, path: str, body: Any = None) -> None:
        path, _, query = path.partition("?")
        headers = [(b"authorization", f"Bearer {remote.key}".encode()), (b"host", b"localhost")]
        self.sent: list[Any] = []
        self._body = b"" if body is None else json.dumps(body).encode()
        self._is_read = False
        scope = {"type": "http", "method": method, "path": f"/v1/api/{path}", "query_string": query.encode()}
        scope["headers"] = [*headers, (b"content-length", str(len(self._body)).encode())]
        self.task = asyncio.create_task(application(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        if self._is_read:
            await asyncio.Event().wait()
        self._is_read = True
        return {"type": "http.request", "body": self._body}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def heard(self) -> tuple[int, Any]:
        """Status and body of the answer."""
        start, body = self.sent
        assert {name.lower(): value for name, value in start["headers"]}[b"content-length"] == str(len(body["body"])).encode()
        return start["status"], json.loads(body["body"])


@pytest.fixture
def inside(over_asgi: AsyncClient) -> Remote:
    """A caller over ASGI."""
    return Remote(over_asgi)


def claim(inside: Remote, number: int) -> Any:
    """The body of a claim that is held."""
    serves = [{"name": "job", "revision": "1"}]
    return {"worker_id": inside.worker_id, "claim_id": f"held-{number}", "max": 1, "wait_ms": 20_000, "serves": serves}


def test_whatever_is_held_is_answered_before_the_loop_does_anything_else(inside: Remote) -> None:
    """Nothing of an ending goes through a thread, the database or Django; and Django, for which these clients have gone, has nothing to add."""

    async def story() -> tuple[list[Asked], list[Asked], Any]:
        await inside.claim(wait_ms=0)
        run = (await inside.call("POST", "runs", {"workflow": "job", "delay_ms": 60_000})).body["id"]
        application = bounded(get_asgi_application())
        claims = [Asked(application, inside, "POST", "steps/claim", claim(inside, number)) for number in range(10)]
        watching = [Asked(application, inside, "GET", f"runs/{run}?wait_ms=20000") for _ in range(10)]
        await inside.held(20)
        holds().close()
        await asyncio.sleep(0)
        assert [len(each.sent) for each in claims + watching] == [2] * 20
        await asyncio.wait_for(asyncio.gather(*[each.task for each in claims + watching]), 30)
        assert holds().count == 0
        return claims, watching, (await inside.call("GET", f"runs/{run}")).body

    claims, watching, run = asyncio.run(story())
    assert [each.heard for each in claims] == [(200, {"leases": []})] * 10
    assert [each.heard for each in watching] == [(200, run)] * 10


def test_a_claim_that_has_just_been_given_something_leaves_with_it(inside: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    pause = Dispatcher._pause

    async def told_to_go(self: Dispatcher) -> None:
        if any(waiter.answer.done() for waiter in self._waiting):
            holds().close()
        await pause(self)

    async def story() -> Asked:
        await inside.claim(wait_ms=0)
        asked = Asked(bounded(get_asgi_application()), inside, "POST", "steps/claim", claim(inside, 1))
        await inside.held(1)
        monkeypatch.setattr(Dispatcher, "_pause", told_to_go)
        await inside.call("POST", "runs", {"workflow": "job"})
        await asyncio.wait_for(asked.task, 30)
        assert holds().is_closing
        return asked

    status, body = asyncio.run(story()).heard
    assert (status, [lease["id"] for lease in body["leases"]]) == (200, [str(Lease.objects.get().pk)])
    assert Lease.objects.get().status == LeaseStatus.OFFERED


def test_what_a_look_brings_for_a_claim_that_has_left_goes_back(inside: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look had begun before the server was told to go, and is over before Django has let go of the claim."""
    looking, told = threading.Event(), threading.Event()
    look_again = leases.Claim.look_again

    def slow(self: leases.Claim) -> tuple[leases.Claim | None, Claimed]:
        now, claimed = look_again(self)
        if claimed.leases:
            looking.set()
            told.wait(30)
        return now, claimed

    async def story() -> Asked:
        await inside.claim(wait_ms=0)
        asked = Asked(bounded(get_asgi_application()), inside, "POST", "steps/claim", claim(inside, 1))
        await inside.held(1)
        monkeypatch.setattr(leases.Claim, "look_again", slow)
        await inside.call("POST", "runs", {"workflow": "job"})
        assert await asyncio.to_thread(looking.wait, 30)
        told.set()
        time.sleep(0.2)  # noqa: ASYNC251 - the loop is to hear of the look's end and of the server's in one go
        holds().close()
        await asyncio.wait_for(asked.task, 30)
        await asyncio.to_thread(until, lambda: _status() == LeaseStatus.RETURNED)
        return asked

    assert asyncio.run(story()).heard == (200, {"leases": []})


def _status() -> str:
    found = Lease.objects.get().status
    connection.close()  # this thread's
    return found


def test_a_project_without_the_line_in_its_asgi_py_answers_too(inside: Remote) -> None:
    async def story() -> list[Any]:
        await inside.claim(wait_ms=0)
        run = (await inside.call("POST", "runs", {"workflow": "job", "delay_ms": 60_000})).body["id"]
        waiting = [asyncio.create_task(call) for call in (inside.claim(), inside.call("GET", f"runs/{run}?wait_ms=20000"))]
        await inside.held(2)
        holds().close()
        return [reply.body for reply in await asyncio.wait_for(asyncio.gather(*waiting), 15)]

    claimed, run = asyncio.run(story())
    assert (claimed, run["status"]) == ({"leases": []}, "queued")


@pytest.mark.live
@pytest.mark.process
@pytest.mark.parametrize("workflows", [{"KEY_RATE": 0, "REQUEST_TIMEOUT": 60}], ids=["long"])
def test_a_thousand_holds_end_in_a_fraction_of_the_time_in_which_they_came(remote: httpx.Client, server: Server) -> None:
    """Most are claims, some wait for a run. A busy machine slows their coming as much as their going."""
    body = Holding(remote, 0).body
    remote.post("steps/claim", json=body(wait_ms=0)).raise_for_status()
    run = job().start(delay=60).id

    async def story() -> tuple[float, float, list[Heard]]:
        async with Crowd(server.url, remote.headers["authorization"].split()[1]) as crowd:
            begun = time.monotonic()
            claims = await crowd.ask("POST", "steps/claim", [body(wait_ms=LONG) for _ in range(CLAIMS)])
            watching = await crowd.ask("GET", f"runs/{run}?wait_ms={LONG}", [None] * WATCHING)
            await asyncio.to_thread(until, lambda: remote.get("health").json()["held"] == MANY, 60)
            told = time.monotonic()
            server.popen.send_signal(signal.SIGTERM)
            heard = await asyncio.gather(*claims, *watching)
            return told - begun, max(each.at for each in heard) - told, heard

    came, went, heard = asyncio.run(story())
    print(f"{MANY} holds came in {came:.2f} s and were answered in {went:.2f} s")
    assert server.popen.wait(30) == -signal.SIGTERM, server.log.read_text()
    assert {each.status for each in heard} == {200}
    assert [each.body for each in heard[:CLAIMS]] == [{"leases": []}] * CLAIMS
    assert {each.body["id"] for each in heard[CLAIMS:]} == {run}
    assert went < came / 10
