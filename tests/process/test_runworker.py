"""The command itself: what it prints, which flags it takes, how it ends."""

from __future__ import annotations

import getpass
import json
import re
import socket
import urllib.request
from pathlib import Path

import pytest

from ezgh_workflows_django import Start
from ezgh_workflows_django.models import App, Lease, Worker
from ezgh_workflows_django.protocol.states import RunStatus
from ezgh_workflows_django.worker.dev import dev_app

from .conftest import Fleet, Folder, Process, until
from .workers.workflows import quick, stubborn

pytestmark = pytest.mark.process


def ended(process: Process) -> str:
    """What a process that ended well has printed."""
    assert process.ends(30) == 0, process.output
    return process.output


@pytest.mark.parametrize("command", ["runworker", "workflows_worker"])
def test_until_idle_works_everything_off_and_ends_well(fleet: Fleet, command: str) -> None:
    runs = quick.start_many([Start(payload=number) for number in range(15)])
    ended(fleet.command(command, "--until-idle"))
    assert [run.result(timeout=0) for run in runs] == list(range(15))


def test_the_start_up_block_says_what_there_is_and_what_is_missing(fleet: Fleet) -> None:
    printed = ended(fleet.command("runworker", "--until-idle", "--name", "ann"))
    assert "worker ann\n" in printed
    assert "  app          default (queue default)\n" in printed
    assert f"quick revision 1, version {quick.version}\n" in printed
    assert "  concurrency  10 bodies at once\n" in printed
    assert "  heartbeat    every 1 s from a process of its own; a lease lives 3 s without one, and may come back for 2 s more\n" in printed
    assert "  maintenance  every second\n" in printed
    assert "  cron         on\n" in printed
    assert "  missing      nothing\n" in printed


def test_an_app_that_is_missing_is_named_and_ends_the_worker(fleet: Fleet) -> None:
    process = fleet.command("runworker", "--app", "reports")
    assert process.ends(30) == 1
    assert 'missing      the app "reports"' in process.output
    assert 'there is no app "reports": create it' in process.output


def test_a_line_is_printed_for_each_finished_step(fleet: Fleet) -> None:
    run = quick.start(3)
    printed = ended(fleet.command("runworker", "--until-idle"))
    assert re.search(rf"quick/only attempt 1 completed after \d+\.\d+ s, run {run.id}\n", printed)
    assert run.status == RunStatus.SUCCEEDED


@pytest.mark.long
def test_json_lines_carry_the_same_facts(fleet: Fleet) -> None:
    run = quick.start(3)
    lines = [json.loads(line) for line in ended(fleet.command("runworker", "--until-idle", "--log-format", "json")).splitlines()]
    assert [line["event"] for line in lines] == ["start", "registered", "finished", "stopping"]
    assert lines[0]["missing"] == []
    assert (lines[2]["workflow"], lines[2]["step"], lines[2]["run_id"], lines[2]["status"]) == ("quick", "only", run.id, "completed")


@pytest.mark.long
def test_several_apps_are_served_by_one_process(fleet: Fleet) -> None:
    App.objects.create(project=App.objects.get().project, name="reports", created_at=App.objects.get().created_at)
    runs = [quick.start(1, app="default"), quick.start(2, app="reports")]
    ended(fleet.command("runworker", "--until-idle", "--app", "default", "--app", "reports"))
    assert [run.result(timeout=0) for run in runs] == [1, 2]
    assert set(Worker.objects.values_list("app__name", flat=True)) == {"default", "reports"}


@pytest.mark.long
def test_dev_works_for_an_app_of_ones_own_and_prints_the_line_to_paste(fleet: Fleet) -> None:
    own = dev_app(getpass.getuser())
    run = quick.start(1, app=own)
    printed = ended(fleet.command("runworker", "--until-idle", "--dev"))
    assert run.result(timeout=0) == 1
    assert f'EZGH_WORKFLOWS["DEFAULT_APP"] = "{own}"' in printed
    assert App.objects.get(name=own).queue == own


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--dev"], "off: an app named dev-<user> fires schedules only with --cron"),
        (["--dev", "--cron"], "on, for an app named dev-<user> too"),
    ],
    ids=["without", "with"],
)
def test_a_developers_app_fires_schedules_only_with_cron(fleet: Fleet, flags: list[str], said: str) -> None:
    assert f"  cron         {said}\n" in ended(fleet.command("workflows_worker", "--until-idle", *flags))
    assert Worker.objects.get().cron == ("--cron" in flags)


@pytest.mark.parametrize(("user", "app"), [("Ann", "dev-ann"), ("ann.smith@work", "dev-ann-smith-work"), ("Jörg", "dev-j-rg"), ("x" * 80, "dev-" + "x" * 59)])
def test_a_developers_app_is_named_after_him(user: str, app: str) -> None:
    assert dev_app(user) == app


def test_except_leaves_a_workflow_to_others(fleet: Fleet, folder: Folder) -> None:
    left, served = stubborn.start(str(folder)), quick.start(1)
    ended(fleet.command("runworker", "--until-idle", "--except", "stubborn/only"))
    assert served.status == RunStatus.SUCCEEDED
    assert not Lease.objects.filter(run__pk=left.id).exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--only", "qick"], "--only: this worker holds no qick"),
        (["--concurrency", "0"], "--concurrency: 0 bodies at once are none"),
        (["--grace", "-1"], "--grace: -1.0 seconds can't be waited"),
        (["--dev", "--app", "reports"], "--dev works for an app of your own"),
        (["--heartbeat-file", "/nowhere/at/all"], "--heartbeat-file: /nowhere/at/all can't be written"),
    ],
)
def test_flags_that_cannot_be_are_refused(fleet: Fleet, flags: list[str], said: str) -> None:
    process = fleet.command("runworker", *flags)
    assert process.ends(30) == 1
    assert said in process.output


@pytest.mark.long
def test_the_heartbeat_file_is_touched_while_the_loop_goes_round(fleet: Fleet, tmp_path: Path) -> None:
    file = tmp_path / "beat"
    fleet.worker("worker", "--heartbeat-file", str(file))
    first = file.stat().st_mtime_ns
    until(lambda: quick.start(1).result(timeout=20) == 1 and file.stat().st_mtime_ns > first)


SETUP = """
import threading, django
django.setup()
from django.core.management import load_command_class
load_command_class("ezgh_workflows_django", "runworker")
from django.db import connections
from ezgh_workflows_django.definitions.registry import registry
assert "quick" in {workflow.name for workflow in registry}
assert threading.active_count() == 1, threading.enumerate()
assert [connection.connection for connection in connections.all()] == [None]
"""


def test_setting_django_up_starts_no_thread_and_asks_the_database_nothing(fleet: Fleet) -> None:
    """B97."""
    ended(fleet.program("-c", SETUP))


@pytest.mark.long
def test_runserver_and_its_reloader_work_on_nothing(fleet: Fleet) -> None:
    """B97: two processes import the project, and neither is a worker."""
    run = quick.start(1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = fleet.command("runserver", f"127.0.0.1:{port}")

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/admin/login/", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    until(answers)
    assert server.is_alive
    assert not Worker.objects.exists()
    assert not Lease.objects.exists()
    assert run.status == RunStatus.RUNNING
