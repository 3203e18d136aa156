"""A run's journal as server-sent events: in order, resumed without gap or double, held as claims are."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission as DjangoPermission
from django.db import OperationalError, transaction
from django.db.backends.utils import CursorWrapper
from django.test import AsyncClient, Client, override_settings

from ezgh_workflows_django.api import endings, stream
from ezgh_workflows_django.api.holds import holds
from ezgh_workflows_django.api.threads import threads
from ezgh_workflows_django.engine import keys, retention, runs
from ezgh_workflows_django.engine.clock import Now, read_at
from ezgh_workflows_django.models import App, Project, Run, Trail
from tests.api.conftest import SYSTEM, Caller
from tests.api.server import Server
from tests.api.test_asgi import Remote
from tests.engine.graphs import chain, job
from tests.engine.test_statements import CONTROL
from tests.process.conftest import until

Made = tuple[int, str]
"""A thread, and a statement of it."""


@dataclass(frozen=True)
class Event:
    """What stands between two empty lines of a stream."""

    text: str

    @property
    def fields(self) -> dict[str, str]:
        """The fields by name; a comment has none."""
        return dict(line.split(": ", 1) for line in self.text.splitlines() if not line.startswith(":"))

    @property
    def data(self) -> Any:
        """What it tells."""
        return json.loads(self.fields["data"])

    @property
    def seq(self) -> int | None:
        """The number of an entry; None for what is none."""
        return int(self.fields["id"]) if "id" in self.fields else None


class Telling:
    """An open stream."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._left = ""
        self.text = ""

    async def events(self) -> AsyncIterator[Event]:
        """Each as it comes."""
        async for chunk in self._chunks:
            self._left += chunk.decode()
            self.text += chunk.decode()
            while "\n\n" in self._left:
                event, _, self._left = self._left.partition("\n\n")
                yield Event(event)

    async def entries(self, count: int | None = None) -> list[int]:
        """The `seq` of the next so many entries, or of all to the stream's end."""
        found: list[int] = []
        async for event in self.events():
            if event.seq is not None:
                found.append(event.seq)
            if len(found) == count:
                break
        return found


@asynccontextmanager
async def opened(remote: Remote, run_id: str, **headers: str) -> AsyncIterator[Telling]:
    """A stream of a run, closed at the end as when its client hangs up."""
    shown = {"authorization": f"Bearer {remote.key}"} if remote.key else {}
    response: Any = await remote.client.get(f"/v1/api/runs/{run_id}/events", headers={**shown, **headers})
    assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream")
    chunks = response.streaming_content
    try:
        yield Telling(chunks)
    finally:
        await chunks.aclose()


@pytest.fixture
def remote(over_asgi: AsyncClient) -> Remote:
    """A caller over ASGI."""
    return Remote(over_asgi)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[Made]:
    """The statements about our tables that all threads make; what a new connection asks first is none."""
    made: list[Made] = []
    execute = CursorWrapper.execute

    def noted(self: Any, sql: Any, params: Any = None) -> Any:
        if "ezgh_workflows_" in str(sql) and not str(sql).startswith(CONTROL):
            made.append((threading.get_ident(), str(sql)))
        return execute(self, sql, params)

    monkeypatch.setattr(CursorWrapper, "execute", noted)
    return made


async def a_run(remote: Remote, workflow: Any = None) -> str:
    """The id of a new run."""
    definitions = [(workflow or job()).to_spec()]
    told = await remote.call("POST", "workers/register", {"worker": "w", "app": "default", "definitions": definitions})
    remote.worker_id = told.body["worker_id"]
    return str((await remote.call("POST", "runs", {"workflow": definitions[0]["name"]})).body["id"])


async def work(remote: Remote, name: str = "job") -> str:
    """Do one step; gives the id of its lease."""
    [lease] = (await remote.claim(wait_ms=0, serves=[{"name": name, "revision": "1"}])).body["leases"]
    await remote.call("POST", f"steps/{lease['id']}/started", {})
    await remote.call("POST", f"steps/{lease['id']}/complete", {"output": 5})
    return str(lease["id"])


def test_the_journal_is_told_as_it_grows_and_the_stream_ends_with_the_run(remote: Remote) -> None:
    async def story() -> tuple[Telling, list[Event], str, list[Any], int]:
        run_id = await a_run(remote)
        async with opened(remote, run_id) as telling:
            reading = asyncio.create_task(all_of(telling))
            await remote.held(1)
            lease_id = await work(remote)
            events = await reading
        journal = (await remote.call("GET", f"runs/{run_id}/journal")).body["entries"]
        return telling, events, lease_id, journal, holds().count

    telling, events, lease_id, journal, held = asyncio.run(story())
    assert events[0].fields == {"retry": "1000"}
    assert [event.data for event in events if event.seq] == journal
    assert [event.seq for event in events if event.seq] == list(range(1, Run.objects.get().journal_seq + 1))
    assert (events[-1].fields["event"], events[-1].data) == ("end", {"id": str(Run.objects.get().pk), "status": "succeeded"})
    assert lease_id not in telling.text
    assert Trail.objects.filter(action="ReadRun").count() == 1
    assert held == 0


def test_it_is_resumed_without_gap_or_double(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that hangs up after each entry, while the run goes on, has seen each once."""
    monkeypatch.setattr(stream, "AT_ONCE", 2)

    async def story() -> list[int]:
        run_id = await a_run(remote, chain("a", "b", "c"))
        working = asyncio.create_task(work_on(remote, "chain", 3))
        seen = [0]
        while found := await first_entry(remote, run_id, seen[-1]):
            seen.append(found)
        await working
        return seen[1:]

    seen = asyncio.run(story())
    assert seen == list(range(1, Run.objects.get().journal_seq + 1))
    assert len(seen) > 6


@pytest.mark.parametrize("told", ["x", "-1", "1.5", "²", "99999999999", "2147483648"])
def test_an_id_that_is_none_is_refused_by_name(api: Caller, told: str) -> None:
    api.register(job())
    reply = api.call("GET", f"api/runs/{job().start().id}/events", **{"last-event-id": told})
    assert reply.why == (400, "invalid")
    assert list(reply.body["error"]["fields"]) == ["Last-Event-ID"]


def test_under_wsgi_it_tells_what_there_is_and_asks_to_be_asked_again(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header counts more than the query; a stretch that is cut says nothing of the end."""
    session = api.register(job())
    run = job().start()
    session.on(session.take(), "complete")
    last = Run.objects.get().journal_seq

    def told(query: str, **headers: str) -> list[Event]:
        response = Client().get(f"/v1/api/runs/{run.id}/events{query}", headers={**api.headers, **headers})
        assert response.headers["content-type"] == "text/event-stream"
        return [Event(text) for text in response.content.decode().split("\n\n") if text]

    assert [event.seq for event in told("")] == [None, *range(1, last + 1), None]
    assert [event.seq for event in told("?after=1", **{"last-event-id": str(last - 1)})] == [None, last, None]
    assert told(f"?after={last}")[-1].fields["event"] == "end"
    monkeypatch.setattr(stream, "AT_ONCE", 2)
    assert [event.fields.keys() for event in told("")] == [{"retry"}, {"id", "data"}, {"id", "data"}]
    assert Trail.objects.filter(action="ReadRun").count() == 1


def test_over_max_held_a_stream_ends_with_what_there_is(remote: Remote) -> None:
    async def story() -> list[Event]:
        run_id = await a_run(remote)
        async with opened(remote, run_id) as first:
            await first.entries(1)
            assert holds().count == 1
            async with opened(remote, run_id) as second:
                return [event async for event in second.events()]

    with override_settings(EZGH_WORKFLOWS={**settings.EZGH_WORKFLOWS, "MAX_HELD": 1}):
        told = asyncio.run(story())
    assert [event.seq for event in told] == [None, *range(1, Run.objects.get().journal_seq + 1)]


def test_a_wake_costs_three_statements_and_all_streams_share_one_look(remote: Remote, statements: list[Made], monkeypatch: pytest.MonkeyPatch) -> None:
    """Who calls, the run, its entries; idle, a stream costs nothing of its own."""
    wakes: list[list[str]] = []
    looks: list[tuple[int, list[str]]] = []
    again, standings = stream.StreamView._checked_again, endings._standings

    def counted(call: Callable[[], Any], into: Callable[[list[str]], None]) -> Any:
        before = len(statements)
        answer = call()
        into([sql for thread, sql in statements[before:] if thread == threading.get_ident()])
        return answer

    async def story() -> None:
        run_ids = [await a_run(remote) for _ in range(3)]
        async with opened(remote, run_ids[0]) as one, opened(remote, run_ids[1]) as two, opened(remote, run_ids[2]) as three:
            for telling in (one, two, three):
                await telling.entries(1)
            await looked(3)
            assert wakes == []
            await remote.call("POST", f"runs/{run_ids[0]}/pause", {})
            await one.entries(1)
            idle = asyncio.create_task(one.entries(1))
            await looked(3)
            idle.cancel()
            await asyncio.gather(idle, return_exceptions=True)

    async def looked(times: int) -> None:
        looks.clear()
        while len(looks) < times:  # noqa: ASYNC110 - the looks tell nobody
            await asyncio.sleep(0.01)

    monkeypatch.setattr(endings, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(stream.StreamView, "_checked_again", lambda self, request, call: counted(lambda: again(self, request, call), wakes.append))
    monkeypatch.setattr(endings, "_standings", lambda runs: counted(lambda: standings(runs), lambda made: looks.append((len(runs), made))))
    asyncio.run(story())
    assert [len(made) for made in wakes] == [3], wakes
    assert {(count, len(made)) for count, made in looks} == {(3, 1)}


def test_a_slow_client_costs_no_reading_and_misses_nothing(remote: Remote, statements: list[Made], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(stream, "AT_ONCE", 2)

    async def story() -> list[int]:
        run_id = await a_run(remote, chain("a", "b", "c"))
        async with opened(remote, run_id) as telling:
            seen = await telling.entries(1)
            before = len(reads(statements))
            await work_on(remote, "chain", 3)
            await asyncio.sleep(0.1)
            assert len(reads(statements)) == before
            return seen + await telling.entries()

    assert asyncio.run(story()) == list(range(1, Run.objects.get().journal_seq + 1))


def test_a_client_that_goes_leaves_its_place(remote: Remote) -> None:
    async def story() -> int:
        run_id = await a_run(remote)
        async with opened(remote, run_id) as telling:
            reading = asyncio.create_task(telling.entries())
            await remote.held(1)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        return holds().count

    assert asyncio.run(story()) == 0


def test_a_client_that_takes_nothing_loses_its_place(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server waits for it in the middle of a chunk, so the stream can't end by itself, nor does Python notice soon that nobody reads it."""
    monkeypatch.setattr(stream, "LONGEST", 0.05)
    monkeypatch.setattr(stream, "PATIENCE", 0.05)

    async def stuck(run_id: str) -> None:
        async with opened(remote, run_id) as telling:
            await telling.entries(1)
            await asyncio.sleep(60)

    async def story() -> None:
        await asyncio.gather(asyncio.create_task(stuck(await a_run(remote))), return_exceptions=True)
        await remote.held(0)

    gc.disable()
    try:
        asyncio.run(asyncio.wait_for(story(), 10))
    finally:
        gc.enable()


def test_silence_is_broken_by_comments_and_a_long_stream_ends_to_be_asked_for_again(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT", 0.05)
    monkeypatch.setattr(stream, "LONGEST", 0.5)

    async def story() -> list[Event]:
        async with opened(remote, await a_run(remote)) as telling:
            return [event async for event in telling.events()]

    events = asyncio.run(story())
    assert events[-1].text == ": nothing new"
    assert not any("end" in event.fields.values() for event in events)


def test_a_server_that_goes_ends_its_streams_without_asking_the_database(remote: Remote, statements: list[Made]) -> None:
    async def story() -> tuple[int, int]:
        run_id = await a_run(remote)
        async with opened(remote, run_id) as telling:
            await telling.entries(1)
            reading = asyncio.create_task(telling.entries())
            await asyncio.sleep(0)
            before = len(reads(statements))
            holds().close()
            await reading
            return len(reads(statements)) - before, holds().count

    assert asyncio.run(asyncio.wait_for(story(), 10)) == (0, 0)


@pytest.mark.parametrize("end", ["revoked", "deleted"])
def test_who_may_read_no_more_and_what_is_gone_ends_a_stream(remote: Remote, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(endings, "LOOK_EVERY", 0.01)

    def change() -> None:
        run = Run.objects.get()
        if end == "revoked":
            keys.revoke(remote.key.split("_")[1], by=SYSTEM, project_id=Project.objects.get().pk)
            runs.pause(run.pk, "", SYSTEM)
        else:
            with transaction.atomic():
                runs.cancel(run.pk, "", SYSTEM)
                retention.prune(read_at(App.objects.annotate(now=Now()).get()) + timedelta(1), 1, timedelta(0))

    async def story() -> tuple[list[int], int]:
        run_id = await a_run(remote)
        async with opened(remote, run_id) as telling:
            seen = await telling.entries(1)
            await threads.run(change)
            return seen + await telling.entries(), holds().count

    seen, held = asyncio.run(asyncio.wait_for(story(), 30))
    assert seen == [1]
    assert held == 0


def test_staff_of_the_site_read_streams_with_their_session(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "LOOK_EVERY", 0.01)
    user = get_user_model().objects.create_user("eva", password="x", is_staff=True)
    user.user_permissions.set(DjangoPermission.objects.filter(codename="view_run"))
    remote.client.force_login(user)

    async def story() -> list[int]:
        run_id = await a_run(remote)
        remote.key = ""
        async with opened(remote, run_id) as telling:
            seen = await telling.entries(1)
            await threads.run(lambda: runs.cancel(run_id, "", SYSTEM))
            return seen + await telling.entries()

    assert asyncio.run(story()) == list(range(1, Run.objects.get().journal_seq + 1))
    assert Trail.objects.get(action="ReadRun").actor == "eva"


def test_a_database_that_is_away_delays_a_stream(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "LOOK_EVERY", 0.01)
    read, failures = stream.stretch, [OperationalError("gone")] * 3

    def failing(run: Run, after: int) -> stream.Stretch:
        if after and failures:
            raise failures.pop()
        return read(run, after)

    async def story() -> list[int]:
        run_id = await a_run(remote)
        async with opened(remote, run_id) as telling:
            seen = await telling.entries(1)
            await work(remote)
            return seen + await telling.entries()

    monkeypatch.setattr(stream, "stretch", failing)
    assert asyncio.run(story()) == list(range(1, Run.objects.get().journal_seq + 1))
    assert failures == []


@pytest.mark.process
@pytest.mark.live
def test_on_a_live_server_streams_are_told_of_a_worker_leave_with_their_clients_and_end_with_the_server(remote_server: httpx.Client, server: Server) -> None:
    def held() -> int:
        return int(remote_server.get("health").json()["held"])

    def lines(run_id: str) -> Generator[str, None, None]:
        with remote_server.stream("GET", f"runs/{run_id}/events") as response:
            yield from response.iter_lines()

    session = remote_server.post("workers/register", json={"worker": "w", "app": "default", "definitions": [job().to_spec()]}).json()
    first, second = (remote_server.post("runs", json={"workflow": "job"}).json()["id"] for _ in range(2))
    leaving = lines(first)
    next(leaving)
    assert held() == 1
    leaving.close()
    until(lambda: held() == 0)
    ended: list[str] = []
    reading = threading.Thread(target=lambda: ended.extend(lines(first)), daemon=True)
    staying: list[str] = []
    waiting = threading.Thread(target=lambda: staying.extend(lines(second)), daemon=True)
    reading.start()
    waiting.start()
    until(lambda: held() == 2)
    claim = {"worker_id": session["worker_id"], "claim_id": "c", "max": 1, "serves": [{"name": "job", "revision": "1"}], "run": first}
    [lease] = remote_server.post("steps/claim", json=claim).json()["leases"]
    remote_server.post(f"steps/{lease['id']}/started", json={})
    remote_server.post(f"steps/{lease['id']}/complete", json={"output": 1})
    reading.join(30)
    assert "event: end" in ended
    begun = time.monotonic()
    server.stop(20)
    waiting.join(20)
    assert not waiting.is_alive()
    assert time.monotonic() - begun < 10  # its heartbeat would come after 15 s, and its end after ten minutes
    assert "id: 1" in staying
    assert "event: end" not in staying


@pytest.fixture
def remote_server(server: Server) -> Iterator[httpx.Client]:
    """A client of a live server, with a key that may do everything."""
    secret = keys.create("streams", ["admin"], by=SYSTEM, project=Project.objects.get(slug="default"))[1]
    with httpx.Client(base_url=f"{server.url}/v1/api/", headers={"authorization": f"Bearer {secret}"}, timeout=60) as client:
        yield client


async def first_entry(remote: Remote, run_id: str, after: int) -> int | None:
    """The `seq` of the first entry that a new stream tells; None where it tells the end."""
    async with opened(remote, run_id, **{"last-event-id": str(after)}) as telling:
        async for event in telling.events():
            if event.seq is not None or event.fields.get("event") == "end":
                return event.seq
    raise AssertionError("the stream ended before the run")


async def all_of(telling: Telling) -> list[Event]:
    """Every event to the stream's end."""
    return [event async for event in telling.events()]


async def work_on(remote: Remote, name: str, count: int) -> None:
    """Do so many steps, one after the other."""
    for _ in range(count):
        await work(remote, name)


def reads(statements: list[Made]) -> list[str]:
    """The statements that read journals."""
    return [sql for _, sql in statements if sql.startswith("SELECT") and "journalentry" in sql]
