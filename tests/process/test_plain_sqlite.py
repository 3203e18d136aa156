"""With the settings that `startproject` writes, and nothing of ours in them, the engine makes SQLite's transactions and its log what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.process

PROGRAM = """
import json, sys
import django
from django.conf import settings

apps = ["django.contrib.contenttypes", "django.contrib.auth", "ezgh_workflows_django"]
database = {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}
settings.configure(SECRET_KEY="k", USE_TZ=True, INSTALLED_APPS=apps, DATABASES={"default": database}, DEFAULT_AUTO_FIELD="django.db.models.BigAutoField")
django.setup()

from django.core.management import call_command
from django.db import connection, transaction
from ezgh_workflows_django import Step, Workflow
from ezgh_workflows_django.engine import leases, outcomes, workers
from ezgh_workflows_django.protocol.messages import ClaimRequest, Registration, Serve
from ezgh_workflows_django.protocol.outcomes import Outcome, Report

call_command("migrate", verbosity=0)
begun = []
connection.ensure_connection()
connection.connection.execute("PRAGMA journal_mode=DELETE")
connection.close()
connection.ensure_connection()
connection.connection.set_trace_callback(lambda sql: begun.append(sql) if sql.startswith("BEGIN") else None)
before = connection.connection.execute("PRAGMA journal_mode").fetchone()[0]


def body(value):
    return value


job = Workflow("job", [Step("work", run=body)])
worker = workers.register(Registration(worker="w", app="default", definitions=(job.to_spec(),)))
job.start(1)
[lease] = leases.claim(ClaimRequest(worker_id=worker.worker_id, claim_id="c", max=1, serves=(Serve("job", job.revision),))).leases
leases.started([lease.id])
[answer] = outcomes.report([Report(lease.id, Outcome.completed())])
engines, begun = begun, []
connection.connection.set_trace_callback(lambda sql: begun.append(sql) if sql.startswith("BEGIN") else None)
with transaction.atomic():
    pass
after = connection.connection.execute("PRAGMA journal_mode").fetchone()[0]
print(json.dumps({"before": before, "after": after, "engine": engines, "user": begun, "refused": answer.refused is not None}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a fresh process saw: a run from its start to its end, in a file that was not in WAL mode."""
    path: Path = tmp_path_factory.mktemp("plain") / "db.sqlite3"
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_engine_switches_write_ahead_logging_on(told: Any) -> None:
    assert (told["before"], told["after"]) == ("delete", "wal")


def test_the_engines_transactions_begin_as_writers(told: Any) -> None:
    assert not told["refused"]
    assert len(told["engine"]) >= 5  # register, start, claim, started, report
    assert set(told["engine"]) == {"BEGIN IMMEDIATE"}


def test_a_users_own_transaction_begins_as_its_settings_say(told: Any) -> None:
    assert told["user"] == ["BEGIN"]
