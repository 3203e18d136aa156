"""A public monitor of `django.tasks`, django-tasks-monitor, sees this backend's tasks as those of any other: nothing of it is changed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import django
import pytest

from tests.conftest import ROOT, environment

from .test_tasks import TASKS

SETTLE = """
import django; django.setup()
from tests.contrib import jobs
jobs.add.enqueue(2, second=3); jobs.fail.enqueue("luck"); jobs.send.enqueue("ada@example.org")
"""

TELL = """
import django, json; django.setup()
from tasks_monitor.models import TaskRecord
rows = TaskRecord.objects.order_by("task_path")
told = [[r.task_name, r.queue_name, r.status, r.attempts, r.worker_ids, r.args, r.exception_class, r.duration is not None] for r in rows]
print(json.dumps([told, "in fail" in rows.get(task_path__endswith=".fail").traceback]))
"""


@pytest.mark.process
@pytest.mark.skipif(django.VERSION < (6, 0), reason="the monitor needs Django 6")
def test_a_public_monitor_records_every_task(tmp_path: Path) -> None:
    extra = {"EXTRA_APPS": "tasks_monitor", "TASKS": json.dumps(TASKS)}
    env = {**environment(f"sqlite:///{tmp_path / 'monitor.sqlite3'}"), **extra}

    def run(*arguments: str) -> str:
        done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("manage.py", "migrate", "-v0")
    run("-c", SETTLE)
    run("manage.py", "runworker", "--name", "w0", "--app", "default", "--app", "emails", "--until-idle")
    told, has_traceback = json.loads(run("-c", TELL))
    assert told == [
        ["add", "default", "SUCCESSFUL", 1, ["w0"], [2], "", True],
        ["fail", "default", "FAILED", 1, ["w0"], ["luck"], "builtins.ValueError", True],
        ["send", "emails", "SUCCESSFUL", 1, ["w0"], ["ada@example.org"], "", True],
    ]
    assert has_traceback
