"""The worker protocol over HTTP, call by call: what is done, and with which code what is not (cases B02, B03, B37)."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from ezgh_workflows_django import Step, Workflow
from ezgh_workflows_django.api import base
from ezgh_workflows_django.api.ticking import Ticking
from ezgh_workflows_django.models import App, Lease, Run, Tick, Worker
from tests.api.conftest import Caller, MakeKey
from tests.engine.graphs import body, chain, job


def test_a_five_call_worker_carries_a_run_to_its_end(api: Caller) -> None:
    session = api.register(job())
    run = job().start({"n": 1}, labels={"order": "A-1"})
    [lease] = session.claim(run=run.id)
    assert (lease["run_id"], lease["step"], lease["input"], lease["labels"]) == (run.id, "work", {"n": 1}, {"order": "A-1"})
    assert session.on(lease, "started").body["expires_in_ms"] == 30_000
    assert session.on(lease, "heartbeat", {"progress": {"done": 3}}).status == 200
    told = session.on(lease, "complete", {"output": {"ok": True}})
    assert (told.status, told.body["step"], told.body["run"]) == (200, "succeeded", "succeeded")
    assert run.result(0) == {"ok": True}
    assert api.post("api/steps/claim", session.body(run=run.id)).why == (409, "run_terminal")


def test_register_says_the_numbers_that_hold(api: Caller) -> None:
    told = api.register(job()).told
    assert told["definitions"] == [{"name": "job", "version": job().version}]
    numbers = [told[f"{name}_ms"] for name in ("lease_ttl", "recovery", "offer_ttl", "heartbeat", "max_wait")]
    assert numbers == [30_000, 30_000, 10_000, 20_000, 24_000]
    assert api.register(job()).id != told["worker_id"]


def test_all_faults_of_all_definitions_are_in_one_400(api: Caller) -> None:
    bad = [{**job("one").to_spec(), "steps": []}, {"name": "two"}]
    told = api.post("api/workers/register", {"worker": "w", "app": "default", "definitions": bad})
    assert told.why == (400, "invalid")
    assert all(name in told.body["error"]["message"] for name in ("one", "two"))
    assert not Worker.objects.exists()


def test_a_worker_serves_at_most_a_thousand_workflows(api: Caller) -> None:
    told = api.post("api/workers/register", {"worker": "w", "app": "default", "definitions": [{}] * 1001})
    assert list(told.body["error"]["fields"]) == ["definitions"]


@pytest.mark.parametrize("named", [{"organization": "other"}, {"project": "other"}, {"app": "other"}])
def test_what_is_not_the_keys_is_not_there(api: Caller, named: dict[str, str]) -> None:
    assert api.post("api/workers/register", {"worker": "w", "app": "default", **named}).status == 404


def test_definitions_need_their_own_permission_which_is_named(key: MakeKey, project: Any) -> None:
    poller = Caller(key("workflows.workers.poll"))
    assert poller.register().told["definitions"] == []
    told = poller.post("api/workers/register", {"worker": "w", "app": "default", "definitions": [job().to_spec()]})
    assert told.why == (403, "forbidden")
    assert "workflows.apps.sync" in told.body["error"]["message"]


def test_a_repeated_claim_gives_the_same_leases(api: Caller) -> None:
    session = api.register(job())
    job().start()
    job().start()
    first = session.claim(claim_id="c", max=1)
    assert [lease["id"] for lease in session.claim(claim_id="c", max=1)] == [first[0]["id"]]
    assert [lease["id"] for lease in session.claim(claim_id="c", max=1, serves=[])] == [first[0]["id"]]
    assert len(session.claim()) == 1


def test_a_claim_of_who_is_not_known_sends_back_to_register(api: Caller) -> None:
    session = api.register(job())
    assert api.post("api/steps/claim", session.body(serves=[{"name": "nowhere", "revision": "1"}])).why == (409, "unknown_definition")
    assert api.post("api/steps/claim", session.body(worker_id=str(uuid.uuid4()))).why == (409, "unknown_worker")
    assert api.post(f"api/workers/{session.id}/leave").status == 200
    assert api.post("api/steps/claim", session.body()).why == (409, "unknown_worker")
    assert api.post("api/workers/nobody/leave").why == (409, "unknown_worker")


def test_under_wsgi_an_empty_claim_is_answered_at_once(api: Caller) -> None:
    told = api.post("api/steps/claim", api.register(job()).body(wait_ms=20_000))
    assert told.body == {"leases": [], "retry_after_ms": 1000}


def test_the_four_refusals_and_the_unknown_lease(api: Caller) -> None:
    session = api.register(chain("a", "b"), job("once"), _at_most_once())
    done = chain("a", "b").start()
    lease = session.take()
    assert session.on(lease, "complete", {"output": 1}).status == 200
    again = session.on(lease, "complete", {"output": 2})
    assert again.why == (409, "already_applied")
    assert again.body["error"]["outcome"] == {"status": "completed"}
    second = session.take()
    done.cancel()
    assert session.on(second, "heartbeat").why == (409, "run_terminal")
    job("once").start()
    third = session.take()
    session.on(third, "fail", {"class": "returned", "message": "stopping"})
    assert session.on(third, "started").why == (409, "fenced")
    _at_most_once().start()
    [fourth] = session.claim(serves=[{"name": "careful", "revision": "1"}])
    assert session.on(fourth, "complete").why == (409, "not_started")
    assert session.on({"id": str(uuid.uuid4())}, "complete").why == (404, "unknown_lease")
    assert session.on({"id": "x"}, "heartbeat").why == (404, "unknown_lease")


def _at_most_once() -> Workflow:
    return Workflow("careful", steps=[Step("work", run=body, delivery="at_most_once")])


def test_a_failure_can_always_be_told(api: Caller) -> None:
    session = api.register(job())
    run = job().start()
    told = session.on(session.take(), "fail", {"class": "permanent", "message": "a\0b \ud800 c", "type": "app.Error"})
    assert (told.status, told.body["run"]) == (200, "failed")
    assert "\0" not in run.failure.message


def test_what_cannot_be_stored_is_400_and_names_the_field(api: Caller) -> None:
    session = api.register(job())
    job().start()
    lease = session.take()
    assert session.on(lease, "fail", {"class": "orphaned", "message": "mine"}).why == (400, "invalid")
    assert session.on(lease, "complete", {"output": "a\0b"}).why == (400, "invalid")
    assert session.on(lease, "complete", {"usage": [{"unit": "tokens", "amount": "many"}]}).body["error"]["fields"].keys() == {"usage[0].amount"}
    assert session.on(lease, "suspend", {"waits": []}).why == (400, "invalid")
    assert session.on(lease, "complete", {"output": 1}).status == 200


def test_grouped_calls_answer_each_lease_alone(api: Caller) -> None:
    session = api.register(job())
    for n in range(3):
        job().start(n)
    one, two, three = session.claim()
    nobody = str(uuid.uuid4())
    started = api.post("api/steps/started", {"leases": [one["id"], nobody, two["id"], three["id"]]}).body["leases"]
    assert [(each["id"], "error" in each) for each in started] == [(one["id"], False), (nobody, True), (two["id"], False), (three["id"], False)]
    beats = api.post("api/steps/heartbeat", {"leases": [{"id": one["id"], "progress": 1}, {"id": nobody}]}).body["leases"]
    assert [each.get("error", {}).get("code") for each in beats] == [None, "unknown_lease"]
    outcomes = [
        {"id": one["id"], "complete": {"output": 1}},
        {"id": nobody, "complete": {}},
        {"id": two["id"], "complete": {}, "fail": {"class": "error"}},
        {"id": three["id"], "fail": {"class": 5}},
        {"id": two["id"], "fail": {"class": "permanent", "message": "no"}},
    ]
    told = api.post("api/steps/outcomes", {"outcomes": outcomes}).body["outcomes"]
    assert [each.get("run") or each["error"]["code"] for each in told] == ["succeeded", "unknown_lease", "invalid", "invalid", "failed"]


def test_checkpoints_children_and_parking(api: Caller) -> None:
    parent = job("parent")
    session = api.register(parent, job("kid"))
    run = parent.start()
    lease = session.take()
    stored = session.on(lease, "checkpoint", {"name": "charge", "pos": 1, "kind": "step", "output": {"id": 7}})
    assert (stored.body["output"], stored.body["final"]) == ({"id": 7}, True)
    assert session.on(lease, "checkpoint", {"name": "charge", "pos": 1, "output": 8}).body["output"] == {"id": 7}
    kids = session.on(lease, "children", {"name": "kids", "pos": 2, "workflow": "kid", "payloads": [1, 2]}).body["runs"]
    assert Run.objects.filter(parent=run.id).count() == len(kids) == 2
    assert session.on(lease, "children", {"name": "kids", "pos": 2, "workflow": "kid", "payloads": [1, 2]}).body["runs"] == kids
    parked = session.on(lease, "suspend", {"waits": [{"name": "kids", "kind": "child", "runs": kids}], "mode": "all"})
    assert (parked.status, parked.body["step"]) == (200, "waiting")
    resumed = session.claim(serves=[{"name": "parent", "revision": "1"}])
    assert resumed == []
    assert session.on(lease, "suspend", {"waits": [{"name": "x", "kind": "nap"}]}).body["error"]["fields"].keys() == {"waits[0].kind"}


def test_a_large_part_goes_by_reference(api: Caller) -> None:
    session = api.register(chain("a", "b"))
    with override_settings(EZGH_WORKFLOWS={**settings.EZGH_WORKFLOWS, "MAX_LEASE_BYTES": 4096}):
        chain("a", "b").start({"text": "x" * 5000, "small": 1})
        [lease] = session.claim()
        assert lease["parts"] == {"input": "input"}
        assert "input" not in lease
        assert api.get(f"api/steps/{lease['id']}/parts/input").body == {"text": "x" * 5000, "small": 1}
        assert api.get(f"api/steps/{lease['id']}/parts/nothing").why == (404, "unknown_lease")
        session.on(lease, "started")
        session.on(lease, "complete", {"output": "y" * 5000})
        [after] = session.claim()
        assert api.get(f"api/steps/{after['id']}/parts/{after['parts']['steps/a'].replace('/', '%2F')}").body == "y" * 5000
        assert api.get(f"api/steps/{lease['id']}/parts/input").why == (404, "unknown_lease")


def test_another_projects_key_and_another_apps_key_know_no_such_lease(api: Caller, key: MakeKey, project: Any) -> None:
    session = api.register(job())
    job().start()
    [lease] = session.claim()
    other_app = App.objects.create(project=project, name="other", created_at=project.created_at)
    for stranger in (Caller(key("worker", app=other_app)), Caller(key("worker", of=_other_project(project)))):
        for call in ("started", "heartbeat", "complete", "suspend", "checkpoint", "children"):
            assert stranger.post(f"api/steps/{lease['id']}/{call}", _least(call)).why == (404, "unknown_lease")
        assert stranger.post("api/steps/started", {"leases": [lease["id"]]}).body["leases"][0]["error"]["code"] == "unknown_lease"
        assert stranger.post("api/steps/claim", session.body()).why == (409, "unknown_worker")
        assert stranger.post(f"api/workers/{session.id}/leave").why == (409, "unknown_worker")
    assert Lease.objects.get().started_at is None


def _least(call: str) -> dict[str, Any]:
    bodies: dict[str, dict[str, Any]] = {
        "suspend": {"waits": [{"name": "x", "kind": "sleep", "ms": 1}]},
        "checkpoint": {"name": "x", "pos": 1},
        "children": {"name": "x", "pos": 1, "workflow": "job", "payloads": []},
    }
    return bodies.get(call, {})


def _other_project(project: Any) -> Any:
    return type(project).objects.create(organization=project.organization, slug="second", name="Second", created_at=project.created_at)


def test_any_worker_call_keeps_maintenance_going(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    Tick.objects.update(ticked_at=long_ago)
    monkeypatch.setattr(base, "ticking", Ticking())
    session = api.register()
    assert Tick.objects.get().ticked_at > long_ago
    Tick.objects.update(ticked_at=long_ago)
    session.claim()
    assert Tick.objects.get().ticked_at == long_ago  # the last one is under a second old
