"""The flat forms: the key decides the project, whatever its apps are called. And a start that is known is known, whoever is at work."""

from __future__ import annotations

from typing import Any

import pytest

from ezgh_workflows_django.engine import workers
from ezgh_workflows_django.models import App, Event, Project, Run
from tests.api.conftest import Caller, MakeKey, Session
from tests.api.matrix import another_app
from tests.engine.graphs import job


@pytest.fixture
def elsewhere(project: Project) -> Project:
    """A project that has no app of the name that `DEFAULT_APP` says."""
    return Project.objects.create(organization=project.organization, slug="elsewhere", name="Elsewhere", created_at=project.created_at)


@pytest.fixture
def theirs(elsewhere: Project, key: MakeKey) -> Caller:
    """Who may do everything there."""
    return Caller(key("admin", of=elsewhere))


def test_an_event_is_the_projects_whatever_its_apps_are_called(theirs: Caller, elsewhere: Project) -> None:
    another_app(elsewhere, "dev-eva")
    another_app(elsewhere, "billing")
    another_app(elsewhere, "shipping")
    assert theirs.post("api/events", {"name": "paid"}).status == 201
    event = Event.objects.get()
    assert (event.project_id, event.app_id) == (elsewhere.pk, None)


def test_an_event_for_a_project_without_apps_names_what_is_missing(theirs: Caller, elsewhere: Project) -> None:
    assert theirs.post("api/events", {"name": "paid"}).why == (404, "unknown_app")
    another_app(elsewhere, "dev-eva")
    assert theirs.post("api/events", {"name": "paid"}).why == (404, "unknown_app")
    assert theirs.post("api/events", {"name": "paid", "app": "dev-eva"}).status == 201


def test_a_start_is_in_the_projects_only_app(theirs: Caller, elsewhere: Project) -> None:
    another_app(elsewhere, "dev-eva")
    another_app(elsewhere, "billing")
    theirs.register(job(), app="billing")
    told = theirs.post("api/runs", {"workflow": "job"})
    assert (told.status, told.body["app"]) == (201, "billing")


def test_of_several_apps_a_start_names_one(theirs: Caller, elsewhere: Project) -> None:
    another_app(elsewhere, "billing")
    another_app(elsewhere, "shipping")
    theirs.register(job(), app="shipping")
    told = theirs.post("api/runs", {"workflow": "job"})
    assert (told.why, list(told.body["error"]["fields"])) == ((400, "invalid"), ["app"])
    assert "billing, shipping" in told.body["error"]["message"]
    assert theirs.post("api/runs", {"workflow": "job", "app": "shipping"}).status == 201


def test_a_key_of_one_app_means_that_app(elsewhere: Project, key: MakeKey) -> None:
    another_app(elsewhere, "billing")
    caller = Caller(key("admin", of=elsewhere, app=another_app(elsewhere, "shipping")))
    caller.register(job(), app="shipping")
    assert caller.post("api/runs", {"workflow": "job"}).body["app"] == "shipping"
    assert caller.post("api/events", {"name": "paid"}).status == 201
    assert Event.objects.get().app == App.objects.get(name="shipping")
    assert [each["app"] for each in caller.get("api/workflows").body["workflows"]] == ["shipping"]


def test_workflows_are_those_of_every_app_in_the_keys_reach(theirs: Caller, elsewhere: Project, api: Caller) -> None:
    another_app(elsewhere, "billing")
    another_app(elsewhere, "shipping")
    assert theirs.get("api/workflows").body == {"workflows": []}
    theirs.register(job(), app="billing")
    theirs.register(job(), job("ship"), app="shipping")
    api.register(job("nobody-elses"))
    told = theirs.get("api/workflows").body["workflows"]
    assert sorted((each["app"], each["name"]) for each in told) == [("billing", "job"), ("shipping", "job"), ("shipping", "ship")]
    assert [each["app"] for each in theirs.get("api/workflows?app=billing").body["workflows"]] == ["billing"]
    assert theirs.get("api/workflows?app=nothing").why == (404, "unknown_app")


# --- a known idempotency key


@pytest.fixture
def session(api: Caller) -> Session:
    """A worker that announces `job`."""
    return api.register(job())


def start(api: Caller, payload: Any = 1, key: str = "k") -> Any:
    """What a start with that key is answered."""
    return api.post("api/runs", {"workflow": "job", "payload": payload, "labels": {"a": "b"}, "idempotency_key": key})


def test_a_known_idempotency_key_is_known_once_nobody_announces_the_workflow(api: Caller, session: Session) -> None:
    first = start(api)
    workers.leave(session.id)
    again = start(api)
    assert (first.status, again.status, again.body["id"]) == (201, 200, first.body["id"])
    assert start(api, payload=2).why == (409, "idempotency_conflict")
    assert start(api, key="another").why == (409, "workflow_not_announced")
    assert Run.objects.count() == 1
