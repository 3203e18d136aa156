"""One shape for every error, and no 500 for any input."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError
from django.test import override_settings

from ezgh_workflows_django import clock
from ezgh_workflows_django.api import throttles
from ezgh_workflows_django.engine import starts, workers
from tests.api.conftest import Caller
from tests.engine.graphs import job


def limited(**limits: Any) -> Any:
    """Settings with these limits."""
    return override_settings(EZGH_WORKFLOWS={**settings.EZGH_WORKFLOWS, **limits})


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[1]",
        b"nothing",
        b'{"workflow": NaN}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"workflow":' * 5_000 + b"1",
        b'{"a": 1' + b"0" * 5000 + b"}",
        b'""',
        b"\x0c",
    ],
)
def test_what_is_no_request_is_a_400(api: Caller, body: bytes) -> None:
    assert api.call("POST", "api/runs", body).why == (400, "invalid")


def test_a_body_counts_as_json_whatever_its_type_says(api: Caller) -> None:
    api.register(job())
    told = api.call("POST", "api/runs", b'{"workflow": "job"}', **{"content-type": "application/x-www-form-urlencoded", "accept": "text/html"})
    assert (told.status, told.headers["content-type"]) == (201, "application/json")


def test_unknown_methods_and_paths_have_the_shape_too(api: Caller) -> None:
    assert api.call("DELETE", "api/runs").why == (405, "method_not_allowed")
    assert api.call("OPTIONS", "api/runs").why == (405, "method_not_allowed")
    assert api.get("api/runs/nothing").why == (404, "unknown_run")
    assert api.get("api/runs/%00").why == (404, "unknown_run")


def test_a_request_over_the_bound_is_not_read(api: Caller) -> None:
    with limited(MAX_REQUEST_BYTES=2048):
        assert api.post("api/runs", {"workflow": "x" * 3000}).why == (413, "payload_too_large")


def test_a_payload_over_its_own_bound_is_413_too(api: Caller) -> None:
    api.register(job())
    with limited(MAX_PAYLOAD_BYTES=1024):
        assert api.post("api/runs", {"workflow": "job", "payload": "x" * 2000}).why == (413, "payload_too_large")


def test_a_key_that_starts_too_often_is_told_when_to_come_back(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttles, "allowance", throttles.Allowance())
    moment = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: moment[0])
    session = api.register(job())
    with limited(KEY_RATE=2):
        assert [api.get("api/runs").status for _ in range(3)] == [200, 200, 429]
        told = api.post("api/runs", {"workflow": "job"})
        assert (told.why, told.headers["Retry-After"]) == ((429, "throttled"), "1")
        assert session.claim() == []
        moment[0] += 1
        assert api.get("api/runs").status == 200


def test_a_database_that_is_away_is_a_503(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any, **__: Any) -> Any:
        raise OperationalError("server closed the connection unexpectedly")

    api.register(job())
    monkeypatch.setattr(starts, "start", gone)
    monkeypatch.setattr(workers, "register", gone)
    for told in (api.post("api/runs", {"workflow": "job"}), api.post("api/workers/register", {"worker": "w", "app": "default"})):
        assert told.why == (503, "unavailable")
        assert int(told.headers["Retry-After"]) > 0
    assert "connection" not in told.body["error"]["message"]


def test_a_fault_of_ours_is_no_answer(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(workers, "register", broken)
    with pytest.raises(ZeroDivisionError):
        api.post("api/workers/register", {"worker": "w", "app": "default"})


def test_the_hosts_rest_framework_settings_change_nothing(api: Caller) -> None:
    theirs = {
        "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.BasicAuthentication"],
        "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAdminUser"],
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.StaticHTMLRenderer"],
        "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.FormParser"],
        "DEFAULT_VERSIONING_CLASS": "rest_framework.versioning.AcceptHeaderVersioning",
        "EXCEPTION_HANDLER": "django.views.defaults.bad_request",
    }
    with override_settings(REST_FRAMEWORK=theirs):
        api.register(job())
        assert api.post("api/runs", {"workflow": "job"}).status == 201
        assert api.post("api/runs", {}).why == (400, "invalid")
