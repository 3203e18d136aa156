"""A value over `MAX_PAYLOAD_BYTES` is 413 on every call of a lease, one over a count is 400 with its number; the lease lives on."""

from __future__ import annotations

from typing import Any

import pytest

from ezgh_workflows_django.protocol.durable import MAX_WAITS
from tests.api.conftest import Caller, Session
from tests.api.matrix import document
from tests.engine.graphs import job

LARGE = "x" * 2_000


@pytest.fixture
def session(api: Caller, settings: Any) -> Session:
    """A worker on a server that keeps little."""
    settings.EZGH_WORKFLOWS = {**settings.EZGH_WORKFLOWS, "MAX_PAYLOAD_BYTES": 1_000}
    return api.register(job())


def taken(session: Session) -> Any:
    """A lease, started."""
    job().start()
    return session.take()


CALLS: dict[str, tuple[str, Any]] = {
    "output": ("complete", {"output": LARGE}),
    "state": ("complete", {"state": {"a": LARGE}}),
    "state of a suspend": ("suspend", {"state": {"a": LARGE}, "waits": [{"name": "x", "kind": "sleep", "ms": 1}]}),
    "checkpoint": ("checkpoint", {"name": "x", "pos": 1, "output": LARGE}),
    "state of a checkpoint": ("checkpoint", {"name": "x", "pos": 1, "state": {"a": LARGE}}),
    "children": ("children", {"name": "x", "pos": 1, "workflow": "job", "payloads": [1, LARGE]}),
    "progress": ("heartbeat", {"progress": LARGE}),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_value_over_its_bound_is_413_and_the_lease_lives_on(session: Session, what: str) -> None:
    call, body = CALLS[what]
    lease = taken(session)
    assert session.on(lease, call, body).why == (413, "payload_too_large")
    assert session.on(lease, "complete", {"output": 1}).body["run"] == "succeeded"


def test_in_a_group_it_is_refused_alone(session: Session) -> None:
    large, small = taken(session), taken(session)
    outcomes = [{"id": large["id"], "complete": {"output": LARGE}}, {"id": small["id"], "complete": {"output": 1}}]
    first, second = session.caller.post("api/steps/outcomes", {"outcomes": outcomes}).body["outcomes"]
    assert (first["error"]["code"], second["run"]) == ("payload_too_large", "succeeded")
    beats = [{"id": large["id"], "progress": LARGE}]
    [beat] = session.caller.post("api/steps/heartbeat", {"leases": beats}).body["leases"]
    assert beat["error"]["code"] == "payload_too_large"


def test_what_is_wrong_otherwise_stays_a_400(session: Session) -> None:
    lease = taken(session)
    assert session.on(lease, "complete", {"output": "a\0b"}).why == (400, "invalid")
    assert session.on(lease, "fail", {"class": "orphaned"}).why == (400, "invalid")


@pytest.mark.long
def test_a_suspend_over_http_has_as_many_waits_as_one_in_process(session: Session) -> None:
    lease = taken(session)
    waits = [{"name": f"w{number}", "kind": "sleep", "ms": 60_000} for number in range(MAX_WAITS)]
    told = session.on(lease, "suspend", {"waits": [*waits, {"name": "one more", "kind": "sleep", "ms": 1}]})
    assert (told.why, list(told.body["error"]["fields"])) == ((400, "invalid"), ["waits"])
    assert session.on(lease, "suspend", {"waits": waits}).status == 200
    assert document()["components"]["schemas"]["Suspend"]["properties"]["waits"]["maxItems"] == MAX_WAITS
