"""`workflows_maintain` and `workflows_prune`."""

from __future__ import annotations

import signal
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from ezgh_workflows_django.models import Run
from ezgh_workflows_django.protocol.states import RunStatus

from .conftest import Fleet, Folder, leases, until
from .workers.workflows import gated, quick


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
def test_maintain_refuses_an_interval_that_is_none() -> None:
    with pytest.raises(CommandError, match="--interval: 0 seconds"):
        call_command("workflows_maintain", "--interval", "0")


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
