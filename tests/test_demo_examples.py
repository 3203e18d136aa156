"""`manage.py demo`: the four examples print what the docs say, line by line, and leave every invariant whole; then the shop's import adds up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from testproject import examples
from testproject.shop import demo
from testproject.workflows import LINES

from .conftest import ROOT
from .own_file import on_files_of_its_own
from .test_shop import REASONS

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


REFUSED = "".join(f"    {reason}\n" for reason in REASONS.values())

IMPORT = rf"""import of 1,000 orders \(LEASE_TTL 4 s, RECOVERY_WINDOW 4 s, HEARTBEAT 1 s\):
  1,000 runs started in \d+\.\d s; two workers begin
(?: +\d+ of 1,000 ended
)+ +SIGKILL for shop-1, which has \d+ bodies at work; shop-2 goes on alone
(?: +[\d,]+ of 1,000 ended
)*  done after \d+\.\d s; shop-2 was told to stop and ended with code 0
  1,000 in: 988 imported, 12 refused, none lost, none twice
  988 orders stored over 809,122\.11; the good rows are 988 over 809,122\.11
  12 refused, each with its reason:
{re.escape(REFUSED)}  \d+ leases reclaimed:
(?:    \w+ of line \d+, attempt \d by shop-[12]: (?:its worker was gone|nobody took the offer up); \d+\.\d s late; finished by shop-2
)+workflows_check:
every invariant holds
look at it in the admin:
  DATABASE_URL=sqlite:///\S+ \S+ manage\.py runserver
  http://127\.0\.0\.1:8000/admin/ as user demo, password demo
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


@pytest.mark.long
@on_files_of_its_own
@pytest.mark.process
def test_the_command_prints_it_and_nothing_is_broken_afterwards(tmp_path: Path) -> None:
    env = os.environ | {"DATABASE_URL": f"sqlite:///{tmp_path}/examples.sqlite3"}
    shown = subprocess.run([sys.executable, "manage.py", "show_examples"], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stdout) == (0, PRINTED)
    assert shown.stderr == "every invariant holds\n"


@pytest.mark.process
@pytest.mark.long
@on_files_of_its_own
@pytest.mark.timeout(240)
def test_the_demo_prints_the_examples_and_then_an_import_that_adds_up(tmp_path: Path) -> None:
    """The real command, workers and kill included. It bounds itself (`rehearsal.PATIENCE`), so a hang ends as a failure, with what was printed."""
    shown = subprocess.run(
        [sys.executable, "manage.py", "demo", "--file", str(tmp_path / "demo.sqlite3")], cwd=ROOT, capture_output=True, text=True, check=False, timeout=220
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    examples_told, import_told = shown.stdout[: len(PRINTED)], shown.stdout[len(PRINTED) :]
    assert examples_told == PRINTED
    assert re.fullmatch(IMPORT, import_told), import_told


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git ignores nothing where there is no repository")
def test_what_the_demo_leaves_behind_is_no_file_of_gits() -> None:
    left = [demo.FILE, *(f"{demo.FILE}{end}" for end in ("-wal", "-shm", ".shop-1.log", ".shop-2.log"))]
    ignored = subprocess.run(["git", "check-ignore", *left], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ignored.stdout.splitlines() == left
