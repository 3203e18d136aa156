"""Who may call what: a matrix made from the routes themselves, so that a new call is in it (case B94)."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission as DjangoPermission
from django.test import Client
from django.urls import URLPattern, URLResolver

from ezgh_workflows_django.api.routes import urlpatterns
from ezgh_workflows_django.engine import keys, permissions
from ezgh_workflows_django.models import ApiKey, App, Project, Run, Trail
from tests.api.conftest import SYSTEM, Caller, MakeKey
from tests.engine.graphs import job

Call = tuple[str, str, tuple[str, ...]]

NO_PERMISSION: Final = {"api/health", "api/openapi.json", "api/docs"}
"""What needs none: the first no key either, the others one of any kind."""


def walk(patterns: list[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every path with its view."""
    for each in patterns:
        path = prefix + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from walk(each.url_patterns, path)
        elif isinstance(each, URLPattern):
            yield path, vars(each.callback)["view_class"]


def calls() -> list[Call]:
    """Method, path below `v1/` and needed permissions of every call; ids are those of things that are nowhere."""
    found: list[Call] = []
    for path, view in walk(urlpatterns):
        named = {"<str:run_id>": str(uuid.UUID(int=1)), "<str:lease_id>": str(uuid.UUID(int=2)), "<str:worker_id>": str(uuid.UUID(int=3))}
        for mark, value in named.items():
            path = path.replace(mark, value)
        path = re.sub(r"<str:(organization|project|app)>", "default", path)
        path = re.sub(r"<\w+:\w+>", "thing", path).removeprefix("v1/")
        methods = [method.upper() for method in ("get", "post", "patch", "delete") if hasattr(view, method)]
        found += [(method, path, tuple(view.needs.get(method, ()))) for method in methods]
    return found


GUARDED: Final = [call for call in calls() if call[1] not in NO_PERMISSION]
every_call = pytest.mark.parametrize(("method", "path", "needs"), GUARDED, ids=[f"{method} {path}" for method, path, _ in GUARDED])


def test_every_call_needs_a_permission_that_exists() -> None:
    assert [path for _, path, needs in GUARDED if not needs] == []
    assert {name for _, _, needs in GUARDED for name in needs} <= set(permissions.BY_NAME)


@every_call
def test_nobody_is_let_in(project: Project, method: str, path: str, needs: tuple[str, ...]) -> None:
    told = Caller(None).call(method, path, {})
    assert told.why == (401, "unauthenticated")
    assert told.headers["WWW-Authenticate"].startswith("Bearer")


@every_call
def test_a_key_without_the_permission_is_told_which(key: MakeKey, method: str, path: str, needs: tuple[str, ...]) -> None:
    others = [name for name in permissions.BY_NAME if name not in needs]
    told = Caller(key(*others)).call(method, path, {})
    assert told.why == (403, "forbidden")
    assert all(name in told.body["error"]["message"] for name in needs)


@every_call
def test_a_key_with_just_the_permission_is_let_in(key: MakeKey, method: str, path: str, needs: tuple[str, ...]) -> None:
    assert Caller(key(*needs)).call(method, path, {}).status not in (401, 403, 405, 500)


def test_keys_that_are_none_any_more_open_nothing(project: Project, key: MakeKey) -> None:
    good = key("admin")
    revoked, expired = key("admin"), key("admin")
    keys.revoke(revoked.split("_")[1], by=SYSTEM, project_id=project.pk)
    ApiKey.objects.filter(prefix=expired.split("_")[1]).update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    others = [good[:-1] + ("0" if good[-1] != "0" else "1"), good.replace("ezw_", "ezx_"), f"ezw_{'a' * 12}_{'0' * 64}", "", "é", "x" * 10_000]
    told = [Caller(text).get("api/runs") for text in (revoked, expired, *others)]
    assert {reply.why for reply in told} == {(401, "unauthenticated")}
    assert len({reply.body["error"]["message"] for reply in told}) == 1
    assert Caller(good).get("api/runs").status == 200
    assert Caller(None).call("GET", "api/runs", authorization=f"Basic {good}").status == 401


def test_a_known_key_that_is_turned_away_is_in_the_trail_once_an_hour(project: Project, key: MakeKey) -> None:
    revoked, weak = key("worker"), key("workflows.events.emit")
    keys.revoke(revoked.split("_")[1], by=SYSTEM, project_id=project.pk)
    for _ in range(3):
        Caller(revoked).post("api/steps/claim")
        Caller(weak).post("api/steps/claim")
        Caller(f"ezw_{'a' * 12}_{'0' * 64}").post("api/steps/claim")
    rows = Trail.objects.filter(action="RefusePoll").order_by("target").values_list("actor", "target")
    assert list(rows) == [(revoked.split("_")[1], "401"), (weak.split("_")[1], "403")]


def test_no_secret_is_in_any_log_or_trail(project: Project, key: MakeKey, caplog: pytest.LogCaptureFixture) -> None:
    secret = key("workflows.events.emit")
    with caplog.at_level(logging.DEBUG):
        Caller(secret).post("api/steps/claim")
        Caller(secret).post("api/events", {"name": "x"})
    told = caplog.text + str(list(Trail.objects.values_list("data", "actor", "target")))
    assert secret not in told
    assert secret.split("_")[2] not in told


@pytest.mark.parametrize("path", ["", "/journal", "/graph"])
def test_runs_of_another_project_or_app_are_not_there(api: Caller, key: MakeKey, project: Project, path: str) -> None:
    api.register(job())
    run = job().start()
    second = Project.objects.create(organization=project.organization, slug="second", name="Second", created_at=project.created_at)
    other = App.objects.create(project=project, name="other", created_at=project.created_at)
    for stranger in (Caller(key("admin", of=second)), Caller(key("admin", app=other))):
        assert stranger.get(f"api/runs/{run.id}{path}").why == (404, "unknown_run")
        assert stranger.post(f"api/runs/{run.id}/cancel").why == (404, "unknown_run")
        assert stranger.get("api/runs").body["runs"] == []
        assert stranger.post("api/runs/cancel", {"filter": {"workflow": "job"}}).body["count"] == 0
    assert Run.objects.get().status == "running"


def test_an_event_of_an_apps_key_stays_in_that_app(api: Caller, key: MakeKey, project: Project) -> None:
    other = App.objects.create(project=project, name="other", created_at=project.created_at)
    assert Caller(key("workflows.events.emit", app=other)).post("api/events", {"name": "e"}).status == 201
    assert Caller(key("workflows.events.emit", app=other)).post("api/events", {"name": "e", "app": "default"}).why == (404, "unknown_app")
    assert project.events.get().app == other


def test_staff_use_the_run_endpoints_with_their_model_permissions_and_csrf(project: Project, api: Caller) -> None:
    api.register(job())
    run = job().start()
    user = get_user_model().objects.create_user("eva", password="x", is_staff=True)
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(user)
    assert browser.get("/v1/api/runs").status_code == 403
    user.user_permissions.set(DjangoPermission.objects.filter(codename__in=["view_run", "cancel_run"]))
    assert [each["id"] for each in browser.get("/v1/api/runs").json()["runs"]] == [run.id]
    cancel = f"/v1/api/runs/{run.id}/cancel"
    assert browser.post(cancel, {}, "application/json").status_code == 403
    browser.get("/admin/login/")
    token = browser.get("/admin/password_change/").cookies["csrftoken"].value
    assert browser.post(cancel, {}, "application/json", headers={"x-csrftoken": token}).json()["status"] == "cancelled"
    assert Trail.objects.get(action="CancelRun").actor == "eva"
    assert browser.post("/v1/api/steps/claim", {}, "application/json").status_code == 401


def test_who_is_not_staff_is_nobody(project: Project) -> None:
    browser = Client()
    browser.force_login(get_user_model().objects.create_user("tom", password="x", is_superuser=True))
    assert browser.get("/v1/api/runs").status_code == 401
