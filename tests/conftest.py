"""The tests' database, and the environment in which a child process uses it too. Knows no model."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest
from django.db import connections
from hypothesis import settings as hypothesis_settings

from .addresses import url_of
from .invariant_guard import pytest_runtest_call  # noqa: F401 - a hook: the invariants are looked at after each test on the database

ROOT = Path(__file__).resolve().parent.parent

# The cores are shared: how long an example takes says nothing about the code.
hypothesis_settings.register_profile("shared", deadline=None)
hypothesis_settings.load_profile("shared")


def pytest_xdist_auto_num_workers() -> int:
    """Half as many test processes again as there are cores: a third of the suite's time is waiting for processes and clocks."""
    return max(2, (os.cpu_count() or 1) * 3 // 2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Replace what UTF-8 can't carry in captured logs: reports travel between xdist's processes, and some tests log half a surrogate pair."""
    report = yield
    report.sections = [(title, text.encode("utf-8", "replace").decode()) for title, text in report.sections]
    return report


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give each test process a SQLite file in a directory of its own: nothing is left over from a run that was killed."""
    for connection in connections.all():
        if connection.vendor == "sqlite":
            connection.settings_dict["TEST"]["NAME"] = str(tmp_path_factory.mktemp("database") / f"{connection.alias}.sqlite3")


@pytest.fixture
def child_env(transactional_db: None) -> Mapping[str, str]:
    """The environment of a child process that works on this test's database: pass it as `env`, run it in `ROOT`."""
    return environment(url_of(connections["default"].settings_dict))


def environment(database_url: str) -> Mapping[str, str]:
    """The environment of a child process that works on that database."""
    return os.environ | {
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }
