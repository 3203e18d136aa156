"""`ATOMIC_REQUESTS` of the host project changes nothing: every view opens the transactions that it needs by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.contrib.auth.views import LoginView
from django.core.handlers.base import BaseHandler
from django.db import connection, connections
from django.test import AsyncClient

from ezgh_workflows_django.api import run_answers
from ezgh_workflows_django.api.base import ApiView
from ezgh_workflows_django.models import JournalEntry, Project, Run, Trail
from tests.api.conftest import Caller, MakeKey, Reply
from tests.api.matrix import GUARDED, VIEWS
from tests.api.parties import LEAST, Party
from tests.api.test_asgi import Remote
from tests.engine.graphs import job


@pytest.fixture(autouse=True)
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's setting, on every database."""
    for alias in connections:
        monkeypatch.setitem(connections.settings[alias], "ATOMIC_REQUESTS", True)
    assert connection.settings_dict["ATOMIC_REQUESTS"]


def test_django_wraps_no_view_in_a_transaction() -> None:
    """Every route of the URLconf, as Django's handler takes it, whatever the databases; another view it does wrap."""
    handler = BaseHandler()
    assert [route for route, view in VIEWS if handler.make_view_atomic(view) is not view] == []
    another = LoginView.as_view()
    assert handler.make_view_atomic(another) is not another


def test_a_worker_and_its_callers_work_as_ever(api: Caller) -> None:
    session = api.register(job())
    started = api.post("api/runs", {"workflow": "job"})
    lease = session.take()
    assert (started.status, lease["run_id"]) == (201, started.body["id"])
    assert session.on(lease, "heartbeat", {"progress": 1}).status == 200
    assert session.on(lease, "complete", {"output": 1}).body["run"] == "succeeded"
    assert api.get(f"api/runs/{lease['run_id']}").body["output"] == 1
    assert api.post("api/runs", {"workflow": 5}).why == (400, "invalid")
    assert api.post("api/runs", {"workflow": "job"}).status == 201


def test_no_call_is_in_a_transaction(transactional_db: None, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a good one nor one that is refused: looked at where its work begins."""
    owner = Party(project.apps.get(name="default"), whole_project=True)
    begun: list[bool] = []
    checked = ApiView._checked
    monkeypatch.setattr(ApiView, "_checked", lambda *args: begun.append(connection.in_atomic_block) or checked(*args))  # type: ignore[func-returns-value]
    answers = [call.by(owner.caller, body, **owner.ids) for call in GUARDED if call.method != "DELETE" for body in (LEAST.get(str(call)), {"pos": -1})]
    assert {reply.status for reply in answers} >= {200, 201, 400, 409}
    assert begun == [False] * len(answers)


def test_what_a_refusal_leaves_behind_stays(transactional_db: None, api: Caller, key: MakeKey) -> None:
    weak, session = key("workflows.events.emit"), api.register(job())
    api.post("api/runs", {"workflow": "job"})
    lease = session.take()
    session.on(lease, "complete")
    assert Caller(weak).post("api/steps/claim").why == (403, "forbidden")
    assert session.on(lease, "complete", {"output": 2}).why == (409, "already_applied")
    assert Trail.objects.filter(action="RefusePoll", actor=weak.split("_")[1]).count() == 1
    assert JournalEntry.objects.filter(kind__endswith="refused").count() == 1


def test_what_was_done_before_a_fault_of_ours_stays_done(transactional_db: None, api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    api.register(job())
    monkeypatch.setattr(run_answers, "brief", broken)
    with pytest.raises(ZeroDivisionError):
        api.post("api/runs", {"workflow": "job"})
    assert Run.objects.count() == 1


def test_a_claim_is_held_and_woken(over_asgi: AsyncClient) -> None:
    remote = Remote(over_asgi)

    async def story() -> tuple[Reply, Reply]:
        waiting = asyncio.create_task(remote.claim())
        await remote.held(1)
        return await remote.call("POST", "runs", {"workflow": "job"}), await waiting

    started, claimed = asyncio.run(story())
    assert [lease["run_id"] for lease in claimed.body["leases"]] == [started.body["id"]]
