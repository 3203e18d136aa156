"""The second half of `manage.py demo`: the import of 1,000 orders, in a process of its own, on a SQLite file of its own. The work is in `rehearsal`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TextIO

from django.core.management.base import CommandError, OutputWrapper

ROOT: Final = Path(__file__).resolve().parents[2]
FILE: Final = "demo.sqlite3"
"""In the project's folder, and ignored by git: it stays, to be looked at in the admin."""

TIMES: Final = {"LEASE_TTL": 4, "RECOVERY_WINDOW": 4, "HEARTBEAT": 1}
"""Seconds: so short that a lost worker is noticed while one looks on."""


def run(stdout: OutputWrapper | TextIO, file: str = FILE) -> None:
    """Import, and show how it goes. What another demo left in that file goes. Raises `CommandError` where the totals do not add up."""
    for leftover in (ROOT / file).parent.glob(f"{Path(file).name}*"):
        leftover.unlink()
    with subprocess.Popen([sys.executable, "manage.py", "rehearse_import"], cwd=ROOT, env=environment(file), stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        for line in program.stdout:
            stdout.write(line)
            stdout.flush()
    if program.returncode:
        raise CommandError(f"the import did not add up: it ended with code {program.returncode}")


def environment(file: str) -> Mapping[str, str]:
    """That of the import and, through it, of its workers."""
    own = {
        "DATABASE_URL": f"sqlite:///{file}",
        "WORKFLOWS": json.dumps(TIMES),
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "DEBUG": "false",
        "PYTHONUNBUFFERED": "1",
    }
    return os.environ | own
