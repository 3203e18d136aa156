"""The worker in TypeScript of the docs: compiled with the npm package, run by Node on a live server, on a line that loses things, on a scripted one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from ezgh_workflows_django.models import Lease, Worker
from ezgh_workflows_django.protocol.states import LeaseStatus
from testproject.workflows import quote
from tests.api.conftest import MakeKey
from tests.api.programs import Programs, compiled_in
from tests.api.script import Script
from tests.api.server import Server
from tests.process.conftest import until
from tests.process.proxy import Proxy

pytestmark = [pytest.mark.process, pytest.mark.live]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled programs."""
    return compiled_in(tmp_path_factory.mktemp("typescript"))


@pytest.fixture
def workflows() -> Mapping[str, Any]:
    """The server's settings: heartbeats are soon."""
    return {"HEARTBEAT": 1}


@pytest.fixture
def programs(compiled: Path, tmp_path: Path) -> Iterator[Programs]:
    """Starts programs, with a key that only a scripted server takes."""
    programs = Programs(compiled, "ezw_wrong_secret", tmp_path)
    yield programs
    programs.close()


@pytest.fixture
def permitted(programs: Programs, transactional_db: None, key: MakeKey) -> Programs:
    """Starts programs with a worker's key."""
    programs.key = key("worker")
    return programs


@pytest.fixture
def scripted() -> Iterator[Script]:
    """A server that answers as a test tells it."""
    script = Script()
    yield script
    script.close()


def start(remote: httpx.Client, workflow: str, payload: Any = None) -> str:
    """A run of that workflow, started over HTTP."""
    return str(remote.post("runs", json={"workflow": workflow, "payload": payload}).raise_for_status().json()["id"])


def over(remote: httpx.Client, run_id: str) -> Any:
    """The run, once it is over."""

    def found() -> Any:
        told = remote.get(f"runs/{run_id}", params={"wait_ms": 5000}).raise_for_status().json()
        return told if told["phase"] in ("succeeded", "failed", "timed_out", "cancelled") else None

    return until(found)


def no_lease_is_left() -> bool:
    return not Lease.objects.filter(live_step__isnull=False).exists()


def test_the_quote_of_the_docs_runs_and_its_worker_stops_at_once(server: Server, remote: httpx.Client, permitted: Programs) -> None:
    node = permitted.ready("quote", server.url)
    for _ in range(20):  # more than it has room for
        start(remote, "quote", "a lamp")
    told = over(remote, start(remote, "quote", "a lamp"))
    assert (told["phase"], told["output"]) == ("succeeded", "ok")
    assert told["version"] == quote.version  # what is said here in TypeScript, and there in Python, is one definition
    node.hears("quote/quote attempt 1: price 120, stock 7\n")
    node.stop()
    assert node.ends() == 0, node.output
    assert no_lease_is_left()
    assert Lease.objects.filter(status=LeaseStatus.COMPLETED).count() >= 3
    assert not Worker.objects.filter(left_at=None).exists()
    assert permitted.key not in node.output


def test_bodies_that_fail_are_told_as_they_failed(server: Server, remote: httpx.Client, permitted: Programs) -> None:
    node = permitted.ready("trial", server.url)
    flaky, broken, endless, unfit, misnamed, deaf, elsewhere = (
        start(remote, name, 1) for name in ("flaky", "broken", "endless", "unfit", "misnamed", "deaf", "elsewhere")
    )
    assert over(remote, flaky)["output"] == 3
    assert _failure(over(remote, broken)) == ("error", 2)
    assert _failure(over(remote, endless)) == ("permanent", 1)
    assert _failure(over(remote, unfit)) == ("permanent", 1)
    assert _failure(over(remote, misnamed)) == ("permanent", 1)
    assert _failure(over(remote, deaf)) == ("timeout", 1)
    until(lambda: Lease.objects.filter(run__pk=elsewhere, status=LeaseStatus.UNSERVABLE).exists())
    until(lambda: remote.get(f"runs/{elsewhere}").json()["phase"] == "queued")
    node.stop()
    assert node.ends() == 0, node.output  # a body that does not listen is left behind


def _failure(told: Any) -> tuple[str, int]:
    assert told["phase"] in ("failed", "timed_out"), told
    return told["failure"]["class"], told["failure"]["attempts"]


def test_a_stopped_worker_lets_its_bodies_end_within_their_grace(server: Server, remote: httpx.Client, permitted: Programs) -> None:
    node = permitted.ready("trial", server.url)
    run_id = start(remote, "gate")
    node.hears("begun")
    node.stop()
    lease = Lease.objects.get(run__pk=run_id)
    until(lambda: Lease.objects.get(pk=lease.pk).expires_at > lease.expires_at)  # heartbeats go on
    node.say("go")
    node.hears(f"gate/work attempt 1 of run {run_id}: completed\n")
    assert node.ends() == 0, node.output
    assert over(remote, run_id)["output"] == 1
    assert no_lease_is_left()


def test_what_still_runs_after_the_grace_goes_back(server: Server, remote: httpx.Client, permitted: Programs) -> None:
    node = permitted.ready("trial", server.url, grace_ms=100)
    run_id = start(remote, "gate")
    node.hears("begun")
    node.stop()
    assert node.ends(within=10) == 0, node.output
    assert "stopped shutdown" in node.output
    assert [lease.status for lease in Lease.objects.filter(run__pk=run_id)] == [LeaseStatus.RETURNED]
    other = permitted.ready("trial", server.url)
    other.say("go")
    assert over(remote, run_id)["output"] == 2  # the body had run, so this is another attempt


def test_a_cancel_reaches_the_body_and_its_end_is_acknowledged(server: Server, remote: httpx.Client, permitted: Programs) -> None:
    node = permitted.ready("trial", server.url)
    run_id = start(remote, "gate")
    node.hears("begun")
    remote.post(f"runs/{run_id}/cancel", json={"reason": "not wanted"}).raise_for_status()
    node.hears("stopped run_terminal")
    until(lambda: Lease.objects.get(run__pk=run_id).acknowledged_at)


def test_calls_whose_replies_are_lost_are_made_again_and_the_body_runs_once(server: Server, remote: httpx.Client, permitted: Programs) -> None:
    """B03, B37."""
    proxy = Proxy(server.url)
    for call in ("/register", "/claim", "/started", "/complete"):
        proxy.lose_reply(call)
    proxy.lose_request("/complete")
    node = permitted.ready("trial", proxy.url)
    run_id = start(remote, "gate")
    node.say("go")
    assert over(remote, run_id)["output"] == 1
    until(lambda: sorted(proxy.lost) == ["/claim", "/complete", "/complete", "/register", "/started"])
    node.hears(f"gate/work attempt 1 of run {run_id}: completed\n")
    assert node.output.count("begun") == 1
    assert [lease.status for lease in Lease.objects.filter(run__pk=run_id)] == [LeaseStatus.COMPLETED]
    proxy.close()


def test_a_key_that_is_refused_ends_it_loudly(server: Server, programs: Programs) -> None:
    node = programs.start("quote", server.url)
    assert node.ends() == 1
    assert "workers/register: 401 unauthenticated" in node.output
    assert "secret" not in node.output


def lease(name: str, workflow: str, **more: Any) -> dict[str, Any]:
    """A lease as a server sends it, as far as the worker looks."""
    told = {"id": name, "run_id": f"run of {name}", "workflow": workflow, "revision": "1", "step": "work", "attempt": 1, "input": 1, "timeout_ms": 60_000}
    return told | {"steps": {}} | more


def refused(code: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": f"this is {code}"}}


SESSION = {"worker_id": "w", "lease_ttl_ms": 30_000, "recovery_ms": 30_000, "heartbeat_ms": 50, "max_wait_ms": 20_000, "max_claim": 1, "definitions": []}
ENDED = {"step": "ready", "run": "running"}


def test_what_a_claim_had_been_given_when_the_worker_was_stopped_goes_back(programs: Programs, scripted: Script) -> None:
    scripted.answers(
        {
            "workers/register": [(503, {}), (200, SESSION), (200, SESSION | {"worker_id": "w2"})],
            "steps/claim": [(409, refused("unknown_worker")), (200, {"leases": [lease("nobodys", "elsewhere")]})],
            "steps/nobodys/fail": [(500, None), (200, ENDED)],
            "steps/late/fail": [(200, ENDED)],
            "workers/w2/leave": [(200, {})],
        }
    )
    node = programs.ready("trial", scripted.url)
    assert scripted.holds.wait(20)
    scripted.then("steps/claim", 200, {"leases": [lease("late", "gate")]})
    node.stop()
    assert node.ends() == 0, node.output
    held, asked_again = scripted.asked("steps/claim")[-2:]
    assert asked_again == held | {"wait_ms": 0, "serves": []}
    assert (held["worker_id"], held["max"]) == ("w2", 1)
    assert [told["class"] for told in scripted.asked("steps/nobodys/fail")] == ["unservable"] * 2
    assert [told["class"] for told in scripted.asked("steps/late/fail")] == ["returned"]
    assert "begun" not in node.output


def test_each_answer_is_treated_as_the_protocol_says(programs: Programs, scripted: Script) -> None:
    leases = [lease("lost", "gate"), *(lease(name, "flaky", attempt=2) for name in ("heavy", "unstarted", "anothers", "parted", "applied"))]
    leases[4] = {**leases[4], "parts": {"input": "input"}, "input": None}
    scripted.answers(
        {
            "workers/register": [(200, SESSION)],
            "steps/claim": [(200, {"leases": leases})],
            **{f"steps/{each['id']}/started": [(200, {})] for each in leases},
            "steps/anothers/started": [(409, refused("fenced"))],
            "steps/lost/heartbeat": [(429, refused("throttled")), (200, {}), (409, refused("fenced"))],
            "steps/lost/fail": [(409, refused("fenced"))],
            "steps/heavy/complete": [(413, refused("payload_too_large"))],
            "steps/heavy/fail": [(200, ENDED)],
            "steps/unstarted/complete": [(409, refused("not_started"))],
            "steps/parted/parts/input": [(200, 40)],
            "steps/parted/complete": [(200, ENDED)],
            "steps/applied/complete": [(409, {"error": {**refused("already_applied")["error"], "outcome": {"status": "completed"}}})],
            "workers/w/leave": [(200, {})],
        }
    )
    node = programs.ready("trial", scripted.url)
    node.hears("gate/work attempt 1 of run run of lost: returned: the body was told to stop: fenced; refused: 409 fenced")
    assert "stopped fenced" in node.output
    node.hears("of run run of unstarted: completed; A BUG IN THIS WORKER: 409 not_started")
    node.hears("of run run of anothers: not started: 409 fenced")
    node.hears("of run run of heavy: permanent: this is payload_too_large\n")
    node.hears("of run run of applied: completed\n")
    node.hears("of run run of parted: completed\n")
    assert scripted.asked("steps/parted/complete") == [{"output": 42}]
    node.stop()
    assert node.ends() == 0, node.output
    assert len(scripted.asked("steps/lost/heartbeat")) == 3


def test_a_key_that_is_revoked_meanwhile_ends_it_and_its_bodies(programs: Programs, scripted: Script) -> None:
    scripted.answers(
        {
            "workers/register": [(200, SESSION)],
            "steps/claim": [(200, {"leases": [lease("mine", "gate")]})],
            "steps/mine/started": [(200, {})],
            "steps/mine/heartbeat": [(403, refused("forbidden"))],
            "steps/mine/fail": [(403, refused("forbidden"))],
            "workers/w/leave": [(403, refused("forbidden"))],
        }
    )
    node = programs.ready("trial", scripted.url, grace_ms=100)
    assert node.ends() == 1, node.output
    assert "the worker ends: Rejected: steps/mine/heartbeat: 403 forbidden" in node.output
    assert "stopped shutdown" in node.output
