"""The first half of `manage.py demo`: the four examples print what the docs say, line by line, and leave every invariant whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testproject import examples
from testproject.workflows import LINES

from .conftest import ROOT

PRINTED = """\
wait and sleep:
  both orders waiting for payment
  paid A-2 at Mon 09:00: A-2 waiting (sleeping), A-1 waiting
  ship A-2 (paid 40) at Tue 09:00
  A-2 succeeded, A-1 still waiting
  ship A-1 (paid 40) at Wed 09:00
give up after a timeout:
  on failure: escalate "expense 77" at Sat 09:00
  run failed, deadline exceeded true
steps that depend on other steps:
  quote/quote attempt 1: price 120, stock 7
step timeout:
  run failed: step "write" failed after 1 attempt(s): attempt 1 timed out after 30s
refusals:
  remote worker: workflow order, step await_payment: a callable key stays on the server; use key_expr
"""


@pytest.mark.django_db
def test_the_examples_say_exactly_this() -> None:
    told: list[str] = []
    examples.tell_all(told.append)
    assert told == PRINTED.splitlines()
    assert LINES == []


@pytest.mark.django_db(transaction=True)
def test_the_examples_say_it_on_a_database_that_commits() -> None:
    told: list[str] = []
    examples.tell_all(told.append)
    assert told == PRINTED.splitlines()


@pytest.mark.process
def test_the_command_prints_it_and_nothing_is_broken_afterwards(tmp_path: Path) -> None:
    env = os.environ | {"DATABASE_URL": f"sqlite:///{tmp_path}/examples.sqlite3"}
    shown = subprocess.run([sys.executable, "manage.py", "show_examples"], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stdout) == (0, PRINTED)
    assert shown.stderr == "every invariant holds\n"
