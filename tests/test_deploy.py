"""The page about deploying and the files beside it: the commands, flags and settings they name exist, and their times fit."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest
from django.conf import global_settings
from django.core.checks import run_checks
from django.core.management import get_commands, load_command_class
from django.test import override_settings
from django.urls import resolve
from gunicorn.config import Config  # type: ignore[import-untyped] # it comes without types
from uvicorn import main as uvicorn_command

from ezgh_workflows_django.conf import BY_NAME
from ezgh_workflows_django.management.worker_command import GRACE
from ezgh_workflows_django.worker import shift, watch

from .conftest import ROOT

PAGE: Final = (ROOT / "docs" / "deploy.md").read_text()
FOLDER: Final = ROOT / "docs" / "deploy"
FILES: Final = {path.name: path.read_text() for path in sorted(FOLDER.iterdir())}
TEXTS: Final = {"deploy.md": PAGE, **FILES}

UVICORN: Final[Any] = uvicorn_command

AFTER_GRACE: Final = 15
"""Seconds that the page says a worker may take beyond its grace."""

FOREIGN_FLAGS: Final = {"--pids-limit", "--timeout"}
"""Docker's; gunicorn's, which nobody is told to set."""

PYTHON: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM: Final = re.compile(r"(?:^|[\s/])(manage\.py|uvicorn|gunicorn) (.*)")


def calls(text: str) -> list[list[str]]:
    """The program lines of a text, each as words: what is between backticks, in a list of words, or on a line of its own."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            continue
        for part in line.split("`")[1::2] if line.count("`") > 1 else [line]:
            match = PROGRAM.search(re.sub(r"""["',\[\]]+""", " ", part) if "[" in part else part)
            if match is not None:
                found.append([match[1], *shlex.split(match[2])])
    return found


CALLS: Final = [(name, call) for name, text in TEXTS.items() for call in calls(text)]


def understood(call: list[str]) -> Any:
    """The words as the program itself understands them. Raises whatever it raises for a flag that it does not have."""
    program, *words = call
    if program == "uvicorn":
        return UVICORN.make_context("uvicorn", words).params
    if program == "gunicorn":
        return vars(Config().parser().parse_args(words))
    command = load_command_class(get_commands()[words[0]], words[0])
    return vars(command.create_parser("manage.py", words[0]).parse_args(words[1:]))


@pytest.mark.parametrize(("name", "call"), CALLS, ids=[f"{name}: {' '.join(call)}" for name, call in CALLS])
def test_every_command_that_is_named_exists_with_its_flags(name: str, call: list[str]) -> None:
    assert understood(call)


def test_each_program_is_named_where_it_belongs() -> None:
    """The reading above finds them: a page that it can't read would pass it."""
    named = {name: {call[0] if call[0] != "manage.py" else call[1] for told, call in CALLS if told == name} for name in TEXTS}
    assert {"uvicorn", "gunicorn", "runworker", "migrate", "check", "workflows_check", "workflows_prune", "workflows_replay"} <= named["deploy.md"]
    assert (named["Dockerfile"], named["workflows-worker.service"]) == ({"uvicorn", "runworker"}, {"runworker"})
    assert named["workflows-server.service"] == {"uvicorn"}


def test_every_flag_that_is_named_alone_is_one_of_these_programs() -> None:
    worker = load_command_class("ezgh_workflows_django", "runworker").create_parser("manage.py", "runworker")
    known = {*worker._option_string_actions, *(flag for each in UVICORN.params for flag in each.opts), *FOREIGN_FLAGS}
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) - known == set()


def test_every_setting_that_is_named_exists() -> None:
    """Settings of ours, of Django's, of one of its databases; the signal and the level are none."""
    others = {"CONN_MAX_AGE", "SIGTERM", "LISTEN"}
    assert set(re.findall(r"`([A-Z][A-Z_]+)`", PAGE)) - set(BY_NAME) - set(dir(global_settings)) - others == set()


def test_every_path_that_is_named_leads_somewhere() -> None:
    paths = set(re.findall(r"`GET (v1/[a-z/]+)", PAGE))
    assert paths == {"v1/api/health", "v1/api/metrics", "v1/api/runs"}
    for path in paths:
        assert resolve(f"/{path}").namespace == "ezgh_workflows"


def test_what_is_to_be_watched_is_told() -> None:
    schemas = json.loads((ROOT / "docs" / "openapi.json").read_text())["components"]["schemas"]
    for call, shape in (("v1/api/health", "Health"), ("…/apps/{app}", "AppTold")):
        [row] = re.findall(rf"^\| `GET {call}`.*\| (.*) \|$", PAGE, re.MULTILINE)
        assert set(re.findall(r"`([a-z_]+)`", row)) <= set(schemas[shape]["properties"])


def test_the_code_of_the_page_runs_and_its_settings_pass_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"SECRET_KEY": "x", "ALLOWED_HOSTS": "example.org", "DATABASE_URL": "postgres://mysite@db/mysite", "DJANGO_SETTINGS_MODULE": "testproject.settings"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    told: dict[str, Any] = {"__name__": "docs"}
    for code in PYTHON.findall(PAGE):
        exec(compile(code, "docs/deploy.md", "exec"), told)
    assert callable(told["application"])
    assert told["DATABASES"]["default"]["CONN_MAX_AGE"] == 0
    with override_settings(EZGH_WORKFLOWS=told["EZGH_WORKFLOWS"]):
        assert run_checks(tags=["ezgh_workflows"]) == []


def test_whoever_stops_a_worker_allows_for_its_grace() -> None:
    assert watch.GRACE + shift.SEND_PATIENCE + shift.JOIN_PATIENCE < AFTER_GRACE
    assert f"`--grace` and {AFTER_GRACE} seconds more" in PAGE
    unit = service("workflows-worker.service")
    worker = understood(calls(unit["ExecStart"])[0])
    [kubernetes] = map(int, re.findall(r"^terminationGracePeriodSeconds: (\d+)$", PAGE, re.MULTILINE))
    [docker] = map(int, re.findall(r"^# .*docker stop -t (\d+)$", FILES["Dockerfile"], re.MULTILINE))
    assert min(int(unit["TimeoutStopSec"]), kubernetes, docker) >= GRACE + AFTER_GRACE
    assert {understood(call)["grace"] for _, call in CALLS if call[1] == "runworker"} == {GRACE}
    assert worker["heartbeat_file"].parent == Path("/run") / unit["RuntimeDirectory"]


def test_the_servers_unit_allows_for_its_own_patience() -> None:
    unit = service("workflows-server.service")
    assert int(unit["TimeoutStopSec"]) > understood(calls(unit["ExecStart"])[0])["timeout_graceful_shutdown"]


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".service")])
def test_a_unit_sends_the_stop_to_its_program_alone_and_restarts_it(name: str) -> None:
    unit = service(name)
    assert (unit["KillMode"], unit["KillSignal"], unit["Restart"], unit["NoNewPrivileges"]) == ("mixed", "SIGTERM", "always", "yes")
    assert unit["User"] != "root"


@pytest.mark.parametrize("name", FILES)
def test_a_file_says_in_its_head_that_it_is_not_run(name: str) -> None:
    assert "This file is not run by the project's tests" in " ".join(FILES[name].splitlines()[:5])


def test_the_image_runs_each_program_as_process_1_and_nobody_as_root() -> None:
    stages = re.split(r"^FROM .* AS (\w+)$", FILES["Dockerfile"], flags=re.MULTILINE)
    by_name = dict(zip(stages[1::2], stages[2::2], strict=True))
    assert list(by_name) == ["packages", "site", "server", "worker"]
    assert re.findall(r"^USER (.*)$", FILES["Dockerfile"], re.MULTILINE) == ["10001"]
    for name in ("server", "worker"):
        check, command = (json.loads(words) for words in re.findall(r"CMD (\[.*\])$", by_name[name], re.MULTILINE))
        assert command[0] in ("uvicorn", "python")
        compile(check[2], name, "exec")


def service(name: str) -> configparser.SectionProxy:
    """The [Service] of a unit."""
    unit = configparser.ConfigParser(interpolation=None, comment_prefixes=("#",), delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(FILES[name])
    return unit["Service"]
