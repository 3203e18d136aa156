"""The HTTP transport: what each reply means, how long it waits, what it never says, and how it gets large or unfit things across."""

from __future__ import annotations

import logging
import pickle
import re
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from ezgh_workflows_django.definitions.graph import Step, Workflow
from ezgh_workflows_django.errors import InvalidArgument, NotAvailable, Rejected, SessionLost, TransportError, Unavailable
from ezgh_workflows_django.protocol import answers_json
from ezgh_workflows_django.protocol.durable import Children, Record
from ezgh_workflows_django.protocol.failures import Failure
from ezgh_workflows_django.protocol.messages import Beat, Claimed, ClaimRequest, Extension, Registration, Serve
from ezgh_workflows_django.protocol.outcomes import Outcome, Report
from ezgh_workflows_django.testing.scripted import ScriptedTransport, lease_of
from ezgh_workflows_django.worker import Worker
from ezgh_workflows_django.worker.transports import http
from ezgh_workflows_django.worker.transports.dev_http import DevHttpTransport
from ezgh_workflows_django.worker.transports.http import Line
from ezgh_workflows_django.worker.transports.over_http import HttpTransport
from ezgh_workflows_django.worker.transports.replies import seconds_of

from .bench import Ear, Running, one_step
from .served import KEY, Said, Served, refused

JOB = one_step(lambda: None)
CLAIM = ClaimRequest(worker_id="w1", claim_id="c1", max=1, serves=(Serve("job", "1"),))
REGISTRATION = Registration(worker="w", app="dev-ann")


@pytest.fixture
def served() -> Iterator[Served]:
    """A scripted server at an address."""
    served = Served(ScriptedTransport())
    yield served
    served.script.interrupt()
    served.close()


@pytest.fixture
def transport(served: Served) -> Iterator[HttpTransport]:
    """The way to it."""
    transport = HttpTransport(served.url, KEY)
    yield transport
    transport.close()


@pytest.fixture
def own(served: Served) -> Iterator[DevHttpTransport]:
    """A developer's way to it."""
    own = DevHttpTransport(served.url, KEY)
    yield own
    own.close()


@pytest.mark.parametrize(
    ("said", "becomes", "text"),
    [
        (refused(401, "unauthenticated", "no such key"), Rejected, "401 unauthenticated: no such key: make a key with `manage.py workflows_key create`"),
        (refused(403, "forbidden", "workflows.workers.poll"), Rejected, "403 forbidden: workflows.workers.poll: the key has to be given"),
        (refused(404, "unknown_app", "there is no app 'x'"), Rejected, "there is no app 'x': `manage.py workflows_app create` makes one"),
        (refused(404, "unknown_project", "there is no project 'x'"), Rejected, "there is no project 'x': give the worker a key of that project"),
        (refused(400, "invalid", "no good", fields={"max": ["1 to 100"]}), Rejected, r"400 invalid: no good \(max: 1 to 100\)"),
        (refused(409, "run_terminal", "it is over"), Rejected, "run_terminal"),
        (refused(409, "unknown_worker", "register again"), SessionLost, "register again"),
        (refused(409, "unknown_definition", "register again"), SessionLost, "register again"),
        (refused(429, "throttled"), Unavailable, "429 throttled"),
        (refused(503, "unavailable"), Unavailable, "503 unavailable"),
        (Said(502, b"<h1>Bad Gateway</h1>"), Unavailable, "HTTP status 502"),
        (Said(404, b"<h1>Not Found</h1>"), Rejected, "the base URL has to be the place"),
        (Said(301, b"", {"Location": "https://elsewhere"}), Rejected, "the base URL has to be the place"),
        (Said(200, b"<form>Please sign in</form>"), Unavailable, "is not JSON"),
        (Said(200, {"leases": [{"id": 1}]}), Unavailable, "no answer of this protocol"),
    ],
    ids=lambda value: f"{value.status}" if isinstance(value, Said) else "",
)
def test_a_reply_means_what_the_protocol_says(served: Served, transport: HttpTransport, said: Said, becomes: type[TransportError], text: str) -> None:
    served.instead("claim", said)
    with pytest.raises(becomes, match=text) as raised:
        transport.claim(CLAIM)
    assert type(raised.value) is becomes or becomes is Rejected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        ("Thu, 01 Jan 2026 00:01:30 GMT", 90.0),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("1e9", None),
        ("", None),
        ("²", None),
    ],
)
def test_retry_after_is_a_number_of_seconds_or_a_date(text: str, seconds: float | None) -> None:
    assert seconds_of(text, datetime(2026, 1, 1, tzinfo=UTC)) == seconds


def test_the_servers_retry_after_is_handed_on(served: Served, transport: HttpTransport) -> None:
    served.instead("started", Said(503, None, {"Retry-After": "3"}))
    with pytest.raises(Unavailable) as raised:
        transport.started(["a"])
    assert raised.value.retry_after == 3.0


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (refused(409, "fenced", outcome={"status": "completed"}), "fenced"),
        (refused(404, "unknown_lease"), "unknown_lease"),
        (refused(404, "not_found"), "unknown_lease"),
        (refused(400, "invalid"), "invalid"),
        (refused(413, "payload_too_large"), "payload_too_large"),
        (Said(413, b"<h1>Request Entity Too Large</h1>"), "payload_too_large"),
        (Said(400, b"<h1>Bad Request</h1>"), "invalid"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_of_one_lease_is_an_answer(served: Served, transport: HttpTransport, said: Said, reason: str) -> None:
    served.instead("complete", said)
    served.instead("checkpoint", said)
    served.instead("children", said)
    [answer] = transport.report([Report("a", Outcome.completed(1))])
    [stored] = transport.checkpoint([Record(lease_id="a", name="n", pos=1)])
    started = transport.children(Children(lease_id="a", name="n", pos=1, workflow="job", payloads=(1,)))
    assert [each.refused.reason for each in (answer, stored, started) if each.refused] == [reason] * 3
    assert answer.refused is not None
    assert re.search(rf"^so the script says$|something between the worker and the server, .*HTTP status {said.status}$", answer.refused.message)


@pytest.mark.parametrize("leases", ["a", "ab"], ids=["one", "many"])
@pytest.mark.parametrize("status", [302, 401, 403, 404, 409, 429])
def test_a_refusal_of_leases_that_is_not_the_servers_own_passes(served: Served, transport: HttpTransport, leases: str, status: int) -> None:
    for call in ("started", "heartbeat", "complete", "outcomes", "checkpoint", "children"):
        served.instead(call, Said(status, b"<h1>default backend</h1>", {"Location": "https://elsewhere"} if status == 302 else {}))
    calls: list[Callable[[], Any]] = [
        lambda: transport.started(leases),
        lambda: transport.heartbeat([Beat(lease) for lease in leases]),
        lambda: transport.report([Report(lease, Outcome.completed(1)) for lease in leases]),
        lambda: transport.checkpoint([Record(lease_id=lease, name="n", pos=1) for lease in leases]),
        lambda: transport.children(Children(lease_id="a", name="n", pos=1, workflow="job", payloads=(1,))),
    ]
    for call_it in calls:
        with pytest.raises(Unavailable, match=f"HTTP status {status}.* something between the worker and the server"):
            call_it()


def test_an_outcome_that_is_answered_with_nothing_has_not_landed(served: Served, transport: HttpTransport) -> None:
    served.instead("complete", Said(200, {}))
    with pytest.raises(Unavailable, match="no answer of this protocol"):
        transport.report([Report("a", Outcome.completed(1))])


def test_a_checkpoint_and_children_come_back_as_they_are_stored(served: Served, transport: HttpTransport) -> None:
    failure = Failure(class_="flaky", message="no", type="pkg.Flaky")
    first, second = transport.checkpoint(
        [
            Record(lease_id="a", name="one", pos=1, output={"n": 1}),
            Record(lease_id="a", name="two", pos=2, failure=failure, retry={"max_attempts": 3}, retry_after_ms=5),
        ]
    )
    assert (first.output, second.failure, second.is_final) == ({"n": 1}, failure, False)
    batch = Children(lease_id="a", name="kids", pos=3, workflow="job", payloads=(1, 2))
    assert transport.children(batch).runs == ("kids-0", "kids-1")


def test_the_read_timeout_is_the_hold_and_ten_seconds_more() -> None:
    """B79."""
    timeouts: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        timeouts.append(request.extensions["timeout"]["read"])
        return httpx.Response(200, json={"leases": []})

    line = Line("http://server/", KEY, through=httpx.MockTransport(answer))
    HttpTransport("http://server/", KEY, line=line).claim(replace(CLAIM, wait_ms=24_000))
    line.call("POST", "v1/api/steps/heartbeat", {})
    assert timeouts == [34.0, 10.0]


def stall(connection: socket.socket) -> None:
    """Say that all is well, and nothing more."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n")
    connection.recv(1)


def swallow(connection: socket.socket) -> None:
    """Take everything and say nothing, until the other side goes."""
    connection.recv(1)


def hang_up(connection: socket.socket) -> None:
    """Go without a word."""


@pytest.mark.parametrize("does", [stall, swallow, hang_up])
def test_a_connection_that_brings_no_answer_ends_in_time_and_blocks_no_heartbeat(
    served: Served, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, does: Callable[[socket.socket], None]
) -> None:
    """B80."""
    served.instead("claim", does)
    with monkeypatch.context() as hurried:
        hurried.setattr(http, "PATIENCE", 0.3)
        with pytest.raises(Unavailable):
            transport.claim(CLAIM)
    assert transport.heartbeat([Beat("a")]) == [Extension(lease_id="a", expires_in_ms=30_000)]
    assert transport.claim(CLAIM).leases == ()


def test_nobody_at_the_address_is_unavailable(served: Served, transport: HttpTransport) -> None:
    served.close()
    with pytest.raises(Unavailable, match="ConnectError"):
        transport.claim(CLAIM)


def test_calls_reuse_their_connection(served: Served, transport: HttpTransport) -> None:
    for _ in range(5):
        transport.heartbeat([Beat("a")])
    assert len(set(served.peers)) == 1


def test_an_interrupted_claim_ends_and_says_what_it_had_been_given(served: Served, transport: HttpTransport) -> None:
    lease = lease_of(JOB, "only")
    gate = served.script.block("claim")
    given: list[Any] = []
    claiming = threading.Thread(target=lambda: given.append(transport.claim(replace(CLAIM, wait_ms=24_000))))
    claiming.start()
    served.script.wait_until(lambda: bool(served.script.named("claim")))
    transport.interrupt()
    assert served.gone.wait(60)
    served.script.offer(lease)  # the server matches it to the claim whose client has just gone
    gate.set()
    claiming.join(10)
    assert [[each.id for each in claimed.leases] for claimed in given] == [[lease.id]]
    assert [(request.claim_id, request.wait_ms, bool(request.serves)) for request in served.script.named("claim")] == [("c1", 24_000, True), ("c1", 0, False)]
    assert transport.claim(replace(CLAIM, claim_id="c2", wait_ms=24_000)).leases == ()


def test_an_interrupted_claim_whose_server_is_away_gives_nothing(served: Served, transport: HttpTransport) -> None:
    transport.interrupt()
    served.close()
    assert transport.claim(CLAIM).leases == ()


def test_a_group_that_is_too_large_goes_in_halves(served: Served, transport: HttpTransport) -> None:
    served.instead("outcomes", Said(413, b"<h1>Request Entity Too Large</h1>"), refused(400, "invalid"))
    served.instead("b/complete", Said(413, b"<h1>Request Entity Too Large</h1>"))
    answers = transport.report([Report(lease_id, Outcome.completed(lease_id)) for lease_id in "abcd"])
    assert [(answer.lease_id, answer.refused.reason if answer.refused else None) for answer in answers] == [
        ("a", None),
        ("b", "payload_too_large"),
        ("c", None),
        ("d", None),
    ]
    assert [path for path, _ in served.asked] == ["steps/outcomes", "steps/outcomes", "steps/a/complete", "steps/b/complete", "steps/outcomes"]


def test_a_progress_that_the_server_cannot_take_costs_no_lease(served: Served, transport: HttpTransport) -> None:
    served.instead("a/heartbeat", refused(413, "payload_too_large"))
    assert transport.heartbeat([Beat("a", {"much": "x"})]) == [Extension(lease_id="a", expires_in_ms=30_000)]
    assert [body for _, body in served.asked] == [{"progress": {"much": "x"}}, {}]


def test_parts_that_are_sent_by_reference_are_fetched_and_put_in_place(served: Served, transport: HttpTransport) -> None:
    whole, lost = lease_of(JOB, "only"), lease_of(JOB, "only")
    told = answers_json.claimed_to_json(Claimed(leases=(whole, lost)))
    told["leases"][0] |= {"parts": {"input": "input", "steps/big": "steps/big"}}
    told["leases"][1] |= {"parts": {"input": "gone"}}
    served.parts = {"input": [1, 2], "steps%2Fbig": {"n": 3}}
    served.instead("claim", Said(200, told))
    [lease] = transport.claim(CLAIM).leases
    assert (lease.id, lease.input, lease.steps) == (whole.id, [1, 2], {"big": {"n": 3}})


@pytest.mark.parametrize("key", ["", "ezw_a b", f"{KEY}\nX-Evil: 1", "ezw_clé", None])
def test_what_cannot_be_a_key_is_refused_without_being_shown(key: Any) -> None:
    with pytest.raises(InvalidArgument) as raised:
        HttpTransport("http://server/", key)
    assert raised.value.field == "api_key"
    assert not key or key not in str(raised.value)


@pytest.mark.parametrize("url", ["", "server:8000", "ftp://server/", "http://", "http://:80/", "http://ann:hunter2@server/", None])
def test_what_cannot_be_an_address_is_refused(url: Any) -> None:
    with pytest.raises(InvalidArgument, match="base_url") as raised:
        HttpTransport(url, KEY)
    assert "hunter2" not in str(raised.value)


def test_the_key_is_in_the_requests_and_nowhere_else(served: Served, transport: HttpTransport, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    served.instead("claim", refused(401, "unauthenticated"), hang_up)
    said = [repr(transport), repr(transport.recipe), *map(str, vars(transport._line).values())]
    for _ in range(2):
        with pytest.raises(TransportError) as raised:
            transport.claim(CLAIM)
        said += [repr(raised.value), "".join(traceback.format_exception(raised.value)), str(pickle.dumps(raised.value.args))]
    assert served.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert not any(KEY in text for text in [*said, caplog.text])


def test_the_heartbeat_process_builds_the_same_way_from_its_recipe(served: Served, transport: HttpTransport) -> None:
    other = transport.recipe.build()
    assert other.heartbeat([Beat("a")]) == [Extension(lease_id="a", expires_in_ms=30_000)]
    other.close()


def test_heartbeats_over_http_come_from_a_process_of_their_own(served: Served, ear: Ear) -> None:
    served.script.session = replace(served.script.session, heartbeat_ms=50)
    lease = lease_of(one_step(lambda ctx: ctx.cancelled.wait(20)), "only")
    served.script.offer(lease)
    job = one_step(lambda ctx: ctx.cancelled.wait(20))
    running = Running(Worker(base_url=served.url, api_key=KEY, workflows=[job], heartbeat="process", grace=0, listener=ear))
    served.script.wait_until(lambda: bool(served.script.named("heartbeat")), 20)
    assert running.stop() == 0
    assert [outcome.class_ for outcome in served.script.outcomes[lease.id]] == ["returned"]


def test_a_transactional_step_is_refused_by_name_before_the_worker_runs(served: Served) -> None:
    job = Workflow("books", steps=[Step("post", run=lambda: None, transactional=True), Step("read", run=lambda: None)])
    with pytest.raises(NotAvailable, match=r"books/post: .* direct transport .*--except books/post"):
        Worker(base_url=served.url, api_key=KEY, workflows=[job]).run_sync()
    assert Worker(base_url=served.url, api_key=KEY, workflows=[job], except_=["books/post"], until_idle=True).run_sync() == 0


def test_no_transaction_reaches_over_http(transport: HttpTransport) -> None:
    with pytest.raises(NotAvailable, match="without --url"):
        transport.atomically(lambda: Report("a", Outcome.completed()))


def test_a_developers_app_is_made_where_it_is_missing(served: Served, own: DevHttpTransport) -> None:
    served.instead("register", refused(404, "unknown_app", 'there is no app "dev-ann"'))
    served.instead("projects/p/apps", Said(201, {"name": "dev-ann"}))
    assert own.register(replace(REGISTRATION, organization="o", project="p")).worker_id == "w1"
    assert served.asked[1] == ("/workflows/v1/organizations/o/projects/p/apps", {"name": "dev-ann", "kind": "pull", "queue": "dev-ann"})


def test_a_developers_app_that_another_made_meanwhile_is_found(served: Served, own: DevHttpTransport) -> None:
    served.instead("register", refused(404, "unknown_app"))
    served.instead("apps", refused(409, "app_exists"))
    assert own.register(REGISTRATION).worker_id == "w1"


def test_a_key_that_may_not_make_the_app_is_told_both_things(served: Served, own: DevHttpTransport) -> None:
    served.instead("register", refused(404, "unknown_app", 'there is no app "dev-ann"'))
    served.instead("apps", refused(403, "forbidden", "workflows.apps.create"))
    with pytest.raises(Rejected, match=r'(?s)there is no app "dev-ann".*workflows\.apps\.create'):
        own.register(REGISTRATION)


def test_a_key_of_another_project_than_the_default_one_is_asked_which(served: Served, own: DevHttpTransport) -> None:
    served.instead("register", refused(404, "unknown_app", 'there is no app "dev-ann"'))
    served.instead("apps", refused(404, "unknown_project", "there is no project 'default'"))
    with pytest.raises(Rejected, match=r"(?s)there is no app \"dev-ann\".*no project 'default'.*organization_id and project_id \(--organization and --project"):
        own.register(REGISTRATION)


def test_a_worker_of_ones_own_serves_dev_user(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "Ann.Smith")
    worker = Worker.dev(base_url=served.url, api_key=KEY, organization_id="o", project_id="p", workflows=[JOB], until_idle=True)
    assert worker.run_sync() == 0
    [registration] = served.script.named("register")
    assert (registration.app, registration.organization, registration.project) == ("dev-ann-smith", "o", "p")


def test_a_worker_has_one_way_to_its_server() -> None:
    with pytest.raises(InvalidArgument, match="one way"):
        Worker(ScriptedTransport(), base_url="http://server/", api_key=KEY)
    with pytest.raises(InvalidArgument, match="api_key: is missing"):
        Worker(base_url="http://server/")
    with pytest.raises(InvalidArgument, match="base_url: is missing"):
        Worker()


def test_a_refused_key_stops_the_worker_with_the_reason_and_an_exit_code(served: Served, ear: Ear) -> None:
    assert Worker(base_url=served.url, api_key="ezw_other_1", workflows=[JOB], listener=ear).run_sync() == 1
    assert "the server refuses this worker: POST v1/api/workers/register was answered 401" in ear.errors[0]
