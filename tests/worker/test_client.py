"""`Client`: what it asks, what it makes of the answers. Against a live server it is tried in `tests/process/test_remote.py`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from inspect import iscoroutinefunction, isfunction
from typing import Any

import pytest

from ezgh_workflows_django import Client, RunCancelled, RunFailed, RunHandle, RunTimedOut
from ezgh_workflows_django import errors as all_errors
from ezgh_workflows_django.errors import InvalidArgument, InvalidPayload, Rejected, ResultTimeout, Unavailable
from ezgh_workflows_django.protocol.failures import Failure
from ezgh_workflows_django.testing.scripted import ScriptedTransport, lease_of
from ezgh_workflows_django.worker import remote_run
from ezgh_workflows_django.worker.client import Receipt
from ezgh_workflows_django.worker.remote_run import RemoteRun
from tests.conftest import ROOT

from .bench import Running, one_step
from .served import KEY, Said, Served, refused

PAGE = ROOT / "docs" / "external-workers.md"
RUN = {"id": "r1", "workflow": "job", "status": "running", "phase": "waiting", "ended_at": None, "failure": None, "reason": "", "output": None}
ENDED = RUN | {"ended_at": "2026-01-01T00:00:00Z"}
FAILURE = {"class": "flaky", "message": "no", "step": "only"}


@pytest.fixture
def served() -> Iterator[Served]:
    """An address that answers what it is told to."""
    served = Served(ScriptedTransport())
    yield served
    served.close()


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    """A client of that server."""
    with Client(served.url, KEY, app="reports") as client:
        yield client


def test_a_start_says_what_it_is_given_and_gives_the_run(served: Served, client: Client) -> None:
    served.instead("runs", Said(201, RUN), Said(200, RUN))
    at = datetime(2026, 1, 1, 9, tzinfo=UTC)
    run = client.start(one_step(lambda: None), {"at": at}, labels={"order": "A-1"}, idempotency_key="k", correlation_id="c", at=at, priority=5)
    again = client.start("job", None, delay=timedelta(minutes=1), app="other")
    assert (run.id, run) == ("r1", again)
    assert served.asked == [
        (
            "runs",
            {
                "workflow": "job",
                "labels": {"order": "A-1"},
                "idempotency_key": "k",
                "correlation_id": "c",
                "at": "2026-01-01T09:00:00Z",
                "priority": 5,
                "app": "reports",
                "payload": {"at": "2026-01-01T09:00:00Z"},
            },
        ),
        ("runs", {"workflow": "job", "delay_ms": 60_000, "priority": 0, "app": "other", "payload": None}),
    ]


def test_no_payload_is_another_thing_than_none(served: Served, client: Client) -> None:
    served.instead("runs", Said(201, RUN))
    client.start("job")
    assert "payload" not in served.asked[0][1]


def test_an_event_is_told_whole_and_its_receipt_comes_back(served: Served, client: Client) -> None:
    served.instead("events", Said(201, {"id": 7, "known": False}))
    assert client.emit("paid", 12, {"amount": 5}, event_id="e1") == Receipt(7, known=False)
    assert served.asked == [("events", {"name": "paid", "key": "12", "payload": {"amount": 5}, "event_id": "e1", "app": "reports"})]


@pytest.mark.parametrize("at", [datetime(2026, 1, 1, 9), "tomorrow"])  # noqa: DTZ001 - what is refused
def test_a_moment_of_no_time_zone_is_refused_before_it_is_sent(served: Served, client: Client, at: Any) -> None:
    with pytest.raises(InvalidArgument, match="aware datetime"):
        client.start("job", at=at)
    assert served.asked == []


def test_a_payload_that_no_server_can_keep_is_refused_before_it_is_sent(served: Served, client: Client) -> None:
    with pytest.raises(InvalidPayload, match=r"payload\.x"):
        client.start("job", {"x": float("nan")})
    with pytest.raises(InvalidArgument, match="delay"):
        client.start("job", delay=float("inf"))
    assert served.asked == []


@pytest.mark.parametrize(
    ("said", "becomes"),
    [
        (refused(409, "workflow_not_announced"), "WorkflowNotAnnounced"),
        (refused(409, "idempotency_conflict"), "IdempotencyConflict"),
        (refused(409, "concurrency_limit"), "ConcurrencyLimit"),
        (refused(409, "run_terminal"), "RunTerminal"),
        (refused(409, "verb_refused"), "VerbRefused"),
        (refused(404, "unknown_run"), "UnknownRun"),
        (refused(404, "unknown_step"), "UnknownStep"),
        (refused(404, "unknown_app"), "UnknownApp"),
        (refused(404, "unknown_workflow"), "UnknownWorkflow"),
        (refused(413, "payload_too_large"), "PayloadTooLarge"),
        (refused(400, "not_available"), "NotAvailable"),
        (refused(400, "invalid", fields={"priority": "too high"}), "InvalidArgument"),
        (refused(401, "unauthenticated"), "Rejected"),
        (refused(403, "forbidden"), "Rejected"),
        (refused(429, "throttled"), "Unavailable"),
        (refused(503, "unavailable"), "Unavailable"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_is_the_error_that_the_engine_would_raise(served: Served, client: Client, said: Said, becomes: str) -> None:
    served.instead("runs", said)
    with pytest.raises(getattr(all_errors, becomes)) as raised:
        client.start("job")
    assert "so the script says" in str(raised.value) or "priority: too high" in str(raised.value)


def test_a_key_that_may_not_start_is_told_the_scope_that_may(served: Served, client: Client) -> None:
    served.instead("runs", refused(403, "forbidden", "this key lacks workflows.runs.start"))
    with pytest.raises(all_errors.Rejected, match=r"lacks workflows\.runs\.start: .*`execute` is the scope that starts"):
        client.start("job")


def test_a_result_is_waited_for_by_the_server_and_through_what_the_network_loses(served: Served, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_run, "SHORT_REST", 0.001)
    served.instead("runs/r1?wait_ms=24000", Said(200, RUN), Said(502, b""), lambda connection: None, Said(200, ENDED | {"status": "succeeded", "output": 3}))
    assert client.run("r1").result() == 3
    assert [path for path, _ in served.asked] == ["runs/r1?wait_ms=24000"] * 4


@pytest.mark.parametrize(("status", "becomes"), [("failed", RunFailed), ("cancelled", RunCancelled), ("timed_out", RunTimedOut)])
def test_a_run_that_ended_otherwise_is_raised_with_its_failure(served: Served, client: Client, status: str, becomes: type[all_errors.RunEnded]) -> None:
    served.instead("runs/r1", Said(200, ENDED | {"status": status, "failure": FAILURE}))
    with pytest.raises(becomes, match=f"run r1 of job {status}: no") as raised:
        client.run("r1").result(timeout=0)
    assert (raised.value.run_id, raised.value.failure) == ("r1", FAILURE)


def test_a_result_that_is_not_there_in_time_is_a_timeout_by_name(served: Served, client: Client) -> None:
    served.instead("runs/r1", Said(200, RUN))
    with pytest.raises(ResultTimeout, match="run r1 is still running after 0 s"):
        client.run("r1").result(timeout=0)
    served.instead("runs/r1", Said(503, None))
    with pytest.raises(ResultTimeout, match="could not be asked"):
        client.run("r1").result(timeout=0)


def test_a_result_that_may_not_be_asked_for_is_not_waited_for(served: Served, client: Client) -> None:
    served.instead("runs/r1?wait_ms=24000", refused(403, "forbidden"))
    with pytest.raises(Rejected):
        client.run("r1").result()


def test_a_run_answers_what_a_handle_answers(served: Served, client: Client) -> None:
    told = RUN | {"payload": 1, "state": {"n": 2}, "waiting_for": [{"step": "pay"}], "failure": FAILURE}
    served.instead("runs/r1", *[Said(200, told)] * 6)
    run = client.run("r1")
    assert (run.status, run.phase, run.payload, run.state, run.waiting_for) == ("running", "waiting", 1, {"n": 2}, [{"step": "pay"}])
    assert run.failure == Failure(class_="flaky", message="no", step="only")


def test_every_verb_of_a_run_goes_out_with_what_it_is_given(served: Served, client: Client) -> None:
    served.instead("/signal", Said(200, {"delivery": "buffered"}), Said(200, {"delivery": "delivered"}))
    served.instead("/cancel", Said(200, RUN | {"status": "cancelled"}), Said(200, RUN | {"status": "cancelled"}))
    for verb in ("retry", "pause", "resume", "resolve", "migrate"):
        served.instead(f"/{verb}", Said(200, RUN))
    run = client.run("r1")
    assert (client.signal("r1", "go", {"n": 1}), run.signal("go")) == ("buffered", "delivered")
    assert (client.cancel("r1", "enough"), run.cancel()) == ("cancelled", "cancelled")
    run.retry("only")
    run.pause("lunch")
    run.resume()
    run.resolve("only", 5, "by hand")
    assert run.migrate("v2", dry_run=True) == RUN
    assert served.asked == [
        ("runs/r1/signal", {"name": "go", "payload": {"n": 1}}),
        ("runs/r1/signal", {"name": "go", "payload": None}),
        ("runs/r1/cancel", {"reason": "enough"}),
        ("runs/r1/cancel", {"reason": ""}),
        ("runs/r1/retry", {"from_step": "only"}),
        ("runs/r1/pause", {"reason": "lunch"}),
        ("runs/r1/resume", {}),
        ("runs/r1/resolve", {"step": "only", "output": 5, "reason": "by hand"}),
        ("runs/r1/migrate", {"version": "v2", "dry_run": True}),
    ]


def test_a_run_id_is_no_path(served: Served, client: Client) -> None:
    served.instead("cancel", refused(404, "unknown_run"))
    with pytest.raises(all_errors.UnknownRun):
        client.cancel("../events?x=1")
    assert served.asked == [("runs/..%2Fevents%3Fx%3D1/cancel", {"reason": ""})]


def test_the_async_twins_do_the_same(served: Served, client: Client) -> None:
    served.instead("runs", Said(201, RUN))
    served.instead("events", Said(200, {"id": 7, "known": True}))
    served.instead("runs/r1?wait_ms=24000", Said(200, ENDED | {"status": "succeeded", "output": [1]}))
    served.instead("/signal", Said(200, {"delivery": "delivered"}))
    served.instead("/cancel", Said(200, RUN | {"status": "cancelled"}))

    async def main() -> tuple[Any, ...]:
        run = await client.astart("job", 1)
        return await client.aemit("paid"), await run.asignal("go"), await run.acancel(), await run.aresult()

    receipt, delivery, status, result = asyncio.run(main())
    assert (receipt.known, delivery, status, result) == (True, "delivered", "cancelled", [1])


def test_the_async_twins_of_verbs_say_what_the_verbs_say(served: Served, client: Client) -> None:
    for verb in ("retry", "pause", "resume", "resolve", "migrate"):
        served.instead(f"/{verb}", Said(200, RUN))
    served.instead("/signal", Said(200, {"delivery": "buffered"}))
    served.instead("/cancel", Said(200, RUN | {"status": "cancelled"}))
    served.instead("runs/r1", Said(200, RUN))

    async def main() -> tuple[Any, ...]:
        run = client.run("r1")
        await run.aretry("only")
        await run.apause("lunch")
        await run.aresume()
        await run.aresolve("only", 5, "by hand")
        return await run.amigrate("v2", dry_run=True), await client.asignal("r1", "go", 1), await client.acancel("r1", "enough"), await run.alook()

    assert asyncio.run(main()) == (RUN, "buffered", "cancelled", RUN)
    assert [body for _, body in served.asked[:7]] == [
        {"from_step": "only"},
        {"reason": "lunch"},
        {},
        {"step": "only", "output": 5, "reason": "by hand"},
        {"version": "v2", "dry_run": True},
        {"name": "go", "payload": 1},
        {"reason": "enough"},
    ]


def calls_of(kind: type) -> set[str]:
    """The methods that callers have, but for those that are for async ones."""
    return {name for name, member in vars(kind).items() if isfunction(member) and not iscoroutinefunction(member) and not name.startswith("_")}


def test_every_verb_of_a_handle_is_one_of_a_remote_run_and_each_has_its_async_twin() -> None:
    assert calls_of(RunHandle) - calls_of(RemoteRun) == set()
    assert {f"a{name}" for name in calls_of(RemoteRun)} - vars(RemoteRun).keys() == set()
    assert {f"a{name}" for name in calls_of(Client) - {"run", "close"}} - vars(Client).keys() == set()


def test_the_code_of_the_page_on_external_workers_runs(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOWS_API_KEY", KEY)
    served.instead("runs", Said(201, RUN))
    served.script.session = replace(served.script.session, max_wait_ms=0)
    names: dict[str, Any] = {"__name__": "docs"}
    for code in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        exec(code.replace("https://example.com/workflows/", served.url), names)
    served.script.offer(lease := lease_of(names["reports"], "render", {"id": "A-1"}))
    running = Running(names["worker"])
    served.script.wait_until(lambda: lease.id in served.script.outcomes)
    assert running.stop() == 0
    assert served.script.outcomes[lease.id][0].output == {"pdf": "A-1.pdf"}
    served.instead("runs/r1?wait_ms=24000", Said(200, ENDED | {"status": "succeeded", "output": 1}))
    assert names["order_report"]("A-1") == 1
    names["client"].close()


def test_a_closed_client_says_so(client: Client) -> None:
    client.close()
    with pytest.raises(Unavailable, match="closed by this process"):
        client.start("job")


def test_the_key_is_not_in_its_repr(client: Client) -> None:
    assert KEY not in repr(client) + repr(client.run("r1")) + repr(vars(client))
