"""The rules of the house that no linter knows, and that the docs are complete."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import environ
import pytest
from django.contrib.auth import get_user_model

from ezgh_workflows_django.conf import SETTINGS, Setting

from .addresses import url_of
from .conftest import ROOT

PACKAGE = ROOT / "ezgh_workflows_django"
README = (ROOT / "README.md").read_text()
DOCS = ROOT / "docs"

UNBLOCKED = """
import sys
sys.modules["django"] = None
from ezgh_workflows_django import Workflow, Step, Wait, Sleep, Retry, Worker, step_info
assert step_info() is None
assert Workflow("job", steps=[Step("only", run=lambda: 1, retry=Retry(max_attempts=2))]).version
"""


def test_the_authoring_words_need_no_django() -> None:
    done = subprocess.run([sys.executable, "-c", UNBLOCKED], cwd=ROOT, env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_pytest_can_load_the_plugin_before_django_is_set_up() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [(name, module)] = project["entry-points"]["pytest11"].items()
    done = subprocess.run([sys.executable, "-c", f"import {module}"], cwd=ROOT, env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert name == module  # a conftest that lists it too gets the same plugin


def test_nothing_warns_or_asks_the_database_at_start_up() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "manage.py", "check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# --- statuses are written in the engine only


def outside_engine() -> list[Path]:
    """The modules that may not move anything."""
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] not in ("engine", "migrations")]


def status_writes(tree: ast.AST) -> Iterator[int]:
    """The lines on which a status is assigned or updated."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and is_status_update(node):
            yield node.lineno
        if isinstance(node, ast.Attribute) and node.attr == "status" and isinstance(node.ctx, ast.Store):
            yield node.lineno


def is_status_update(call: ast.Call) -> bool:
    """Whether that is `.update(status=...)`, or its async twin."""
    is_update = isinstance(call.func, ast.Attribute) and call.func.attr in ("update", "aupdate")
    return is_update and any(keyword.arg == "status" for keyword in call.keywords)


def test_nobody_outside_the_engine_writes_a_status() -> None:
    found = [f"{path.relative_to(ROOT)}:{line}" for path in outside_engine() for line in status_writes(ast.parse(path.read_text()))]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "run.status = 'failed'",
        "run.status: str = 'failed'",
        "a, run.status = 1, 2",
        "Run.objects.filter(pk=1).update(status='failed')",
        "await q.aupdate(status=1)",
    ],
)
def test_a_status_write_would_be_found(line: str) -> None:
    assert list(status_writes(ast.parse(f"async def verb():\n    {line}"))) == [2]


@pytest.mark.parametrize("line", ["status = run.status", "Run.objects.filter(status='failed').update(note='x')", "{}.update(state=1)"])
def test_a_status_that_is_only_read_is_no_write(line: str) -> None:
    assert list(status_writes(ast.parse(line))) == []


# --- nothing in the tree belongs to one machine

MACHINE = re.compile(r"(?<![\w.:/}-])/(?:home|root|Users|work)/\w|(?:files\.pythonhosted|pypi)\.org|/simple/")


def tracked() -> list[Path]:
    """The text files that git tracks, or would."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [ROOT / name for name in listed if (ROOT / name).is_file() and Path(name) != Path(__file__).relative_to(ROOT)]


def test_no_file_names_a_place_on_somebodys_machine_or_a_registry() -> None:
    found = [f"{path.relative_to(ROOT)}: {hit[0]}" for path in tracked() for hit in MACHINE.finditer(path.read_bytes().decode("utf-8", "replace"))]
    assert found == []


@pytest.mark.parametrize("text", ["cd /home/ann/project", 'open("/root/x")', "https://pypi.org/project/x", "--index-url http://mirror/simple/"])
def test_such_a_place_would_be_found(text: str) -> None:
    assert MACHINE.search(text)


# --- the tests' own ground


@pytest.mark.process
def test_a_child_process_works_on_the_tests_database(child_env: Mapping[str, str]) -> None:
    get_user_model().objects.create(username="ann")
    asked = "from django.contrib.auth import get_user_model; print(get_user_model().objects.get().username)"
    done = subprocess.run([sys.executable, "manage.py", "shell", "-v0", "-c", asked], cwd=ROOT, env=child_env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "ann"


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////tmp/a.sqlite3",
        "postgres://ann@db:5432/flows",
        "postgres://ann:p%40s%2Fs@db:5432/flows",
        "mysql://root@127.0.0.1:3306/flows",
        "postgres://ann@db/flows",
    ],
)
def test_a_database_is_addressed_as_django_environ_reads_it(url: str) -> None:
    read = environ.Env.db_url_config(url)
    assert url_of(read) == url


# --- README

SET_UP = "python3.11 -m venv .venv && .venv/bin/pip install --quiet --editable '.[dev]' && "


def test_readme_opens_with_two_commands_that_set_themselves_up() -> None:
    opening, _, _ = README.partition("<!-- quickstart begins -->")
    assert re.findall(r"^```sh\n(.*?)^```$", opening, re.MULTILINE | re.DOTALL) == [
        f"{SET_UP}.venv/bin/python manage.py demo\n",
        f"{SET_UP}.venv/bin/python -m pytest -n auto --dist worksteal\n",
    ]


def test_the_quickstart_has_five_steps() -> None:
    _, _, rest = README.partition("<!-- quickstart begins -->")
    quickstart, _, _ = rest.partition("<!-- quickstart ends -->")
    assert re.findall(r"^\*\*(\d)\.", quickstart, re.MULTILINE) == ["1", "2", "3", "4", "5"]


# --- docs


def sections(page: str) -> dict[str, str]:
    """The text under each second-level heading of a page."""
    parts = re.split(r"^## (.+)$", (DOCS / page).read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def shown(setting: Setting) -> str:
    """A setting's default as the page says it."""
    if isinstance(setting.default, timedelta):
        return f"`{setting.default.total_seconds():g}` s" if setting.default < timedelta(hours=1) else f"`timedelta(days={setting.default.days})`"
    return f"`{list(setting.default) if isinstance(setting.default, tuple) else setting.default!r}`"


def test_the_page_of_settings_has_each_setting_and_no_other() -> None:
    assert list(sections("settings.md")) == [setting.name for setting in SETTINGS]


@pytest.mark.parametrize("setting", SETTINGS, ids=[setting.name for setting in SETTINGS])
def test_a_setting_is_documented_with_its_line_and_default(setting: Setting) -> None:
    text = sections("settings.md")[setting.name]
    assert setting.line in text
    assert f"the default is {shown(setting)}." in text


def ids_in(text: str) -> set[str]:
    return set(re.findall(r'"(ezgh_workflows\.[EWI]\d{3})"', text))


CHECKS = set[str]().union(*(ids_in((PACKAGE / file).read_text()) for file in ("checks.py", "code_checks.py", "apps.py", "contrib/tasks/backend.py")))


def test_the_page_of_checks_has_each_check_and_no_other() -> None:
    assert set(sections("checks.md")) == CHECKS


@pytest.mark.parametrize("check", sorted(CHECKS))
def test_a_check_is_tested(check: str) -> None:
    number = check.rpartition(".")[2].lower()
    tests = "\n".join((ROOT / "tests" / file).read_text() for file in ("test_checks.py", "test_code_checks.py"))
    assert re.search(rf"^def test_(\w+_)?{number}_", tests, re.MULTILINE)
