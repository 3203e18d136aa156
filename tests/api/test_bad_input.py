"""What no database can hold, what no definition can mean, what means too much: each is refused by name, and none is a 500."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from django.test import Client, override_settings

from ezgh_workflows_django.engine import starts
from ezgh_workflows_django.engine.transactions import LostRace
from ezgh_workflows_django.errors import StartBusy
from ezgh_workflows_django.models import ApiKey, Definition, Run
from tests.api.conftest import Caller, Reply
from tests.api.fuzzing import as_json, mutated
from tests.engine.graphs import job

HERE = "organizations/default/projects/default"
HUGE = 10**400
STEP: dict[str, Any] = {"name": "work", "kind": "run"}
MUTATIONS = 1_500
AT_A_TIME = 250
"""Mutations of one test: a bound on a test's time is no bound on their number."""
EMPTY: tuple[Any, ...] = ("", None, [], {})


def register(api: Caller, *steps: Any, **rest: Any) -> Reply:
    """What the registration of a workflow with these steps is answered."""
    spec = {"name": "bad", "revision": "1", "steps": list(steps), **rest}
    return register_as_is(api, spec)


@pytest.mark.parametrize(
    "step",
    [
        {"name": "a", "kind": "wait", "sleep_ms": 5},
        {"name": "a", "kind": "wait"},
        {"name": "a", "kind": "sleep"},
        {"name": "a", "kind": "sleep", "wait": {"event": "approved"}},
        {"name": "a", "kind": "sleep", "sleep_ms": 5, "wait": {"event": "approved"}},
        {"name": "a", "kind": "run", "sleep_ms": 5},
        {"name": "a", "kind": "run", "wait": {"event": "approved"}},
    ],
    ids=str,
)
def test_a_step_is_what_its_kind_says(api: Caller, step: Any) -> None:
    told = register(api, STEP, step)
    assert told.why == (400, "invalid")
    assert "workflow bad.steps[1]: its kind is" in told.body["error"]["message"]
    assert not Definition.objects.filter(workflow="bad").exists()


@pytest.mark.parametrize(
    "retry", [{"factor": HUGE}, {"jitter": HUGE}, {"factor": -HUGE}, {"factor": float("inf")}, {"max_attempts": HUGE}], ids=lambda it: str(it)[:20]
)
def test_a_number_of_hundreds_of_digits_is_a_fault_as_any_other(api: Caller, retry: Any) -> None:
    told = register(api, {**STEP, "retry": retry})
    assert (told.why, next(iter(retry)) in told.body["error"]["message"]) == ((400, "invalid"), True)


@pytest.mark.parametrize("place", ["step", "wait", "retry", "workflow"])
def test_a_number_that_is_none_is_refused_where_nobody_looks_too(api: Caller, place: str) -> None:
    odd = {"unheard-of": float("inf")}
    steps = {"step": {**STEP, **odd}, "wait": {"name": "a", "kind": "wait", "wait": {"event": "x", **odd}}, "retry": {**STEP, "retry": odd}}
    told = register(api, steps.get(place, STEP), **(odd if place == "workflow" else {}))
    assert (told.why, "Infinity" in told.body["error"]["message"]) == ((400, "invalid"), True)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, MUTATIONS, AT_A_TIME))
def test_no_definition_is_a_500(api: Caller, first: int) -> None:
    answers = {seed: register_as_is(api, mutated(seed)).status for seed in range(first, first + AT_A_TIME)}
    assert {seed: status for seed, status in answers.items() if status not in (200, 400)} == {}
    assert {*answers.values()} == {200, 400}


def register_as_is(api: Caller, spec: Any) -> Reply:
    """What a registration with that definition is answered. A fault of ours is raised."""
    return api.call("POST", "api/workers/register", as_json({"worker": "w", "app": "default", "definitions": [spec]}).encode())


@pytest.mark.parametrize("end", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_key_ends_at_no_moment_beyond_all_calendars(api: Caller, end: str) -> None:
    told = api.post(f"{HERE}/keys", {"name": "x", "permissions": ["read"], "expires_at": end})
    assert (told.why, list(told.body["error"]["fields"])) == ((400, "invalid"), ["expires_at"])


def test_the_end_of_a_key_is_told_in_utc(api: Caller) -> None:
    made = api.post(f"{HERE}/keys", {"name": "x", "permissions": ["read"], "expires_at": "2999-01-01T02:00:00+02:00"}).body
    assert made["expires_at"] == "2999-01-01T00:00:00Z"
    assert ApiKey.objects.get(prefix=made["prefix"]).expires_at == datetime(2999, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("method", "below"),
    [("GET", ""), ("PATCH", ""), ("POST", "/pause"), ("POST", "/resume"), ("GET", "/workflows"), ("POST", "/runs"), ("GET", "/runs"), ("GET", "/schedules")],
)
@pytest.mark.parametrize("name", ["%00", "a%00b"])
def test_an_app_with_a_nul_in_its_name_is_not_there(api: Caller, method: str, below: str, name: str) -> None:
    assert api.call(method, f"{HERE}/apps/{name}{below}", {"workflow": "job"}).why == (404, "unknown_app")


@pytest.mark.parametrize("path", ["schedules/%00/pause", "schedules/%00/run", "keys/%00", "trails?actor=%00", "trails?cursor=%00"])
def test_no_nul_reaches_the_database(api: Caller, path: str) -> None:
    method = "DELETE" if path.startswith("keys") else "GET" if path.startswith("trails") else "POST"
    assert api.call(method, f"{HERE}/{path}", {}).status in (400, 404)


@pytest.mark.parametrize("error", [LostRace("Run 1…: no longer {}"), StartBusy("another transaction has held the key")], ids=lambda error: type(error).__name__)
def test_others_in_the_way_are_a_503(api: Caller, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def in_the_way(*_: Any, **__: Any) -> Any:
        raise error

    api.register(job())
    monkeypatch.setattr(starts, "start", in_the_way)
    told = api.post("api/runs", {"workflow": "job"})
    assert (told.why, told.headers["Retry-After"]) == ((503, "busy"), "1")
    assert "Run 1" not in told.body["error"]["message"]


# --- filters


@pytest.mark.parametrize(
    "chosen",
    [
        *({}, {"labels": {}}, {"labels": {}, "workflow": "job"}, {"labels": None}, {"labels": []}, {"labels": ""}, {"unheard-of": "x"}),
        *({name: empty} for name, empty in product(("status", "workflow", "app", "correlation_id", "since", "until"), EMPTY)),
    ],
    ids=str,
)
@pytest.mark.parametrize("verb", ["cancel", "retry", "resume"])
def test_a_filter_that_chooses_nothing_means_no_run(api: Caller, verb: str, chosen: Any) -> None:
    api.register(job())
    api.post("api/runs", {"workflow": "job"})
    assert api.post(f"api/runs/{verb}", {"filter": chosen}).why == (400, "invalid")
    assert Run.objects.get().status == "running"


@pytest.mark.parametrize("chosen", [None, [], ""])
def test_no_filter_means_no_run(api: Caller, chosen: Any) -> None:
    assert api.post("api/runs/cancel", {"filter": chosen}).why == (400, "invalid")


def test_a_filter_has_no_more_labels_than_a_run(api: Caller) -> None:
    labels = {f"l{number}": "x" for number in range(1_100)}
    for told in (api.post("api/runs/cancel", {"filter": {"labels": labels}}), api.get("api/runs?" + "&".join(f"label.l{number}=x" for number in range(33)))):
        assert (told.why, list(told.body["error"]["fields"])) == ((400, "invalid"), ["labels"])
    assert api.get("api/runs?" + "&".join(f"label.l{number}=x" for number in range(32))).status == 200


# --- one shape everywhere


@pytest.mark.parametrize("path", ["api/nothing", "api/runs/", "api/", "api/runs/1/2/3", f"{HERE}/nothing", f"{HERE}/"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_a_path_that_leads_nowhere_is_a_404_in_the_one_shape(api: Caller, method: str, path: str) -> None:
    assert api.call(method, path).why == (404, "not_found")


def test_a_query_with_more_fields_than_are_read_is_a_400_in_the_one_shape(api: Caller) -> None:
    assert api.get("api/runs?" + "&".join(f"a{number}=1" for number in range(1_100))).why == (400, "invalid")


def test_health_can_be_asked_by_head(db: None) -> None:
    told = Client().head("/v1/api/health")
    assert (told.status_code, told.content, int(told.headers["Content-Length"]) > 0) == (200, b"", True)
    assert Client().head("/v1/api/runs").status_code == 405


def test_the_host_names_no_field_of_ours(api: Caller) -> None:
    with override_settings(REST_FRAMEWORK={"NON_FIELD_ERRORS_KEY": "detail"}):
        assert list(api.post("api/runs/cancel", {"filter": {}}).body["error"]["fields"]) == ["filter"]
        assert list(api.call("POST", "api/runs", json.dumps([1]).encode()).body["error"]["fields"]) == ["body"]
