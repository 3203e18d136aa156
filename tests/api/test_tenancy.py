"""Apps, keys and the trail over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from ezgh_workflows_django.models import App, Project
from tests.api.conftest import Caller, MakeKey
from tests.engine.graphs import job

HERE = "organizations/default/projects/default"


def test_an_app_is_created_once_and_by_ids_or_slugs(api: Caller, project: Project) -> None:
    there = f"organizations/{project.organization_id}/projects/{project.pk}"
    told = api.post(f"{there}/apps", {"name": "reports", "kind": "pull", "queue": "default", "partitions": 8})
    assert (told.status, told.body["partitions"], told.body["depth"], told.body["live_workers"]) == (201, 8, 0, 0)
    assert api.post(f"{HERE}/apps", {"name": "reports"}).why == (409, "app_exists")
    assert [app["name"] for app in api.get(f"{HERE}/apps").body["apps"]] == ["reports", "default"]
    assert api.get(f"{HERE}/apps/{told.body['id']}").body["name"] == "reports"
    assert api.get(f"{HERE}/apps/nothing").why == (404, "unknown_app")


@pytest.mark.parametrize("elsewhere", ["organizations/other/projects/default", "organizations/default/projects/other", "organizations/0/projects/0"])
def test_another_project_is_not_there(api: Caller, elsewhere: str) -> None:
    for path in ("apps", "apps/default", "apps/default/workflows", "apps/default/runs", "keys", "trails"):
        assert api.get(f"{elsewhere}/{path}").why == (404, "unknown_project")
    assert api.post(f"{elsewhere}/apps", {"name": "x"}).why == (404, "unknown_project")


@pytest.mark.parametrize(
    "bad", [{"queue": "-a"}, {"queue": "A"}, {"queue": "a" * 64}, {"partitions": 0}, {"partitions": 33}, {"kind": "push"}, {"name": "a/b"}]
)
def test_an_app_that_cannot_be_is_400_naming_the_field(api: Caller, bad: dict[str, Any]) -> None:
    told = api.post(f"{HERE}/apps", {"name": "reports", **bad})
    assert (told.why, list(told.body["error"]["fields"])) == ((400, "invalid"), list(bad))


def test_partitions_grow_and_never_shrink_and_the_queue_is_fixed(api: Caller, project: Project) -> None:
    assert api.call("PATCH", f"{HERE}/apps/default", {"partitions": 16}).body["partitions"] == 16
    assert api.call("PATCH", f"{HERE}/apps/default", {"partitions": 4}).why == (409, "partitions_shrink")
    assert api.call("PATCH", f"{HERE}/apps/default", {"queue": "other"}).why == (409, "queue_fixed")


def test_a_paused_app_gives_nothing_and_says_so(api: Caller) -> None:
    session = api.register(job())
    job().start()
    told = api.post(f"{HERE}/apps/default/pause", {"reason": "release"})
    assert (told.body["paused_reason"], told.body["depth"], told.body["workflows"]) == ("release", 1, ["job"])
    assert session.claim() == []
    api.post(f"{HERE}/apps/default/resume")
    paused = api.post(f"{HERE}/apps/default/pause", {"workflow": "job"}).body
    assert [each["workflow"] for each in paused["paused_workflows"]] == ["job"]
    assert session.claim() == []
    api.post(f"{HERE}/apps/default/resume", {"workflow": "job"})
    assert len(session.claim()) == 1


def test_announced_workflows_are_listed_with_versions(api: Caller) -> None:
    api.register(job())
    for path in (f"{HERE}/apps/default/workflows", "api/workflows"):
        [told] = api.get(path).body["workflows"]
        assert (told["name"], told["version"], told["workers"]) == ("job", job().version, 1)


def test_a_claim_may_announce_what_is_stored(api: Caller, key: MakeKey) -> None:
    api.register(job())
    other = api.register()
    assert api.post("api/steps/claim", other.body(announce=[f"job@{job().version}"])).status == 200
    assert api.get("api/workflows").body["workflows"][0]["workers"] == 2
    assert api.post("api/steps/claim", other.body(announce=["job@nothing"])).why == (409, "unknown_definition")
    poller = Caller(key("workflows.workers.poll"))
    assert poller.post("api/steps/claim", other.body(announce=[f"job@{job().version}"])).why == (403, "forbidden")


def test_a_developers_app_is_made_by_a_call_of_its_own_that_needs_the_right(api: Caller, key: MakeKey, project: Project) -> None:
    worker = Caller(key("worker"))
    assert worker.post("api/workers/register", {"worker": "w", "app": "dev-eva"}).why == (404, "unknown_app")
    assert worker.post(f"{HERE}/apps", {"name": "dev-eva", "queue": "dev-eva"}).why == (403, "forbidden")
    assert api.post(f"{HERE}/apps", {"name": "dev-eva", "queue": "dev-eva"}).status == 201
    worker.register(job(), app="dev-eva")


def test_runs_are_started_and_listed_under_their_app(api: Caller, project: Project) -> None:
    api.post(f"{HERE}/apps", {"name": "reports"})
    api.register(job(), app="reports")
    started = api.post(f"{HERE}/apps/reports/runs", {"workflow": "job"})
    assert (started.status, started.body["app"]) == (201, "reports")
    assert api.post("api/runs", {"workflow": "job"}).why == (409, "workflow_not_announced")
    assert api.post("api/runs", {"workflow": "job", "app": "reports"}).status == 201
    assert len(api.get(f"{HERE}/apps/reports/runs").body["runs"]) == 2
    assert api.get(f"{HERE}/apps/default/runs").body["runs"] == []


def test_a_key_is_shown_once_and_gives_no_more_than_its_maker_has(api: Caller, key: MakeKey) -> None:
    made = api.post(f"{HERE}/keys", {"name": "ci", "permissions": ["worker"]})
    assert made.status == 201
    assert Caller(made.body["key"]).register(job()).claim() == []
    listed = api.get(f"{HERE}/keys")
    assert made.body["prefix"] in {each["prefix"] for each in listed.body["keys"]}
    assert made.body["key"].split("_")[2] not in str(listed.body)
    weak = Caller(key("workflows.keys.create", "execute"))
    told = weak.post(f"{HERE}/keys", {"name": "x", "permissions": ["admin"]})
    assert told.why == (403, "forbidden")
    assert "workflows.workers.poll" in told.body["error"]["message"]
    assert api.post(f"{HERE}/keys", {"name": "x", "permissions": []}).why == (400, "invalid")
    assert api.post(f"{HERE}/keys", {"name": "x"}).body["error"]["fields"].keys() == {"permissions"}


def test_a_revoked_key_opens_nothing_at_once(api: Caller) -> None:
    made = api.post(f"{HERE}/keys", {"name": "ci", "permissions": ["read"]}).body
    assert Caller(made["key"]).get("api/runs").status == 200
    assert api.call("DELETE", f"{HERE}/keys/{made['prefix']}").body["revoked_at"] is not None
    assert Caller(made["key"]).get("api/runs").why == (401, "unauthenticated")
    assert api.call("DELETE", f"{HERE}/keys/nothing").why == (404, "unknown_key")


def test_the_trail_says_who_did_what(api: Caller, key: MakeKey, project: Project) -> None:
    api.post(f"{HERE}/apps", {"name": "reports"})
    api.call("PATCH", f"{HERE}/apps/reports", {"partitions": 8})
    told = api.get(f"{HERE}/trails?target=reports").body
    assert [(each["action"], each["actor_kind"]) for each in told["trails"]] == [("UpdateApp", "key"), ("CreateApp", "key")]
    first = api.get(f"{HERE}/trails?target=reports&limit=1").body
    assert [each["action"] for each in api.get(f"{HERE}/trails?target=reports&limit=1&cursor={first['next']}").body["trails"]] == ["CreateApp"]
    assert api.get(f"{HERE}/trails?since=2999-01-01T00:00:00Z").body["trails"] == []
    assert api.get(f"{HERE}/trails?cursor=x").why == (400, "invalid")
    of_app = Caller(key("admin", app=App.objects.get(name="reports")))
    assert of_app.get(f"{HERE}/trails").why == (403, "forbidden")
    assert [each["name"] for each in of_app.get(f"{HERE}/apps").body["apps"]] == ["reports"]
