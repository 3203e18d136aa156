"""Calls that are lost on their way, before the server and after it, by raw HTTP through a proxy that hangs up (cases B03, B37, B38, B79)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.db import connection

from ezgh_workflows_django import Step, Workflow
from ezgh_workflows_django.engine import maintenance
from ezgh_workflows_django.models import JournalEntry, Lease, Run, Tick
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.protocol.states import LeaseStatus
from tests.api.crowd import Crowd
from tests.api.server import Server
from tests.api.test_holds import Holding
from tests.engine.graphs import body, chain, job
from tests.engine.situations import pair
from tests.process.conftest import MARGIN, until
from tests.process.proxy import Proxy

pytestmark = [pytest.mark.process, pytest.mark.live]

OFFER_TTL = 3
LONG = 20_000
EDGY = 100

Lose = Callable[[Proxy, str], None]
SOON = pytest.mark.parametrize("workflows", [{"OFFER_TTL": OFFER_TTL}], ids=["soon"])
BOTH = pytest.mark.parametrize("lose", [Proxy.lose_request, pytest.param(Proxy.lose_reply, marks=pytest.mark.long)], ids=["request", "reply"])
"""Those marked `long` run on each database."""


class Hand:
    """One worker, by hand."""

    numbers = itertools.count(1)

    def __init__(self, url: str, key: str, name: str, *workflows: Workflow) -> None:
        self.client = httpx.Client(base_url=f"{url.rstrip('/')}/v1/api/", headers={"authorization": f"Bearer {key}"}, timeout=60)
        specs = [workflow.to_spec() for workflow in workflows]
        self.id = self.client.post("workers/register", json={"worker": name, "app": "default", "definitions": specs}).json()["worker_id"]
        self.revisions = {workflow.name: workflow.revision for workflow in workflows}

    def body(self, workflow: str, *steps: str, **rest: Any) -> dict[str, Any]:
        """The body of a claim of one lease."""
        serves: dict[str, Any] = {"name": workflow, "revision": self.revisions[workflow]}
        serves |= {"steps": list(steps)} if steps else {}
        return {"worker_id": self.id, "claim_id": f"c{next(self.numbers)}", "max": 1, "wait_ms": 0, "serves": [serves], **rest}

    def claim(self, workflow: str, *steps: str, **rest: Any) -> list[Any]:
        """The leases of one claim."""
        return list(self.client.post("steps/claim", json=self.body(workflow, *steps, **rest)).json()["leases"])

    def take(self, workflow: str, *steps: str) -> Any:
        """The one lease there is, begun."""
        [lease] = self.claim(workflow, *steps)
        assert self.on(lease, "started").status_code == 200
        return lease

    def on(self, lease: Any, call: str, body: Any = None) -> httpx.Response:
        """One call on a lease."""
        return self.insist(f"steps/{lease['id']}/{call}", {} if body is None else body)

    def insist(self, path: str, body: Any) -> httpx.Response:
        """The same call again, until an answer comes back: what the protocol asks of a worker."""
        while True:
            try:
                return self.client.post(path, json=body)
            except httpx.TransportError:
                continue


class Town:
    """Two workers: the first one's calls go through the proxy, the second one's do not."""

    def __init__(self, server: Server, proxy: Proxy, key: str) -> None:
        kinds = [chain("a", "b"), pair(), job(), Workflow("careful", [Step("work", run=body, delivery="at_most_once")])]
        self.of = {workflow.name: workflow for workflow in kinds}
        self.proxy = proxy
        self.first, self.second = Hand(proxy.url, key, "w1", *kinds), Hand(server.url, key, "w2", *kinds)

    def close(self) -> None:
        """Let go of both connections."""
        self.first.client.close()
        self.second.client.close()


@pytest.fixture
def town(remote: httpx.Client, server: Server) -> Iterator[Town]:
    """A live server, two workers, and a way to lose things."""
    proxy = Proxy(server.url)
    town = Town(server, proxy, remote.headers["authorization"].split()[1])
    try:
        yield town
    finally:
        town.close()
        proxy.close()


def told_of(reply: httpx.Response) -> tuple[int, str, Any]:
    """Status, code and stored outcome of a refusal."""
    error = reply.json()["error"]
    return reply.status_code, error["code"], error.get("outcome")


def refusals_of(lease: Any) -> int:
    """How many refusals of that lease are in its run's journal."""
    return JournalEntry.objects.filter(run=lease["run_id"], kind="lease.refused", worker="w1").count()


def overdue(lease: Any) -> None:
    """Let a lease's next moment be long ago, and maintenance see to it."""
    row = Lease.objects.get(pk=lease["id"])
    long_ago = row.offered_at - timedelta(minutes=5)
    maintenance.tick()
    Tick.objects.update(lenient_until=None)  # on a slow machine the first tick comes late, and spares the silent
    Lease.objects.filter(pk=row.pk).update(expires_at=long_ago, due_at=long_ago, orphaned_at=row.orphaned_at and long_ago)
    until(lambda: maintenance.tick() and Lease.objects.get(pk=row.pk).status != row.status)


def applied(town: Town) -> tuple[Any, str, Any]:
    """The first worker has completed its step; the second one has the next."""
    town.of["chain"].start()
    lease = town.first.take("chain")
    assert town.first.on(lease, "complete", {"output": "in time"}).status_code == 200
    return lease, "already_applied", town.second.take("chain")


def fenced(town: Town) -> tuple[Any, str, Any]:
    """The first worker was silent too long; the second one has its step."""
    town.of["job"].start()
    lease = town.first.take("job")
    overdue(lease)
    overdue(lease)
    assert Lease.objects.get(pk=lease["id"]).status == LeaseStatus.RECLAIMED
    return lease, "fenced", town.second.take("job")


def terminal(town: Town) -> tuple[Any, str, Any]:
    """Both workers were at it when the run was cancelled."""
    run = town.of["pair"].start()
    lease, taken = town.first.take("pair", "work"), town.second.take("pair", "beside")
    run.cancel("no more")
    return lease, "run_terminal", taken


def undeclared(town: Town) -> tuple[Any, str, Any]:
    """The first worker forgets to say that it begins; the second one finds nothing."""
    town.of["careful"].start()
    [lease] = town.first.claim("careful")
    assert town.first.on(lease, "heartbeat").status_code == 200
    assert town.second.claim("careful") == []
    return lease, "not_started", None


@BOTH
def test_a_refusal_that_is_lost_is_the_same_when_it_is_asked_for_again(town: Town, lose: Lose) -> None:
    """Each of the four, brought about by a second worker: nothing is applied, nothing runs again, one row tells of it."""
    taken: dict[str, Any] = {}
    for bring_about in (applied, fenced, terminal, undeclared):
        lease, reason, taken[reason] = bring_about(town)
        lose(town.proxy, "/complete")
        told = told_of(town.first.on(lease, "complete", {"output": "late"}))
        assert told == (409, reason, {"status": "completed"} if reason == "already_applied" else None)
        assert told_of(town.first.on(lease, "complete", {"output": "later"})) == told
        assert refusals_of(lease) == 1
        taken[reason] = (lease, taken[reason])
    assert town.proxy.lost == ["/complete"] * 4
    for reason in ("already_applied", "fenced"):
        assert town.second.on(taken[reason][1], "complete", {"output": "second"}).json()["run"] == "succeeded"
    assert told_of(town.second.on(taken["run_terminal"][1], "complete"))[1] == "run_terminal"
    careful = taken["not_started"][0]
    assert town.first.on(careful, "started").status_code == 200
    assert town.first.on(careful, "complete", {"output": "declared"}).json()["run"] == "succeeded"
    assert [town.second.claim(name) for name in town.of] == [[]] * 4
    outputs = StepRow.objects.exclude(output=None).values_list("run__workflow", "name", "output")
    assert set(outputs) == {("chain", "a", '"in time"'), ("chain", "b", '"second"'), ("job", "work", '"second"'), ("careful", "work", '"declared"')}
    begun = {name: Lease.objects.filter(run__workflow=name, started_at__isnull=False).count() for name in town.of}
    assert begun == {"chain": 2, "job": 2, "pair": 2, "careful": 1}


@BOTH
def test_a_call_that_is_lost_is_made_again_and_done_once(town: Town, lose: Lose) -> None:
    """B37. What was applied is told as `already_applied`, with what is stored: the worker takes it for done."""
    first, once = town.first, lose is Proxy.lose_request
    runs = [town.of["job"].start(n) for n in range(3)]
    claim = first.body("job", max=3)
    lose(town.proxy, "/claim")
    leases = first.insist("steps/claim", claim).json()["leases"]
    assert {lease["id"] for lease in first.insist("steps/claim", claim).json()["leases"]} == {lease["id"] for lease in leases}
    assert len(leases) == Lease.objects.count() == 3
    assert town.second.claim("job") == []
    one, two, three = leases
    for lease in leases:
        lose(town.proxy, "/started")
        assert first.on(lease, "started").status_code == 200
    lose(town.proxy, "/heartbeat")
    assert first.on(one, "heartbeat", {"progress": 1}).status_code == 200
    lose(town.proxy, "/checkpoint")
    stored = first.on(one, "checkpoint", {"name": "charge", "pos": 1, "kind": "step", "output": {"id": 7}})
    assert (stored.json()["output"], Run.objects.count()) == ({"id": 7}, 3)
    lose(town.proxy, "/children")
    kids = first.on(one, "children", {"name": "kids", "pos": 2, "workflow": "job", "payloads": [1, 2]}).json()["runs"]
    assert {str(pk) for pk in Run.objects.filter(parent=runs[int(one["input"])].id).values_list("pk", flat=True)} == set(kids)
    lose(town.proxy, "/suspend")
    parked = first.on(one, "suspend", {"waits": [{"name": "nap", "kind": "sleep", "ms": 3_600_000}]})
    lose(town.proxy, "/fail")
    failed = first.on(two, "fail", {"class": "permanent", "message": "no"})
    lose(town.proxy, "/outcomes")
    [grouped] = first.insist("steps/outcomes", {"outcomes": [{"id": three["id"], "complete": {"output": "first"}}]}).json()["outcomes"]
    if once:
        assert (parked.json()["step"], failed.json()["run"], grouped["run"]) == ("sleeping", "failed", "succeeded")
    else:
        codes = [parked.json()["error"]["code"], failed.json()["error"]["code"], grouped["error"]["code"]]
        assert codes == ["already_applied"] * 3
        assert failed.json()["error"]["outcome"] == {"status": "failed", "failure": {"class": "permanent", "message": "no"}}
        assert grouped["error"]["outcome"] == {"status": "completed"}
    assert told_of(first.on(three, "complete", {"output": "second"})) == (409, "already_applied", {"status": "completed"})
    assert StepRow.objects.get(run=three["run_id"]).output == '"first"'
    assert len(town.proxy.lost) == 10
    taken = town.second.claim("job", max=10)
    assert {lease["run_id"] for lease in taken} == set(kids)
    assert Lease.objects.filter(started_at__isnull=False).count() == 3


@SOON
def test_what_was_given_to_a_client_that_died_in_that_moment_comes_back_as_its_offer_expires(town: Town) -> None:
    """B03. The server has answered and nobody has read it: the next worker gets the step, and no attempt is counted."""
    town.proxy.lose_reply("/claim")
    run = town.of["job"].start()
    with pytest.raises(httpx.TransportError):
        town.first.client.post("steps/claim", json=town.first.body("job", wait_ms=LONG))
    town.first.client.close()
    [lease] = town.second.claim("job", wait_ms=LONG)
    lost, found = Lease.objects.filter(run=run.id).order_by("token")
    assert (lost.status, found.status) == (LeaseStatus.RECLAIMED, LeaseStatus.OFFERED)
    assert (lost.attempt, lease["attempt"]) == (1, 1)
    assert timedelta(0) <= found.offered_at - lost.expires_at <= timedelta(seconds=MARGIN)
    assert lost.expires_at - lost.offered_at == timedelta(seconds=OFFER_TTL)
    assert JournalEntry.objects.filter(run=run.id, kind="lease.offer_expired").count() == 1


@SOON
def test_clients_that_give_up_as_work_comes_lose_none_of_it(remote: httpx.Client, server: Server) -> None:
    """B79, at the edge: a hundred hang up one after the other while a hundred runs are started; somebody who is there gets each of them."""
    holding = Holding(remote, 0)
    seen: list[str] = []

    async def story() -> None:
        key = remote.headers["authorization"].split()[1]
        async with Crowd(server.url, key) as crowd:
            waiting = await crowd.ask("POST", "steps/claim", [holding.body(wait_ms=LONG) for _ in range(EDGY)])
            await asyncio.to_thread(holding.are_held, EDGY)
            await asyncio.gather(asyncio.to_thread(_start), crowd.hang_up())
            await asyncio.gather(*waiting, return_exceptions=True)
        # None of these answers counts: their clients are taken for dead.

    def _start() -> None:
        for n in range(EDGY):
            job().start(n)
        connection.close()  # this thread's

    asyncio.run(story())
    while len(seen) < EDGY:
        told = remote.post("steps/claim", json=holding.body(wait_ms=LONG, max=EDGY))
        assert told.status_code == 200
        assert told.json()["leases"], f"{EDGY - len(seen)} runs are lost"
        assert remote.post("steps/started", json={"leases": [lease["id"] for lease in told.json()["leases"]]}).status_code == 200
        seen += [lease["run_id"] for lease in told.json()["leases"]]
    assert len(set(seen)) == EDGY
    assert not Lease.objects.exclude(attempt=1).exists()
    assert '" 500' not in server.log.read_text()
