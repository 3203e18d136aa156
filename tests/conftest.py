"""The tests' database, and the environment in which a child process uses it too. Knows no model."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from hypothesis import settings as hypothesis_settings

from .addresses import url_of
from .invariant_guard import pytest_runtest_call  # noqa: F401 - a hook: the invariants are looked at after each test on the database

ROOT = Path(__file__).resolve().parent.parent
COMPILED = tempfile.TemporaryDirectory(prefix="ezgh-compiled-")
"""Where child processes keep what they compiled: there are hundreds, and each would compile all of it anew where nothing is written beside the source."""

# The tests make millions of objects that die young: looking for cycles every 700 of them takes a twelfth of the suite's time.
gc.set_threshold(100_000, 50, 100)

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
    for each in connections.all():
        if each.vendor == "sqlite":
            each.settings_dict["TEST"]["NAME"] = str(tmp_path_factory.mktemp("database") / f"{each.alias}.sqlite3")


@pytest.fixture(scope="session", autouse=True)
def quick_flush() -> None:
    """Empty PostgreSQL's tables by DELETE after a test: TRUNCATE, which Django takes, makes and syncs new files for each table, most of a second in all."""
    ops = connection.ops
    if connection.vendor != "postgresql":
        return
    truncate = ops.sql_flush

    def sql_flush(style: Any, tables: Sequence[str], *, reset_sequences: bool = False, allow_cascade: bool = False) -> list[str]:
        if reset_sequences:
            return truncate(style, tables, reset_sequences=reset_sequences, allow_cascade=allow_cascade)
        return [f"DELETE FROM {ops.quote_name(table)}" for table in tables]  # constraints are looked at when they are all empty

    ops.sql_flush = sql_flush  # type: ignore[method-assign]


@pytest.fixture(scope="session", autouse=True)
def patient_labs() -> None:
    """A body of a lab may keep the turn for as long as a busy machine may stand still."""
    from ezgh_workflows_django.testing import turns  # its models can't be imported before Django is set up

    turns.PATIENCE = 60.0


@pytest.fixture
def child_env(transactional_db: None) -> Mapping[str, str]:
    """The environment of a child process that works on this test's database: pass it as `env`, run it in `ROOT`."""
    return environment(url_of(connections["default"].settings_dict))


def environment(database_url: str) -> Mapping[str, str]:
    """The environment of a child process that works on that database."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "PYTHONPATH": str(ROOT),
        "PYTHONPYCACHEPREFIX": COMPILED.name,
        "PYTHONUNBUFFERED": "1",
    }
