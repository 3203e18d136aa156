"""Runs over HTTP: starting, looking, and every verb."""

from __future__ import annotations

from typing import Any

import pytest

from ezgh_workflows_django import Concurrency, Step, Wait, Workflow
from ezgh_workflows_django.models import Run, Trail
from tests.api.conftest import Caller, Session
from tests.engine.graphs import body, chain, job


@pytest.fixture
def session(api: Caller) -> Session:
    """A worker that serves `job`, `chain` and `approval`."""
    return api.register(job(), chain("a", "b"), approval())


def approval() -> Workflow:
    """One wait."""
    return Workflow("approval", steps=[Step("ask", wait=Wait("approved")), Step("after", run=body, after=["ask"])])


def started(api: Caller, workflow: str = "job", **rest: Any) -> str:
    """The id of a new run."""
    told = api.post("api/runs", {"workflow": workflow, **rest})
    assert told.status == 201, told.body
    return str(told.body["id"])


def test_a_start_pins_what_a_live_worker_announces(api: Caller, session: Session) -> None:
    told = api.post("api/runs", {"workflow": "job", "payload": {"n": 1}, "labels": {"order": "A-1"}, "correlation_id": "c", "priority": 5})
    assert told.status == 201
    assert (told.body["app"], told.body["version"], told.body["labels"], told.body["priority"]) == ("default", job().version, {"order": "A-1"}, 5)
    [lease] = session.claim()
    assert (lease["run_id"], lease["input"]) == (told.body["id"], {"n": 1})


def test_a_workflow_that_nobody_announces_is_not_started(api: Caller, session: Session) -> None:
    assert api.post("api/runs", {"workflow": "nowhere"}).why == (409, "workflow_not_announced")
    assert api.post(f"api/workers/{session.id}/leave").status == 200
    assert api.post("api/runs", {"workflow": "job"}).why == (409, "workflow_not_announced")
    assert not Run.objects.exists()


def test_a_known_idempotency_key_is_200_and_other_content_409(api: Caller, session: Session) -> None:
    first = api.post("api/runs", {"workflow": "job", "payload": 1, "idempotency_key": "k"})
    again = api.post("api/runs", {"workflow": "job", "payload": 1, "idempotency_key": "k"})
    other = api.post("api/runs", {"workflow": "job", "payload": 2, "idempotency_key": "k"})
    assert (first.status, again.status, again.body["id"]) == (201, 200, first.body["id"])
    assert other.why == (409, "idempotency_conflict")


def test_a_start_that_finds_no_slot_is_409_and_one_in_line_says_what_for(api: Caller) -> None:
    api.register(job("full", concurrency=Concurrency(1, on_limit="reject")), job("one", concurrency=Concurrency(1, key_expr="payload.k")))
    started(api, "full")
    told = api.post("api/runs", {"workflow": "full"})
    assert told.why == (409, "concurrency_limit")
    assert told.body["error"]["message"] == "workflow full: all slots are taken, and it refuses what finds none: start it again once one is free"
    assert api.post("api/runs", {"workflow": "one", "payload": {}}).body["error"]["fields"].keys() == {"key"}
    waiting = api.get(f"api/runs/{started(api, 'one', payload={'k': 'a'})}").body
    assert (waiting["status"], waiting["waiting_for"]) == ("queued", [{"step": "", "event": "the slot of one", "key": "a", "until": None}])


def test_every_bad_field_is_in_one_400(api: Caller, session: Session) -> None:
    told = api.post("api/runs", {"workflow": 5, "priority": 101, "labels": [], "delay_ms": -1, "at": "yesterday"})
    assert told.why == (400, "invalid")
    assert set(told.body["error"]["fields"]) == {"workflow", "priority", "labels", "delay_ms", "at"}


def test_a_list_goes_page_by_page_from_the_newest_back(api: Caller, session: Session) -> None:
    ids = [started(api, labels={"n": str(n % 2)}) for n in range(5)]
    first = api.get("api/runs?limit=3").body
    rest = api.get(f"api/runs?limit=3&cursor={first['next']}").body
    assert [run["id"] for run in first["runs"] + rest["runs"]] == ids[::-1]
    assert rest["next"] is None
    assert [run["id"] for run in api.get("api/runs?label.n=1&status=running&workflow=job").body["runs"]] == [ids[3], ids[1]]
    assert api.get("api/runs?since=2999-01-01T00:00:00Z").body["runs"] == []
    assert api.get("api/runs?status=odd&limit=0").body["error"]["fields"].keys() == {"status", "limit"}
    assert api.get("api/runs?cursor=%00").why == (400, "invalid")


def test_a_run_shows_how_it_stands_and_never_a_lease_id(api: Caller, session: Session) -> None:
    run_id = started(api, "chain", payload={"n": 1})
    lease = session.take()
    session.on(lease, "complete", {"output": 7, "state": {"seen": True}})
    told = api.get(f"api/runs/{run_id}")
    assert (told.body["phase"], told.body["state"], told.body["payload"]) == ("queued", {"seen": True}, {"n": 1})
    assert [(step["name"], step["status"], step["output"]) for step in told.body["steps"]] == [("a", "succeeded", 7), ("b", "ready", None)]
    assert [(each["step"], each["status"], each["worker"]) for each in told.body["attempts"]] == [("a", "completed", "w1")]
    assert lease["id"] not in str([api.get(f"api/runs/{run_id}{more}").body for more in ("", "/journal", "/graph")])
    assert [node["after"] for node in api.get(f"api/runs/{run_id}/graph").body["steps"]] == [[], ["a"]]


def test_a_journal_is_read_in_order_and_in_stretches(api: Caller, session: Session) -> None:
    run_id = started(api)
    first = api.get(f"api/runs/{run_id}/journal?limit=1").body
    rest = api.get(f"api/runs/{run_id}/journal?after={first['next']}").body
    assert [entry["seq"] for entry in first["entries"] + rest["entries"]] == list(range(1, Run.objects.get().journal_seq + 1))
    assert rest["next"] is None


def test_reading_a_run_is_in_the_trail_once_an_hour(api: Caller, session: Session) -> None:
    run_id = started(api)
    for _ in range(3):
        api.get(f"api/runs/{run_id}")
    assert Trail.objects.filter(action="ReadRun", target=run_id).count() == 1


def test_cancel_always_agrees_with_the_final_state(api: Caller, session: Session) -> None:
    cancelled, done = started(api), started(api)
    assert api.post(f"api/runs/{cancelled}/cancel", {"reason": "no more"}).body == {"id": cancelled, "status": "cancelled"}
    assert api.post(f"api/runs/{cancelled}/cancel").status == 200
    session.on(session.take(), "complete")
    assert api.post(f"api/runs/{done}/cancel").why == (409, "run_terminal")
    assert Trail.objects.get(action="CancelRun").actor_kind == "key"


def test_pause_holds_back_and_resume_lets_go(api: Caller, session: Session) -> None:
    run_id = started(api)
    assert api.post(f"api/runs/{run_id}/pause", {"reason": "look"}).body["status"] == "paused"
    assert session.claim() == []
    assert api.post(f"api/runs/{run_id}/resume").body["status"] == "running"
    assert len(session.claim()) == 1


def test_retry_and_resolve_open_a_failed_run_again(api: Caller, session: Session) -> None:
    run_id = started(api)
    assert api.post(f"api/runs/{run_id}/retry").why == (409, "verb_refused")
    session.on(session.take(), "fail", {"class": "permanent", "message": "boom"})
    assert api.get(f"api/runs/{run_id}").body["failure"]["message"] == "boom"
    assert api.post(f"api/runs/{run_id}/retry", {"from_step": "nowhere"}).why == (404, "unknown_step")
    assert api.post(f"api/runs/{run_id}/retry").body["status"] == "running"
    session.on(session.take(), "fail", {"class": "permanent", "message": "boom"})
    assert api.post(f"api/runs/{run_id}/resolve", {"step": "work", "output": 1, "reason": "by hand"}).body["status"] == "succeeded"
    assert api.get(f"api/runs/{run_id}").body["output"] == 1


def test_a_signal_is_delivered_or_buffered_and_refused_when_the_run_is_over(api: Caller, session: Session) -> None:
    waiting, early = started(api, "approval"), started(api)
    assert api.get(f"api/runs/{waiting}").body["waiting_for"] == [{"step": "ask", "event": "approved", "key": "", "until": None}]
    assert api.post(f"api/runs/{waiting}/signal", {"name": "approved", "payload": {"by": "eva"}}).body == {"delivery": "delivered"}
    assert api.post(f"api/runs/{early}/signal", {"name": "approved"}).body == {"delivery": "buffered"}
    api.post(f"api/runs/{early}/cancel")
    assert api.post(f"api/runs/{early}/signal", {"name": "approved"}).why == (409, "run_terminal")


def test_migrate_says_what_it_would_do_and_refuses_an_unknown_version(api: Caller, session: Session) -> None:
    run_id = started(api, "chain")
    longer = chain("a", "b", "c")
    api.register(longer)
    dry = api.post(f"api/runs/{run_id}/migrate", {"version": longer.version, "dry_run": True}).body
    assert (dry["added"], dry["faults"], dry["done"]) == (["c"], [], False)
    assert api.post(f"api/runs/{run_id}/migrate", {"version": longer.version}).body["done"]
    assert api.get(f"api/runs/{run_id}").body["version"] == longer.version
    assert api.post(f"api/runs/{run_id}/migrate", {"version": "0" * 16}).why == (404, "unknown_workflow")


def test_an_event_is_stored_once_by_its_id(api: Caller, session: Session, django_capture_on_commit_callbacks: Any) -> None:
    run_id = started(api, "approval")
    with django_capture_on_commit_callbacks(execute=True):
        first = api.post("api/events", {"name": "approved", "event_id": "e1"})
    again = api.post("api/events", {"name": "approved", "event_id": "e1"})
    assert (first.status, first.body["known"], again.status, again.body) == (201, False, 200, {"id": first.body["id"], "known": True})
    assert api.get(f"api/runs/{run_id}").body["waiting_for"] == []


def test_bulk_verbs_count_first_and_skip_what_they_are_not_for(api: Caller, session: Session) -> None:
    ids = [started(api, labels={"batch": "7"}) for _ in range(3)]
    other = started(api)
    api.post(f"api/runs/{ids[0]}/cancel")
    chosen = {"filter": {"labels": {"batch": "7"}}}
    assert api.post("api/runs/cancel", chosen | {"preview": True}).body["count"] == 2
    assert sorted(api.post("api/runs/cancel", chosen).body["done"]) == sorted(ids[1:])
    assert api.post("api/runs/retry", chosen).body["count"] == 3
    assert set(Run.objects.values_list("status", flat=True)) == {"running"}
    assert api.post("api/runs/cancel", {"filter": {}}).why == (400, "invalid")
    assert api.get(f"api/runs/{other}").body["status"] == "running"
