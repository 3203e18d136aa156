"""The import as it is shown: starts the runs and two real workers, kills one half-way, waits for the end, prints the totals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.core.management.base import OutputWrapper
from django.db import connection

from ezgh_workflows_django.conf import app_settings
from ezgh_workflows_django.models import Lease
from ezgh_workflows_django.protocol.states import LeaseStatus, RunStatus

from .demo import ROOT
from .importing import start_import
from .ledger import Ledger, Lost, ended, ledger
from .models import Upload

VICTIM: Final = "shop-1"
SURVIVOR: Final = "shop-2"
PATIENCE: Final = 85.0
"""Seconds that the import may take."""

LOOK_EVERY: Final = 0.2
USER: Final = "demo"


def rehearse(out: OutputWrapper) -> bool:
    """Do it all, on this process's database; says whether everything adds up."""
    out.write(f"import of 1,000 orders ({_times()}):")
    begun = time.monotonic()
    upload, runs = start_import()
    out.write(f"  {len(runs):,} runs started in {time.monotonic() - begun:.1f} s; two workers begin")
    with worker(VICTIM) as victim, worker(SURVIVOR) as survivor:
        is_over = work_through(upload, len(runs), victim, begun + PATIENCE, out)
        survivor.send_signal(signal.SIGTERM)
        code = survivor.wait(40)
    out.write(f"  {'done' if is_over else 'given up'} after {time.monotonic() - begun:.1f} s; {SURVIVOR} was told to stop and ended with code {code}")
    totals = ledger(upload)
    report(totals, out)
    faults = [*totals.faults(), *([] if totals.lost else ["no lease was reclaimed"]), *([f"{SURVIVOR} ended with code {code}"] if code else [])]
    faults += [] if is_sound(out) else ["workflows_check found something"]
    for fault in faults:
        out.write(f"  WRONG: {fault}")
    tell_where_to_look(out)
    return not faults


def work_through(upload: Upload, total: int, victim: subprocess.Popen[bytes], until: float, out: OutputWrapper) -> bool:
    """Show how far it is, and kill one worker half-way, until every run has ended; False where `until` comes first."""
    shown = 0
    while (count := ended(upload)) < total and time.monotonic() < until:
        if count - shown >= 100:
            shown = count - count % 100
            out.write(f"  {count:>5,} of {total:,} ended")
        if count >= total // 2 and victim.poll() is None and (held := kill_at_work(victim)):
            out.write(f"        SIGKILL for {VICTIM}, which has {held} bodies at work; {SURVIVOR} goes on alone")
        time.sleep(LOOK_EVERY)
    return count == total


def kill_at_work(victim: subprocess.Popen[bytes]) -> int:
    """Kill a worker that has bodies at work; gives how many. 0 where it has none just now, and lives."""
    victim.send_signal(signal.SIGSTOP)  # so that none of them ends between the look and the kill
    held = Lease.objects.filter(worker_name=VICTIM, status=LeaseStatus.STARTED).count()
    if held:
        victim.kill()
        victim.wait()
    else:
        victim.send_signal(signal.SIGCONT)
    return held


@contextmanager
def worker(name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real worker process, whose lines go to a file beside the database. It is gone when this ends."""
    with Path(f"{ROOT / connection.settings_dict['NAME']}.{name}.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "manage.py", "runworker", "--name", name], cwd=ROOT, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def report(totals: Ledger, out: OutputWrapper) -> None:
    """Print what came of it."""
    succeeded, failed = totals.statuses[RunStatus.SUCCEEDED], totals.statuses[RunStatus.FAILED]
    out.write(
        f"  {totals.rows:,} in: {succeeded} imported, {failed} refused, {totals.rows - succeeded - failed or 'none'} lost, {totals.twice or 'none'} twice"
    )
    out.write(f"  {totals.orders} orders stored over {totals.total:,}; the good rows are {totals.expected_orders} over {totals.expected_total:,}")
    out.write(f"  {failed} refused, each with its reason:")
    for line in sorted(totals.failures):
        out.write(f"    {totals.failures[line]}")
    out.write(f"  {len(totals.lost)} leases reclaimed:")
    for lost in totals.lost:
        out.write(f"    {_words(lost)}")


def is_sound(out: OutputWrapper) -> bool:
    """Whether no invariant of the engine is broken."""
    out.write("workflows_check:")
    try:
        call_command("workflows_check", stdout=out)
    except (CommandError, SystemExit) as end:
        out.write(f"  {end}")
        return False
    return True


def tell_where_to_look(out: OutputWrapper) -> None:
    """How to see it all in the admin, and the user to do it with."""
    get_user_model().objects.create_superuser(USER, password=USER)
    python = os.path.relpath(sys.executable, ROOT) if Path(sys.executable).is_relative_to(ROOT) else sys.executable
    out.write("look at it in the admin:")
    out.write(f"  DATABASE_URL=sqlite:///{connection.settings_dict['NAME']} {python} manage.py runserver")
    out.write(f"  http://127.0.0.1:8000/admin/ as user {USER}, password {USER}")


def _times() -> str:
    names = ("LEASE_TTL", "RECOVERY_WINDOW", "HEARTBEAT")
    return ", ".join(f"{name} {getattr(app_settings, name) / timedelta(seconds=1):g} s" for name in names)


def _words(lost: Lost) -> str:
    why = "its worker was gone" if lost.had_started else "nobody took the offer up"
    return f"{lost.step} of line {lost.line}, attempt {lost.attempt} by {lost.worker}: {why}; {lost.late:.1f} s late; finished by {lost.finished_by}"
