"""Who may call what: every call of the routes with every kind of key and of nobody (case B94)."""

from __future__ import annotations

import ast
import hmac
import inspect
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission as DjangoPermission
from django.test import Client, override_settings

import ezgh_workflows_django
from ezgh_workflows_django import clock
from ezgh_workflows_django.api import throttles
from ezgh_workflows_django.engine import keys, permissions
from ezgh_workflows_django.models import ApiKey, Lease, Project, Run, Step, Trail
from tests.api.conftest import SYSTEM, Caller, MakeKey, Reply, reply_of
from tests.api.matrix import GUARDED, NO_PERMISSION, Call, another_app, calls, document
from tests.api.parties import APPS
from tests.engine.graphs import job

HERE: Final = "organizations/default/projects/default"

UNAUTHENTICATED: Final = (401, "unauthenticated")

every_grant = pytest.mark.parametrize("grant", [*permissions.BY_NAME, *(policy.scope for policy in permissions.POLICIES)])


@pytest.fixture
def bad(key: MakeKey, project: Project) -> dict[str, str | None]:
    """What opens nothing, by what is wrong with it."""
    good, revoked, expired = key("admin"), key("admin"), key("admin")
    keys.revoke(revoked.split("_")[1], by=SYSTEM, project_id=project.pk)
    ApiKey.objects.filter(prefix=expired.split("_")[1]).update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    return {
        "none": None,
        "revoked": f"Bearer {revoked}",
        "expired": f"Bearer {expired}",
        "another secret": f"Bearer {good[:-1]}{'0' if good[-1] != '0' else '1'}",
        "unknown": f"Bearer ezw_{'a' * 12}_{'0' * 64}",
        "malformed": f"Bearer {good.replace('ezw_', 'ezx_')}",
        "more": f"Bearer {good} {good}",
        "empty": "Bearer ",
        "not ASCII": "Bearer é",
        "long": "Bearer " + "x" * 10_000,
        "another scheme": f"Basic {good}",
        "no scheme": good,
    }


def bearing(authorization: str | None) -> Caller:
    """A caller with this header."""
    caller = Caller(None)
    if authorization is not None:
        caller.headers["authorization"] = authorization
    return caller


# --- permissions


def test_every_call_needs_a_permission_that_exists() -> None:
    assert [str(call) for call in GUARDED if not call.needs] == []
    assert {name for call in GUARDED for name in call.needs} <= set(permissions.BY_NAME)
    assert NO_PERMISSION <= {call.route for call in calls()}


def test_who_has_no_good_key_is_let_in_nowhere_and_never_told_why(bad: dict[str, str | None]) -> None:
    answers = {(str(call), what): call.by(bearing(text)) for call in GUARDED for what, text in bad.items()}
    assert {case: told.why for case, told in answers.items() if told.why != UNAUTHENTICATED} == {}
    assert {told.headers["WWW-Authenticate"] for told in answers.values()} == {'Bearer realm="workflows"'}
    assert len({told.body["error"]["message"] for (_, what), told in answers.items() if what != "none"}) == 1
    assert Caller(None).get("api/openapi.json").why == UNAUTHENTICATED
    assert Caller(None).get("api/health").body.keys() == {"status", "version", "held", "ticked_ms_ago", "late_ms", "stranded"}


def test_a_key_that_lacks_one_permission_is_told_which(key: MakeKey) -> None:
    def refusal(call: Call, lacking: str) -> Reply:
        return call.by(Caller(key(*(name for name in permissions.BY_NAME if name != lacking))))

    answers = {(str(call), name): refusal(call, name) for call in GUARDED for name in call.needs}
    assert {case: told.why for case, told in answers.items() if told.why != (403, "forbidden") or case[1] not in told.body["error"]["message"]} == {}


@every_grant
def test_a_key_opens_what_it_was_given_and_nothing_else(key: MakeKey, grant: str) -> None:
    caller, given = Caller(key(grant)), permissions.expanded([grant])
    answers = [(call, call.by(caller)) for call in GUARDED]
    assert [str(call) for call, told in answers if (told.status == 403) != bool(set(call.needs) - given)] == []
    assert [(str(call), told.status) for call, told in answers if told.status in (401, 405) or told.status >= 500] == []


def test_who_polls_cannot_announce_and_who_executes_cannot_claim(api: Caller, key: MakeKey) -> None:
    session = api.register(job())
    poller, starter, emitter = (Caller(key(grant)) for grant in ("workflows.workers.poll", "execute", "workflows.events.emit"))
    announcing = {"worker": "w", "app": "default", "definitions": [job().to_spec()]}
    assert poller.post("api/workers/register", announcing).why == (403, "forbidden")
    assert poller.post("api/steps/claim", session.body(announce=[f"job@{job().version}"])).why == (403, "forbidden")
    assert poller.post("api/steps/claim", session.body()).status == 200
    assert starter.post("api/runs", {"workflow": "job"}).status == 201
    assert starter.post("api/steps/claim", session.body()).why == (403, "forbidden")
    assert emitter.post("api/events", {"name": "paid"}).status == 201
    assert emitter.post("api/runs", {"workflow": "job"}).why == (403, "forbidden")


def test_a_revoked_or_expired_key_can_do_nothing_with_a_live_lease(api: Caller, key: MakeKey, project: Project, bad: dict[str, str | None]) -> None:
    session = api.register(job())
    job().start()
    lease = session.take()
    before = [list(model.objects.values()) for model in (Lease, Step, Run)]
    grouped = {"steps/started": [lease["id"]], "steps/heartbeat": [{"id": lease["id"]}]}
    of_worker = [call for call in GUARDED if call.is_for_workers]
    for caller in (bearing(bad["revoked"]), bearing(bad["expired"])):
        told = [call.by(caller, {"output": 1, "class": "permanent"}, lease_id=lease["id"], worker_id=session.id) for call in of_worker]
        told += [caller.post(f"api/{path}", {"leases": items}) for path, items in grouped.items()]
        told.append(caller.post("api/steps/outcomes", {"outcomes": [{"id": lease["id"], "complete": {}}]}))
        assert {reply.why for reply in told} == {UNAUTHENTICATED}
    assert [list(model.objects.values()) for model in (Lease, Step, Run)] == before
    assert session.on(lease, "complete").status == 200


def test_a_key_revoked_while_a_body_runs_stops_its_worker_at_the_next_call(api: Caller, key: MakeKey, project: Project) -> None:
    text = key("worker")
    session = Caller(text).register(job())
    job().start()
    lease = session.take()
    api.call("DELETE", f"{HERE}/keys/{text.split('_')[1]}")
    assert [session.on(lease, call).why for call in ("heartbeat", "complete")] == [UNAUTHENTICATED] * 2
    assert Lease.objects.get().ended_at is None


# --- keys that make keys


def test_a_key_cannot_create_a_stronger_one(key: MakeKey, project: Project) -> None:
    """Whatever one permission it lacks, it gives neither that one nor any policy that holds it, by whichever name."""
    names = [*permissions.BY_NAME, permissions.READ_PATTERN, *(name for policy in permissions.POLICIES for name in (policy.name, policy.scope))]
    makers = {lacking: Caller(key(*(name for name in permissions.BY_NAME if name != lacking))) for lacking in permissions.BY_NAME}
    before = ApiKey.objects.count()
    tries = [(name, lacking) for name in names for lacking in permissions.expanded([name])]
    answers = {case: makers[case[1]].post(f"{HERE}/keys", {"name": "x", "permissions": [case[0]]}) for case in tries}
    assert {case: told.why for case, told in answers.items() if told.why != (403, "forbidden") or case[1] not in told.body["error"]["message"]} == {}
    assert ApiKey.objects.count() == before


def test_a_key_gives_what_it_has(key: MakeKey) -> None:
    for name in permissions.BY_NAME:
        made = Caller(key(name, permissions.CREATE_KEYS)).post(f"{HERE}/keys", {"name": "x", "permissions": [name]})
        assert (made.status, made.body["permissions"]) == (201, [name])


def test_a_key_of_an_app_gives_keys_of_that_app_alone(key: MakeKey, project: Project) -> None:
    other = another_app(project)
    maker, wanted = Caller(key("admin", app=other)), {"name": "x", "permissions": ["read"]}
    assert maker.post(f"{HERE}/keys", wanted).why == (403, "forbidden")
    assert maker.post(f"{HERE}/keys", {**wanted, "app": "default"}).why == (404, "unknown_app")
    assert maker.post(f"{HERE}/keys", {**wanted, "app": "other"}).body["app"] == "other"
    assert [each["app"] for each in maker.get(f"{HERE}/keys").body["keys"]] == ["other", "other"]


def test_a_key_gives_none_that_outlives_it(key: MakeKey) -> None:
    text, end = key("admin"), datetime.now(UTC) + timedelta(days=1)
    ApiKey.objects.filter(prefix=text.split("_")[1]).update(expires_at=end)
    later = {"name": "x", "permissions": ["read"], "expires_at": (end + timedelta(days=1)).isoformat()}
    assert Caller(text).post(f"{HERE}/keys", later).body["error"]["fields"].keys() == {"expires_at"}
    made = Caller(text).post(f"{HERE}/keys", {"name": "x", "permissions": ["read"]}).body
    assert datetime.fromisoformat(made["expires_at"]) <= end


# --- people of the site


@pytest.fixture
def staff(project: Project) -> Callable[..., Client]:
    """`staff("view_run")`: a browser in which a person of the staff with these model permissions has signed in."""

    def sign_in(*names: str, **options: Any) -> Client:
        browser = Client()
        user = get_user_model().objects.create_user(f"eva{get_user_model().objects.count()}", **{"is_staff": True, **options})
        user.user_permissions.set(DjangoPermission.objects.filter(codename__in=names))
        browser.force_login(user)
        return browser

    return sign_in


def through(browser: Client, call: Call, **headers: str) -> Reply:
    """The call made by a browser."""
    return reply_of(browser.generic(call.method, f"/v1/{call.path()}", b"{}", "application/json", headers=headers))


@pytest.mark.parametrize("name", sorted({each.staff.split(".")[1] for each in permissions.PERMISSIONS if each.staff}))
def test_staff_are_let_in_where_their_model_permission_says(staff: Callable[..., Client], name: str) -> None:
    browser = staff(name)
    given = {each.name for each in permissions.PERMISSIONS if each.staff == f"ezgh_workflows.{name}"}
    answers = [(call, through(browser, call)) for call in GUARDED]
    assert [str(call) for call, told in answers if (told.status == 401) == call.is_for_staff] == []
    assert [str(call) for call, told in answers if call.is_for_staff and (told.status == 403) != bool(set(call.needs) - given)] == []


def test_a_browser_without_the_token_against_forgery_changes_nothing(staff: Callable[..., Client]) -> None:
    browser = staff(is_superuser=True)
    browser.handler.enforce_csrf_checks = True
    answers = [(call, through(browser, call)) for call in GUARDED if call.is_for_staff]
    assert [str(call) for call, told in answers if (told.why == (403, "forbidden")) != (call.method != "GET")] == []


def test_staff_use_the_run_endpoints_with_their_token(staff: Callable[..., Client], api: Caller) -> None:
    api.register(job())
    run = job().start()
    browser = staff("view_run", "cancel_run")
    browser.handler.enforce_csrf_checks = True
    assert [each["id"] for each in browser.get("/v1/api/runs").json()["runs"]] == [run.id]
    browser.get("/admin/login/")
    token = browser.get("/admin/password_change/").cookies["csrftoken"].value
    told = browser.post(f"/v1/api/runs/{run.id}/cancel", {}, "application/json", headers={"x-csrftoken": token})
    assert told.json()["status"] == "cancelled"
    assert Trail.objects.get(action="CancelRun").actor.startswith("eva")


def test_who_is_not_staff_is_nobody(staff: Callable[..., Client]) -> None:
    browser = staff(is_staff=False, is_superuser=True)
    assert {through(browser, call).why for call in GUARDED} == {UNAUTHENTICATED}


# --- what is noted, what is limited, how secrets are compared


def test_a_known_key_that_is_turned_away_is_in_the_trail_once_an_hour(project: Project, key: MakeKey) -> None:
    revoked, weak = key("worker"), key("workflows.events.emit")
    keys.revoke(revoked.split("_")[1], by=SYSTEM, project_id=project.pk)
    for _ in range(3):
        Caller(revoked).post("api/steps/claim")
        Caller(weak).post("api/steps/claim")
        Caller(f"ezw_{'a' * 12}_{'0' * 64}").post("api/steps/claim")
    rows = Trail.objects.filter(action="RefusePoll").order_by("target").values_list("actor", "target")
    assert list(rows) == [(revoked.split("_")[1], "401"), (weak.split("_")[1], "403")]


def test_only_starts_and_reads_are_throttled_each_key_alone(api: Caller, key: MakeKey, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is never told to slow down, whatever its key has been used for; the document has a 429 where there can be one."""
    monkeypatch.setattr(throttles, "allowance", throttles.Allowance())
    monkeypatch.setattr(clock, "monotonic", lambda: 100.0)
    told = document()["paths"]
    limited = {str(call) for call in GUARDED if "429" in told[call.documented][call.method.lower()]["responses"]}
    with override_settings(EZGH_WORKFLOWS={**settings.EZGH_WORKFLOWS, "KEY_RATE": 1}):
        assert api.get("api/runs").status == 200
        answers = {str(call): call.by(api) for call in GUARDED}
        assert {call for call, reply in answers.items() if reply.status == 429} == limited
        assert {reply.headers["Retry-After"] for reply in answers.values() if reply.status == 429} == {"1"}
        assert Caller(key("admin")).get("api/runs").status == 200
    reads = {str(call) for call in GUARDED if call.method == "GET" and not call.is_for_workers}
    assert limited == reads | {"POST api/runs", f"POST {APPS}/<str:app>/runs"}


def test_secrets_are_compared_in_constant_time_and_nowhere_else() -> None:
    """A comparison that stops at the first difference tells how much of a guess was right."""
    assert "hmac.compare_digest(_hash(prefix, secret)" in inspect.getsource(keys.authenticate)
    package = Path(ezgh_workflows_django.__file__).parent
    texts = {path.relative_to(package): text for path in package.rglob("*.py") if "secret_hash" in (text := path.read_text())}
    compared = [f"{path}: {ast.unparse(node)}" for path, text in texts.items() for node in ast.walk(ast.parse(text)) if _compares_hashes(node)]
    looked_up = [path for path, text in texts.items() if re.search(r"(filter|get|exclude|Q)\(secret_hash", text)]
    assert (compared, looked_up) == ([], [])


def _compares_hashes(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and re.search(r"secret_hash|_hash\(", ast.unparse(node)) is not None


def test_an_unknown_key_takes_the_same_steps_as_a_wrong_secret(key: MakeKey, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[Any, Any]] = []
    compare = hmac.compare_digest

    def noted(one: Any, other: Any) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    good = key("admin")
    for text in (f"ezw_{'a' * 12}_{'0' * 64}", f"{good[:-64]}{'0' * 64}"):
        assert Caller(text).get("api/runs").why == UNAUTHENTICATED
    assert len(compared) == 2
