"""The workflow tables in a database of their own (case B74)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


def tell(program: str, settings: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in the project of these settings, on databases of its own."""
    env = os.environ | {
        "DATABASE_URL": f"sqlite:///{folder / 'default.sqlite3'}",
        "DJANGO_SETTINGS_MODULE": settings,
        "PYTHONPATH": str(ROOT),
        "WORKFLOWS": "{}",
        "ALLOWED_HOSTS": "testserver",
    }
    return subprocess.run([sys.executable, "-m", program], cwd=ROOT, env=env, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.long
@pytest.mark.process
def test_a_start_in_a_transaction_of_another_database_is_sent_with_its_commit(tmp_path: Path) -> None:
    """Spec: authoring.md "Starting, from Django". With the router that is shipped, and the checks that say what it means."""
    done = tell("tests.aliases.starting", "tests.aliases.apart", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.process
def test_a_router_that_leads_readers_astray_is_never_asked(tmp_path: Path) -> None:
    """No lock, no transaction and no read is anywhere else than at the alias `DATABASE`: API, worker, maintenance, commands."""
    done = tell("tests.aliases.story", "tests.aliases.settings", tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["only the workflows' database was used"]), done.stdout + done.stderr
