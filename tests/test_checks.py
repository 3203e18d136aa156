"""Every way to misconfigure the app is found, under its stable id."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.db import connections
from django.test import modify_settings, override_settings

from ezgh_workflows_django import checks
from ezgh_workflows_django.contrib.tasks import WorkflowsBackend

from .conftest import ROOT


def found() -> dict[str, CheckMessage]:
    """What the app's own checks say, by id."""
    return {str(message.id): message for message in run_checks(tags=[checks.TAG])}


@contextmanager
def options(**given: Any) -> Iterator[None]:
    """The default database's OPTIONS, for a while."""
    settings_dict = connections["default"].settings_dict
    before = settings_dict["OPTIONS"]
    settings_dict["OPTIONS"] = given
    try:
        yield
    finally:
        settings_dict["OPTIONS"] = before


VENDOR = connections["default"].vendor
"""The suite's database. Each of the three has a run of the suite in CI, which brings its own rows of the tables here."""


def test_the_test_project_is_configured_well() -> None:
    assert found() == {}


@override_settings(EZGH_WORKFLOWS=[("LEASE_TTL", 30)])
def test_e009_the_setting_is_no_dict() -> None:
    assert "must be a dict" in found()["ezgh_workflows.E009"].msg


@override_settings(EZGH_WORKFLOWS={"LEASE_TLL": 30})
def test_e001_an_unknown_key_is_named_with_the_nearest() -> None:
    message = found()["ezgh_workflows.E001"]
    assert "'LEASE_TLL'" in message.msg
    assert message.hint == "Did you mean 'LEASE_TTL'?"


@override_settings(EZGH_WORKFLOWS={"ZZZ": 1})
def test_e001_a_key_like_no_other_gets_the_list() -> None:
    assert "ANNOUNCEMENT_TTL, CURRENCY, DATABASE" in (found()["ezgh_workflows.E001"].hint or "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEASE_TTL", "30"),
        ("LEASE_TTL", None),
        ("LEASE_TTL", True),
        ("RETENTION", float("inf")),
        ("RETENTION", float("nan")),
        ("RETENTION", 1e300),
        ("MAX_CLAIM", 1.5),
        ("MAX_CLAIM", True),
        ("MAX_PAYLOAD_BYTES", "1 MiB"),
        ("KEEP_TRACEBACKS", 1),
        ("DEFAULT_APP", ""),
        ("DEFAULT_APP", "My App!"),
        ("DEFAULT_APP", "a" * 64),
        ("DATABASE", None),
        ("LISTEN_DSN", 5),
        ("REDACT", "password"),
        ("REDACT", [1]),
    ],
)
def test_e002_a_value_of_another_type(name: str, value: Any) -> None:
    with override_settings(EZGH_WORKFLOWS={name: value}):
        assert f"['{name}'] is {value!r}, but must be" in found()["ezgh_workflows.E002"].msg


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("LEASE_TTL", 0.5, "is 0.5, but must be at least 1 s"),
        ("RECOVERY_WINDOW", 0, "at least 1 s"),
        ("OFFER_TTL", 0.99, "at least 1 s"),
        ("HEARTBEAT", -1, "at least 1 s"),
        ("RETENTION", -1, "at least 0 s"),
        ("MAX_CLAIM", 0, "at least 1."),
        ("MAX_RECLAIMS", -1, "at least 0."),
        ("MAX_PAYLOAD_BYTES", 1, "at least 1024 bytes"),
        ("RETENTION", timedelta.max, "at most 36,500 days"),
        ("LEASE_TTL", 4e9, "at most 36,500 days"),
    ],
)
def test_e003_a_value_below_the_least_or_a_span_beyond_every_clock(name: str, value: Any, told: str) -> None:
    with override_settings(EZGH_WORKFLOWS={name: value}):
        assert told in found()["ezgh_workflows.E003"].msg


@override_settings(EZGH_WORKFLOWS={"MAX_CLAIM": 0, "HEARTBEAT": "often", "COLOUR": "red"})
def test_every_fault_is_told_at_once() -> None:
    assert sorted(found()) == ["ezgh_workflows.E001", "ezgh_workflows.E002", "ezgh_workflows.E003"]


@pytest.mark.parametrize("heartbeat", [30, 31])
def test_e004_a_heartbeat_no_shorter_than_the_lease(heartbeat: int) -> None:
    """B35: with two settings that contradict each other, each body would run again beside itself."""
    with override_settings(EZGH_WORKFLOWS={"HEARTBEAT": heartbeat}):
        assert f"HEARTBEAT ({heartbeat} s) must be shorter than LEASE_TTL (30 s)" in found()["ezgh_workflows.E004"].msg


@override_settings(EZGH_WORKFLOWS={"HEARTBEAT": 1, "LEASE_TTL": 4, "RECOVERY_WINDOW": 4})
def test_short_times_that_agree_are_fine() -> None:
    assert found() == {}


@override_settings(USE_TZ=False)
def test_e005_time_zones_are_off() -> None:
    assert "USE_TZ" in found()["ezgh_workflows.E005"].msg


@override_settings(EZGH_WORKFLOWS={"DATABASE": "elsewhere"})
def test_e006_a_database_that_is_not_there() -> None:
    assert "'elsewhere', but DATABASES has only default" in found()["ezgh_workflows.E006"].msg


BAD_OPTIONS: Mapping[str, list[tuple[dict[str, Any], str, str]]] = {
    "postgresql": [
        ({"isolation_level": 3}, "ezgh_workflows.E007", "REPEATABLE READ"),
        ({"isolation_level": 4}, "ezgh_workflows.E007", "SERIALIZABLE"),
        ({"isolation_level": "bogus"}, "ezgh_workflows.E007", "BOGUS"),
    ],
    "mysql": [
        ({"isolation_level": "repeatable read"}, "ezgh_workflows.E007", "REPEATABLE READ"),
        ({"isolation_level": "serializable"}, "ezgh_workflows.E007", "SERIALIZABLE"),
        ({"isolation_level": None}, "ezgh_workflows.E007", "REPEATABLE READ"),
    ],
    "sqlite": [
        ({}, "ezgh_workflows.W002", "is used without IMMEDIATE transactions and write-ahead logging:"),
        ({"transaction_mode": "DEFERRED", "init_command": "PRAGMA journal_mode = WAL"}, "ezgh_workflows.W002", "is used without IMMEDIATE transactions:"),
        ({"transaction_mode": "IMMEDIATE"}, "ezgh_workflows.W002", "is used without write-ahead logging:"),
    ],
}

GOOD_OPTIONS: Mapping[str, list[dict[str, Any]]] = {
    "postgresql": [{}, {"isolation_level": 2}],
    "mysql": [{}, {"isolation_level": "READ COMMITTED"}],
    "sqlite": [{"transaction_mode": "immediate", "init_command": "PRAGMA journal_mode=wal"}],
}


@pytest.mark.parametrize(("given", "id", "told"), BAD_OPTIONS[VENDOR])
def test_e007_and_w002_options_of_the_database_that_do_harm(given: dict[str, Any], id: str, told: str) -> None:
    with options(**given):
        assert told in found()[id].msg


@pytest.mark.parametrize("given", GOOD_OPTIONS[VENDOR])
def test_options_of_the_database_that_do_no_harm(given: dict[str, Any]) -> None:
    with options(**given):
        assert found() == {}


def test_the_two_lines_that_w002_gives_can_be_pasted() -> None:
    databases: dict[str, dict[str, Any]] = {"default": {}}
    exec("\n".join(checks.SQLITE_LINES.splitlines()[1:]), {"DATABASES": databases})
    with options(**databases["default"]["OPTIONS"]):
        assert found() == {}


@pytest.mark.django_db(transaction=True)
def test_e007_the_databases_own_isolation_level_is_right() -> None:
    assert checks.asked_isolation_level(databases=["default"]) == []


SERIALIZABLE: Mapping[str, tuple[str, list[str]]] = {
    "postgresql": ("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE", ["ezgh_workflows.E007"]),
    "mysql": ("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", ["ezgh_workflows.E007"]),
    "sqlite": ("PRAGMA read_uncommitted", []),  # it has one level only
}


@pytest.mark.django_db(transaction=True)
def test_e007_another_isolation_level_of_the_session_is_found() -> None:
    statement, ids = SERIALIZABLE[VENDOR]
    connection = connections["default"]
    with connection.cursor() as cursor:
        cursor.execute(statement)
    messages = checks.asked_isolation_level(databases=["default"])
    connection.close()  # the level ends with its session
    assert [message.id for message in messages] == ids


def test_e007_a_database_that_was_not_named_is_not_asked() -> None:
    assert checks.asked_isolation_level(databases=[]) == []


CLASH = """
from ezgh_workflows_django import Step, Workflow
job = Workflow("job", steps=[Step("only", run=lambda: {result})])
"""


def test_e008_two_workflows_of_one_name_stop_every_command_naming_both_places(tmp_path: Path) -> None:
    for app, result in (("first", 1), ("second", 2)):
        (tmp_path / app).mkdir()
        (tmp_path / app / "__init__.py").touch()
        (tmp_path / app / "workflows.py").write_text(CLASH.format(result=result))
    (tmp_path / "clash.py").write_text("from testproject.settings import *\nINSTALLED_APPS += ['first', 'second']\n")
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "DJANGO_SETTINGS_MODULE": "clash"}
    done = subprocess.run([sys.executable, "-m", "django", "check"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "(ezgh_workflows.E008) workflow job revision" in done.stderr
    assert "first.workflows.job" in done.stderr
    assert "second.workflows.job" in done.stderr


@pytest.mark.parametrize("module", ["workflows", "tasks"])
def test_a_module_that_ends_the_process_as_it_is_imported_is_named_and_ends_no_command_in_silence(tmp_path: Path, module: str) -> None:
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "__init__.py").touch()
    (tmp_path / "script" / f"{module}.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "ending.py").write_text("from testproject.settings import *\nINSTALLED_APPS += ['script']\n")
    tasks = {"default": {"BACKEND": "ezgh_workflows_django.contrib.tasks.WorkflowsBackend"}}
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "DJANGO_SETTINGS_MODULE": "ending", "TASKS": json.dumps(tasks)}
    done = subprocess.run([sys.executable, "-m", "django", "check"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"ImproperlyConfigured: script.{module} called sys.exit(0) while it was imported" in done.stderr


@modify_settings(INSTALLED_APPS={"append": "tests.rival"})
def test_w001_another_app_has_a_runworker() -> None:
    message = found()["ezgh_workflows.W001"]
    assert message.msg.startswith("tests.rival has a command `runworker` too")
    assert "workflows_worker" in (message.hint or "")


@contextmanager
def apart(**settings: Any) -> Iterator[None]:
    """A project that keeps the workflows in a database of their own."""
    connections.settings["apart"] = connections.settings["default"]
    try:
        with override_settings(EZGH_WORKFLOWS={"DATABASE": "apart"}, **settings):
            yield
    finally:
        with suppress(AttributeError):  # nobody asked for it
            del connections["apart"]
        del connections.settings["apart"]


def test_w004_no_router_keeps_the_tables_in_the_workflows_own_database() -> None:
    with apart():
        message = found()["ezgh_workflows.W004"]
    assert "would make the workflow tables in apart, default" in message.msg
    assert "WorkflowsRouter" in (message.hint or "")


def test_i001_starts_are_sent_after_the_commit_of_another_database() -> None:
    with apart(DATABASE_ROUTERS=["ezgh_workflows_django.routers.WorkflowsRouter"]):
        assert list(found()) == ["ezgh_workflows.I001"]


def test_e020_a_backend_of_tasks_without_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.apps.apps.is_installed", lambda name: False)
    [message] = WorkflowsBackend("default", {}).check()
    assert (message.id, "INSTALLED_APPS" in (message.hint or "")) == ("ezgh_workflows.E020", True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"RETRIES": 3}, "no option 'RETRIES'"),
        ({"RETRY": {"attempts": 3}}, "RETRY has no attempts"),
        ({"RETRY": 3}, "RETRY is int"),
        ({"RETRY": {5: 1}}, "RETRY has no 5"),
        ({"MODULES": "tasks"}, "MODULES is a list"),
        ({"MODULES": None}, "MODULES is a list"),
        ({"MODULES": 5}, "MODULES is a list"),
        ({"MODULES": ["no.such.module"]}, "MODULES: there is no module 'no.such.module'"),
        ({"TIMEOUT": "x"}, "timeout: 'x' is no duration"),
        ({"TIMEOUT": -5}, "timeout: -5 is out of range"),
        ({"DELIVERY": "never"}, "delivery: 'never' is none of"),
        ({"RETRY": {"max_attempts": 0}}, "retry: max_attempts: 0"),
        ({"RETRY": {"max_attempts": "x"}}, "retry: max_attempts: 'x'"),
    ],
)
def test_e021_a_backend_of_tasks_with_bad_options(options: dict[str, Any], text: str) -> None:
    [message] = WorkflowsBackend("default", {"OPTIONS": options}).check()
    assert (message.id, text in message.msg) == ("ezgh_workflows.E021", True)


def test_e022_a_queue_of_tasks_that_can_be_no_app() -> None:
    [message] = WorkflowsBackend("default", {"QUEUES": ["not an app"]}).check()
    assert (message.id, "'not an app'" in message.msg) == ("ezgh_workflows.E022", True)


def test_a_backend_of_tasks_that_is_configured_well() -> None:
    params = {"QUEUES": ["default", "emails"], "OPTIONS": {"RETRY": {"max_attempts": 3}, "MODULES": ["tests.contrib.jobs"]}}
    assert list(WorkflowsBackend("default", params).check()) == []


@override_settings(ASGI_APPLICATION="django.core.handlers.asgi.ASGIHandler")
def test_w003_an_asgi_application_without_the_line() -> None:
    message = found()["ezgh_workflows.W003"]
    assert "ASGIHandler is not `bounded`" in message.msg
    assert "import bounded" in (message.hint or "")


@pytest.mark.parametrize("path", [None, "nowhere.application", "testproject.asgi.application", "tests.process.workers.only_there.application"])
def test_w003_says_nothing_of_a_project_without_one_or_with_the_line(path: str | None) -> None:
    with override_settings(ASGI_APPLICATION=path):
        assert found() == {}


@override_settings(ASGI_APPLICATION="django.core.handlers.asgi.ASGIHandler", ROOT_URLCONF="django.contrib.auth.urls")
def test_w003_says_nothing_of_a_project_that_does_not_serve_the_api() -> None:
    assert found() == {}
