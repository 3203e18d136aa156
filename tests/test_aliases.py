"""The workflow tables in a database of their own (case B74)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from tests.addresses import url_of
from tests.conftest import ROOT


@pytest.fixture
def databases(transactional_db: None, tmp_path: Path) -> Iterator[str]:
    """The URL of the first of three new databases; the others are named after it."""
    if connection.vendor == "sqlite":
        yield f"sqlite:///{tmp_path / 'default.sqlite3'}"
        return
    of_the_test = connection.settings_dict
    name = f"{of_the_test['NAME']}_own"
    names = [connection.ops.quote_name(each) for each in (name, f"{name}.workflows", f"{name}.replica")]
    with connection.cursor() as cursor:
        for each in names:
            cursor.execute(f"DROP DATABASE IF EXISTS {each}")
            cursor.execute(f"CREATE DATABASE {each}")
        yield url_of({**of_the_test, "NAME": name})
        for each in names:
            cursor.execute(f"DROP DATABASE {each}")


def tell(program: str, settings: str, database: str) -> subprocess.CompletedProcess[str]:
    """Run a program in the project of these settings, on databases of its own."""
    env = os.environ | {
        "DATABASE_URL": database,
        "DJANGO_SETTINGS_MODULE": settings,
        "PYTHONPATH": str(ROOT),
        "WORKFLOWS": "{}",
        "ALLOWED_HOSTS": "testserver",
    }
    return subprocess.run([sys.executable, "-m", program], cwd=ROOT, env=env, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.long
@pytest.mark.process
def test_a_start_in_a_transaction_of_another_database_is_sent_with_its_commit(databases: str) -> None:
    """Spec: authoring.md "Starting, from Django". With the router that is shipped, and the checks that say what it means."""
    done = tell("tests.aliases.starting", "tests.aliases.apart", databases)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.process
def test_a_router_that_leads_readers_astray_is_never_asked(databases: str) -> None:
    """No lock, no transaction and no read is anywhere else than at the alias `DATABASE`: API, worker, maintenance, commands."""
    done = tell("tests.aliases.story", "tests.aliases.settings", databases)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["only the workflows' database was used"]), done.stdout + done.stderr
