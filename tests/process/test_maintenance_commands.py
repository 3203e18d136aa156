"""`workflows_maintain` and `workflows_prune`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Final, Never

import pytest
from django.core.management import CommandError, call_command

from ezgh_workflows_django.engine import maintenance
from ezgh_workflows_django.engine.transactions import LostRace
from ezgh_workflows_django.management.commands import workflows_maintain
from ezgh_workflows_django.models import Run
from ezgh_workflows_django.protocol.states import RunStatus
from ezgh_workflows_django.worker.shutdown import Cause, Inbox, Word

from .conftest import Fleet, Folder, leases, until
from .workers.workflows import gated, quick

NOTHING_DUE: Final = maintenance.Ticked(datetime(2026, 1, 1, tzinfo=UTC), None, 0)


def printed(command: str, *flags: str) -> str:
    """What a command prints."""
    out = StringIO()
    call_command(command, *flags, stdout=out)
    return out.getvalue()


def aged(days: float) -> Run:
    """A run that was cancelled so many days ago."""
    handle = quick.start(1)
    handle.cancel()
    run = Run.objects.get(pk=handle.id)
    assert run.ended_at is not None
    run.ended_at -= timedelta(days=days)
    run.save()
    return run


@pytest.mark.long
@pytest.mark.process
def test_maintain_looks_after_workers_that_do_not(fleet: Fleet, folder: Folder) -> None:
    victim = fleet.worker("victim", "--no-maintenance")
    run = gated.start(str(folder))
    until(lambda: folder.heard("begun"))
    victim.send(signal.SIGKILL)
    maintainer = fleet.command("workflows_maintain", "--interval", "0.5")

    until(lambda: [lease.status for lease in leases(run)] == ["reclaimed"])
    maintainer.send(signal.SIGTERM)
    assert maintainer.ends() == 0
    assert "1 things that were due" in maintainer.output


@pytest.mark.django_db(transaction=True)
def test_maintain_once_does_what_is_due_and_ends() -> None:
    run = quick.start(1, delay=timedelta(milliseconds=1))
    until(lambda: "1 things that were due" in printed("workflows_maintain", "--once"))
    assert run.status == RunStatus.RUNNING


@pytest.mark.django_db
@pytest.mark.parametrize("interval", ["0", "nan", "inf"])
def test_maintain_refuses_an_interval_that_is_none(interval: str) -> None:
    with pytest.raises(CommandError, match=f"--interval: {interval} seconds"):
        call_command("workflows_maintain", "--interval", interval)


class Loop:
    """`workflows_maintain` with ticks of the test's, which are given the inbox that signals go to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tick: Callable[[Inbox], object]) -> None:
        self.inbox = Inbox()
        monkeypatch.setattr(workflows_maintain, "Inbox", lambda: self.inbox)
        monkeypatch.setattr(maintenance, "tick", lambda: tick(self.inbox))
        self.said = StringIO()

    def run(self) -> None:
        call_command("workflows_maintain", "--interval", "0.01", stderr=self.said)


@pytest.mark.django_db
def test_a_second_signal_ends_maintain_while_a_tick_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def tick(inbox: Inbox) -> Never:
        inbox.put(Word(Cause.SIGNAL))
        inbox.put(Word(Cause.SIGNAL))
        gate.wait(60)
        raise ZeroDivisionError("its end comes too late to be heard")

    loop = Loop(monkeypatch, tick)
    with pytest.raises(SystemExit) as end:
        loop.run()
    gate.set()
    assert end.value.code == 1
    assert "a second signal: ending now" in loop.said.getvalue()


@pytest.mark.django_db
def test_one_signal_ends_maintain_after_its_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    def tick(inbox: Inbox) -> maintenance.Ticked:
        inbox.put(Word(Cause.SIGNAL))
        return NOTHING_DUE

    Loop(monkeypatch, tick).run()


@pytest.mark.django_db
def test_a_tick_that_crashes_ends_maintain_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        Loop(monkeypatch, lambda inbox: 1 // 0).run()


@pytest.mark.django_db
def test_a_race_that_was_lost_costs_maintain_a_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[Inbox] = []

    def tick(inbox: Inbox) -> maintenance.Ticked:
        ticks.append(inbox)
        if len(ticks) == 1:
            raise LostRace("no longer ready")
        inbox.put(Word(Cause.SIGNAL))
        return NOTHING_DUE

    loop = Loop(monkeypatch, tick)
    loop.run()
    assert "maintenance could not run (no longer ready); trying again in" in loop.said.getvalue()


@pytest.mark.django_db
def test_prune_deletes_what_is_past_retention_and_nothing_else() -> None:
    old, young, live = aged(31), aged(29), Run.objects.get(pk=quick.start(1).id)
    assert printed("workflows_prune") == "1 runs deleted\n"
    assert set(Run.objects.all()) == {young, live}
    assert old not in Run.objects.all()


@pytest.mark.django_db
def test_prune_goes_by_the_age_it_is_given() -> None:
    aged(3)
    kept = aged(1)
    assert printed("workflows_prune", "--older-than", "2") == "1 runs deleted\n"
    assert list(Run.objects.all()) == [kept]


@pytest.mark.django_db
def test_a_dry_run_deletes_nothing() -> None:
    aged(31)
    assert printed("workflows_prune", "--dry-run") == "1 runs would be deleted\n"
    assert Run.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("days", ["-1", "nan", "1e9"])
def test_prune_refuses_an_age_that_is_none(days: str) -> None:
    with pytest.raises(CommandError, match="--older-than"):
        call_command("workflows_prune", "--older-than", days)
