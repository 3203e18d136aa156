"""Every write of a worker, single and in a group, once another worker has its step (case B02)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from ezgh_workflows_django import Workflow
from ezgh_workflows_django.api.routes import WORKER
from ezgh_workflows_django.models import JournalEntry, Lease
from ezgh_workflows_django.protocol.states import LeaseStatus
from tests.api.conftest import Caller, MakeKey, Reply, Session
from tests.engine.conftest import Desk
from tests.engine.conftest import desk as desk
from tests.engine.situations import pair
from tests.engine.test_refusals import but_for_the_journal

LATE: Final = {"late": True}

CALLS: Final[Mapping[str, tuple[str, Any]]] = {
    "started": ("{id}/started", {}),
    "heartbeat": ("{id}/heartbeat", {"progress": LATE}),
    "complete": ("{id}/complete", {"output": LATE, "state": LATE}),
    "fail": ("{id}/fail", {"class": "late", "message": "late"}),
    "suspend": ("{id}/suspend", {"waits": [{"name": "late", "kind": "event", "event": "late", "key": ""}], "mode": "any", "state": LATE}),
    "checkpoint": ("{id}/checkpoint", {"name": "late", "pos": 1, "kind": "step", "output": LATE, "state": LATE}),
    "children": ("{id}/children", {"name": "late", "pos": 1, "workflow": "pair", "payloads": [1, 2]}),
    "many-started": ("started", {"leases": ["{id}"]}),
    "many-heartbeats": ("heartbeat", {"leases": [{"id": "{id}", "progress": LATE}]}),
    "outcomes": ("outcomes", {"outcomes": [{"id": "{id}", "complete": {"output": LATE, "state": LATE}}]}),
    "outcomes that fail": ("outcomes", {"outcomes": [{"id": "{id}", "fail": {"class": "late", "message": "late"}}]}),
    "outcomes that park": ("outcomes", {"outcomes": [{"id": "{id}", "suspend": {"waits": [{"name": "late", "kind": "sleep", "ms": 1}]}}]}),
}
"""By the name of its route: the path under `steps/`, and a body that would leave traces."""

ELSEWHERE: Final = {"register", "leave", "claim", "part"}
"""Routes of workers that write nothing of a lease."""


def code_of(reply: Reply) -> str | None:
    """The code of a refusal, of the one lease in a group too; None where the call was accepted."""
    if reply.code is not None:
        assert reply.status == 409
        return reply.code
    assert reply.status == 200, reply.body
    [told] = reply.body.get("leases") or reply.body.get("outcomes") or [reply.body]
    return None if "error" not in told else str(told["error"]["code"])


class Scene:
    """A run of two steps, one of which the first worker has begun; the second worker is there too."""

    def __init__(self, desk: Desk, api: Caller) -> None:
        self.desk = desk
        self.workflow: Workflow = pair()
        self.first, self.second = (api.register(self.workflow, worker=name) for name in ("w1", "w2"))
        self.run = self.workflow.start({"n": 1})
        self.lease = self.take(self.first)

    def take(self, session: Session) -> Any:
        """The step `work`, begun."""
        [lease] = session.claim(max=1, serves=[{"name": "pair", "revision": self.workflow.revision, "steps": ["work"]}])
        assert session.on(lease, "started").status == 200
        return lease

    def late(self, call: str) -> Reply:
        """That call of the first worker."""
        path, body = CALLS[call]
        return self.first.caller.post(f"api/steps/{path.replace('{id}', self.lease['id'])}", filled(body, self.lease["id"]))


def filled(value: Any, lease_id: str) -> Any:
    """A body in which `{id}` is the lease's id."""
    if isinstance(value, Mapping):
        return {name: filled(each, lease_id) for name, each in value.items()}
    if isinstance(value, list):
        return [filled(each, lease_id) for each in value]
    return lease_id if value == "{id}" else value


@pytest.fixture
def it(desk: Desk, key: MakeKey) -> Scene:
    """A scene; its clock is the desk's."""
    return Scene(desk, Caller(key("admin")))


def test_every_write_of_a_worker_is_here() -> None:
    assert {str(route.name) for route in WORKER} - ELSEWHERE <= set(CALLS)


@pytest.mark.parametrize("call", CALLS)
def test_after_the_reclaim_it_is_fenced_and_changes_no_row(it: Scene, call: str) -> None:
    it.desk.advance(seconds=30)
    it.desk.advance(seconds=30)
    taken = it.take(it.second)
    assert it.second.on(taken, "checkpoint", {"name": "late", "pos": 1, "kind": "step", "output": "mine"}).status == 200
    before = but_for_the_journal(it.run)
    assert [code_of(it.late(call)) for _ in range(2)] == ["fenced", "fenced"]
    assert but_for_the_journal(it.run) == before
    assert JournalEntry.objects.filter(run__pk=it.run.id, kind="lease.refused").count() == 1
    assert it.second.on(taken, "complete", {"output": "in time"}).body["step"] == "succeeded"
    assert it.desk.step(it.run, "work").output == '"in time"'


@pytest.mark.parametrize("call", CALLS)
def test_between_its_expiry_and_the_reclaim_it_is_accepted(it: Scene, call: str) -> None:
    """One answer for all: the worker has come back within the recovery window, and its lease lives on."""
    it.desk.advance(seconds=30)
    assert it.desk.kinds(it.run)[-1] == "lease.orphaned"
    assert code_of(it.late(call)) is None
    assert Lease.objects.get(pk=it.lease["id"]).status != LeaseStatus.ORPHANED
