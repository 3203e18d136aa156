"""Under ASGI: what is held costs nothing while it waits, and what is too large is not read."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.test import AsyncClient, override_settings

from ezgh_workflows_django.api.asgi import bounded
from ezgh_workflows_django.api.claims import ClaimView
from ezgh_workflows_django.api.dispatcher import Dispatcher
from ezgh_workflows_django.api.holds import holds
from ezgh_workflows_django.engine import keys, leases, tenancy, wakeups
from ezgh_workflows_django.models import App, JournalEntry, Lease, Project
from ezgh_workflows_django.protocol.messages import Claimed
from tests.api.conftest import SYSTEM, Reply, reply_of
from tests.engine.graphs import job
from tests.engine.test_statements import CONTROL
from tests.process.conftest import until

numbers = itertools.count(1)


class Remote:
    """Calls the API over ASGI; every call is a coroutine."""

    def __init__(self, client: AsyncClient) -> None:
        tenancy.provision()
        self.client = client
        self.key = keys.create("bot", ["admin"], by=SYSTEM, project=Project.objects.get())[1]
        self.worker_id = ""

    async def call(self, method: str, path: str, body: Any = None) -> Reply:
        """One request."""
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self.key}"}
        return reply_of(await self.client.generic(method, f"/v1/api/{path}", content, "application/json", headers=headers))

    async def claim(self, **rest: Any) -> Reply:
        """A claim, held for twenty seconds unless said otherwise."""
        if not self.worker_id:
            told = await self.call("POST", "workers/register", {"worker": "w", "app": "default", "definitions": [job().to_spec()]})
            self.worker_id = told.body["worker_id"]
        serves = [{"name": "job", "revision": "1"}]
        body = {"worker_id": self.worker_id, "claim_id": f"c{next(numbers)}", "max": 1, "wait_ms": 20_000, "serves": serves, **rest}
        return await self.call("POST", "steps/claim", body)

    async def held(self, count: int) -> None:
        """Until so many requests hang."""
        while holds().count != count:  # noqa: ASYNC110 - the server tells nobody what it holds
            await asyncio.sleep(0.01)


@pytest.fixture
def remote(over_asgi: AsyncClient) -> Remote:
    """A caller over ASGI."""
    return Remote(over_asgi)


@pytest.fixture
def arrivals(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The statements that each claim made before it was held or answered."""
    made: list[tuple[int, str]] = []
    arrived: list[list[str]] = []
    execute, checked = CursorWrapper.execute, ClaimView._checked

    def noted(self: Any, sql: Any, params: Any = None) -> Any:
        if not str(sql).startswith(CONTROL):
            made.append((threading.get_ident(), str(sql)))
        return execute(self, sql, params)

    def counted(self: Any, request: Any, call: Any) -> Any:
        connection.ensure_connection()  # which asks MariaDB what it is, and may be this thread's first
        before = len(made)
        try:
            return checked(self, request, call)
        finally:
            arrived.append([sql for thread, sql in made[before:] if thread == threading.get_ident()])

    monkeypatch.setattr(CursorWrapper, "execute", noted)
    monkeypatch.setattr(ClaimView, "_checked", counted)
    return arrived


def test_an_idle_claim_costs_two_statements(remote: Remote, arrivals: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        waiting: list[asyncio.Task[Reply]] = []
        for count in (1, 2, 3):
            waiting.append(asyncio.create_task(remote.claim()))
            await remote.held(count)
            await asyncio.to_thread(until, lambda: not is_postgres or wakeups.listener.patience == 61)
        holds().close()
        await asyncio.gather(*waiting)

    is_postgres = connection.vendor == "postgresql"
    monkeypatch.setattr(wakeups, "LOOK_EVERY", 60)  # what one look has found holds for as long
    monkeypatch.setattr(wakeups, "LOOK_EVERY_LISTENING", 61)
    asyncio.run(story())
    assert len(arrivals[2]) == 2, arrivals[2]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that look for steps, whoever makes them."""
    made: list[str] = []
    execute = CursorWrapper.execute

    def noted(self: Any, sql: Any, params: Any = None) -> Any:
        if "held_back" in str(sql):
            made.append(str(sql))
        return execute(self, sql, params)

    monkeypatch.setattr(CursorWrapper, "execute", noted)
    return made


def test_held_claims_of_a_run_each_cost_as_little_as_those_of_all_runs(remote: Remote, looks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Their looks are as many, however many hang."""
    runs = [run.id for run in job("other").start_many(range(20))]
    app_id = App.objects.get().pk

    async def all_have_looked(hub: Dispatcher) -> int:
        await asyncio.to_thread(until, lambda: all(hub.knows_empty(waiter.call) for waiter in list(hub._waiting)))
        return len(looks)

    async def story() -> list[int]:
        hub = holds().dispatcher(app_id)
        waiting: list[asyncio.Task[Reply]] = []
        counts = []
        for some in (runs[:2], runs[2:]):
            waiting += [asyncio.create_task(remote.claim(**asked)) for run in some for asked in ({}, {"run": run})]
            await remote.held(len(waiting))
            await asyncio.to_thread(until, lambda: not is_postgres or wakeups.listener.patience == 61)
            before = await all_have_looked(hub)
            wakeups.bell.ring([app_id])
            counts.append(await all_have_looked(hub) - before)
        holds().close()
        await asyncio.gather(*waiting)
        return counts

    is_postgres = connection.vendor == "postgresql"
    monkeypatch.setattr(wakeups, "LOOK_EVERY", 60)
    monkeypatch.setattr(wakeups, "LOOK_EVERY_LISTENING", 61)
    few, many = asyncio.run(story())
    assert few == many == (4 if is_postgres else 2)


def test_a_held_claim_of_a_run_is_given_its_step_and_no_other(remote: Remote) -> None:
    async def story() -> tuple[str, Reply, Reply]:
        [first] = (await _with_a_run(remote)).body["leases"]
        await remote.call("POST", "runs", {"workflow": "job"})
        [second] = (await remote.claim()).body["leases"]
        waiting = [asyncio.create_task(remote.claim(run=lease["run_id"])) for lease in (first, second)]
        await remote.held(2)
        await remote.call("POST", f"steps/{second['id']}/fail", {"class": "returned", "message": "not now"})
        given = await waiting[1]
        holds().close()
        return second["run_id"], await waiting[0], given

    run, nothing, given = asyncio.run(story())
    assert (nothing.body["leases"], [lease["run_id"] for lease in given.body["leases"]]) == ([], [run])


def test_a_start_in_this_process_wakes_a_held_claim(remote: Remote) -> None:
    async def story() -> tuple[Reply, Reply]:
        waiting = asyncio.create_task(remote.claim())
        await remote.held(1)
        started = await remote.call("POST", "runs", {"workflow": "job"})
        return started, await waiting

    started, claimed = asyncio.run(story())
    assert [lease["run_id"] for lease in claimed.body["leases"]] == [started.body["id"]]


def test_a_client_that_goes_while_its_claim_is_held_leaves_nothing_leased(remote: Remote) -> None:
    async def story() -> Reply:
        gone = asyncio.create_task(remote.claim())
        await remote.held(1)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert holds().count == 0
        waiting = asyncio.create_task(remote.claim())
        await remote.held(1)
        await remote.call("POST", "runs", {"workflow": "job"})
        return await waiting

    assert len(asyncio.run(story()).body["leases"]) == 1
    assert Lease.objects.count() == 1


def test_what_a_client_was_given_as_it_went_goes_back_at_once(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes while its claim looks: nobody sees the lease, and the next claim gets the step (case B03)."""
    looked, gone = threading.Event(), threading.Event()
    look = leases.Claim.look

    def slow(self: leases.Claim) -> tuple[leases.Claim, Claimed]:
        now, claimed = look(self)
        if claimed.leases and not looked.is_set():
            looked.set()
            gone.wait(30)
        return now, claimed

    async def story() -> Reply:
        await remote.claim(wait_ms=0)
        await remote.call("POST", "runs", {"workflow": "job"})
        going = asyncio.create_task(remote.claim())
        await asyncio.to_thread(looked.wait, 30)
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        gone.set()
        return await remote.claim()

    monkeypatch.setattr(leases.Claim, "look", slow)
    assert len(asyncio.run(story()).body["leases"]) == 1
    assert JournalEntry.objects.filter(kind="lease.returned").count() == 1
    assert Lease.objects.count() == 2


def test_over_max_held_nothing_is_held(remote: Remote) -> None:
    async def story() -> Reply:
        waiting = asyncio.create_task(remote.claim())
        await remote.held(1)
        told = await remote.claim()
        holds().close()
        await waiting
        return told

    with override_settings(EZGH_WORKFLOWS={**settings.EZGH_WORKFLOWS, "MAX_HELD": 1}):
        assert asyncio.run(story()).body == {"leases": [], "retry_after_ms": 1000}


def test_a_claim_is_never_held_over_four_fifths_of_the_request_timeout(remote: Remote) -> None:
    with override_settings(EZGH_WORKFLOWS={**settings.EZGH_WORKFLOWS, "REQUEST_TIMEOUT": 1}):
        assert asyncio.run(asyncio.wait_for(remote.claim(), 15)).body == {"leases": []}


def test_a_run_is_waited_for(remote: Remote) -> None:
    async def story() -> Reply:
        [lease] = (await _with_a_run(remote)).body["leases"]
        waiting = asyncio.create_task(remote.call("GET", f"runs/{lease['run_id']}?wait_ms=20000"))
        await remote.held(1)
        await remote.call("POST", f"steps/{lease['id']}/started", {})
        await remote.call("POST", f"steps/{lease['id']}/complete", {"output": 5})
        return await waiting

    told = asyncio.run(story())
    assert (told.body["status"], told.body["output"]) == ("succeeded", 5)


async def _with_a_run(remote: Remote) -> Reply:
    await remote.claim(wait_ms=0)
    await remote.call("POST", "runs", {"workflow": "job"})
    return await remote.claim()


def asked(path: str, headers: list[tuple[bytes, bytes]], *bodies: bytes) -> tuple[list[Any], list[int]]:
    """What the bounded application of a test answers, and how many messages of the request were read before each message of the answer."""
    read: list[Any] = []
    sent: list[Any] = []
    before: list[int] = []

    async def receive() -> Any:
        read.append(None)
        return {"type": "http.request", "body": bodies[len(read) - 1], "more_body": len(read) < len(bodies)}

    async def send(message: Any) -> None:
        sent.append(message)
        before.append(len(read))

    async def application(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            continue
        await send({"type": "http.response.start", "status": 200, "headers": []})

    scope = {"type": "http", "path": path, "headers": headers}
    with override_settings(EZGH_WORKFLOWS={**settings.EZGH_WORKFLOWS, "MAX_REQUEST_BYTES": 1024}):
        asyncio.run(bounded(application)(scope, receive, send))
    return sent, before


def test_a_large_request_is_refused_before_it_is_read() -> None:
    sent, before = asked("/v1/api/runs", [(b"content-length", b"2000")], b"x" * 1000, b"x" * 1000)
    assert (sent[0]["status"], json.loads(sent[1]["body"])["error"]["code"]) == (413, "payload_too_large")
    assert ([message.get("more_body") for message in sent], before) == ([None, True, None], [0, 0, 2])  # it ends when the client has sent all


def test_a_request_that_hides_its_size_is_cut_off() -> None:
    sent, before = asked("/v1/api/runs", [(b"transfer-encoding", b"chunked")], *[b"x" * 600] * 5)
    assert ([message.get("status") for message in sent], before) == ([413, None, None], [2, 2, 5])


def test_a_client_that_stops_sending_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    async def receive() -> Any:
        await asyncio.Event().wait()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nothing is asked")

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    monkeypatch.setattr("ezgh_workflows_django.api.asgi.LINGERING", 0.05)
    scope = {"type": "http", "path": "/v1/api/runs", "headers": [(b"content-length", b"99999999")]}
    asyncio.run(asyncio.wait_for(bounded(application)(scope, receive, send), 30))
    assert ([message.get("status") for message in sent], sent[-1]) == ([413, None, None], {"type": "http.response.body"})


def test_requests_to_others_are_none_of_our_business() -> None:
    sent, before = asked("/admin/login/", [(b"content-length", b"2000")], b"x" * 2000)
    assert (sent[0]["status"], before) == (200, [1])
