"""Workers and clients away from the database, on a live server: a plain script with no Django, and `runworker --url`."""

from __future__ import annotations

import importlib.util
import json
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ezgh_workflows_django import Client, RunFailed
from ezgh_workflows_django.engine import keys, tenancy
from ezgh_workflows_django.errors import Rejected, ResultTimeout, RunTerminal, UnknownRun, WorkflowNotAnnounced
from ezgh_workflows_django.models import App, Lease, Project, Worker
from ezgh_workflows_django.protocol.states import LeaseStatus, RunStatus
from tests.api.server import Server

from .conftest import HEARTBEAT, MARGIN, TIMES, Folder, Process, until
from .proxy import Proxy
from .workers.workflows import crashing, gated, quick, where

pytestmark = [pytest.mark.process, pytest.mark.live]

SYSTEM = ("system", "test")
ALONE = "tests/process/workers/alone.py"


class Site:
    """A server, keys for it, workers that only know its address."""

    def __init__(self, env: Mapping[str, str], folder: Path, times: Mapping[str, int]) -> None:
        tenancy.provision()
        self._env = dict(env) | {"WORKFLOWS": json.dumps({**TIMES, **times})}
        self._folder = folder
        self._processes: list[Process] = []
        self._alone = only_httpx(folder / "alone")
        self.server = Server(self._env, folder / "server.log")
        self.url = f"{self.server.url}/"
        self.worker_key = self.key("worker")
        self.client = Client(self.url, self.key("write", "read"))

    def key(self, *grants: str) -> str:
        """A key with these policies."""
        return keys.create("test", grants, by=SYSTEM, project=Project.objects.get())[1]

    def restart(self) -> None:
        """Another server at the same address."""
        self.server.stop()
        port = str(self.server.port)
        self.server = Server(self._env, self._folder / "server-2.log", "--port", port)  # the last flag wins
        self.server.port, self.server.url = int(port), self.url.rstrip("/")
        self.server.wait_until_up()

    def script(self, name: str = "remote", url: str | None = None, key: str | None = None, **env: str) -> Process:
        """A worker in a plain script, with only the package and httpx; waits until it looks for work."""
        given = {"SERVER_URL": url or self.url, "SERVER_KEY": key or self.worker_key, "WORKER_NAME": name, "PYTHONPATH": str(self._alone)}
        sessions = Worker.objects.count()
        process = self._start(["-S", ALONE], given | env)  # nothing that is installed is found, but what lies in that folder
        until(lambda: Worker.objects.count() > sessions or not process.is_alive)
        return process

    def runworker(self, *flags: str) -> Process:
        """The command, for this server."""
        process = self._start(
            ["manage.py", "runworker", *flags], self._env | {"EXTRA_APPS": "tests.process.workers", "EZGH_WORKFLOWS_API_KEY": self.worker_key}
        )
        until(lambda: process.said(": ready") or not process.is_alive)
        return process

    def _start(self, arguments: list[str], env: Mapping[str, str]) -> Process:
        process = Process(arguments, env, self._folder / f"{len(self._processes)}.log")
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End everything."""
        self.client.close()
        for process in self._processes:
            process.close()
        self.server.close()


@pytest.fixture
def times() -> Mapping[str, int]:
    """Settings of the server; a test may have its own."""
    return {}


@pytest.fixture
def site(child_env: Mapping[str, str], tmp_path: Path, times: Mapping[str, int]) -> Iterator[Site]:
    """A live server; nothing of it outlives the test."""
    site = Site(child_env, tmp_path, times)
    try:
        site.server.wait_until_up()
        yield site
    finally:
        site.close()


@pytest.fixture
def proxied(site: Site) -> Iterator[Proxy]:
    """A way to the server on which things are lost."""
    proxy = Proxy(site.url)
    yield proxy
    proxy.close()


def started(client: Client, folder: Folder) -> Any:
    """A run of the script's gate, once a worker announces it."""
    try:
        return client.start("remote-gate", str(folder))
    except WorkflowNotAnnounced:
        return None


def only_httpx(folder: Path) -> Path:
    """A folder with the package, httpx and what httpx needs."""
    folder.mkdir()
    for name in ("ezgh_workflows_django", "httpx", "httpcore", "h11", "anyio", "idna", "certifi", "sniffio", "typing_extensions"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            place = Path(spec.origin)
            place = place.parent if place.name == "__init__.py" else place
            (folder / place.name).symlink_to(place)
    return folder


def held(site: Site, folder: Folder, run_id: str) -> Lease:
    """The lease of that run, once its body has begun."""
    until(lambda: folder.heard("begun"))
    return Lease.objects.get(run__pk=run_id)


def test_a_script_without_django_runs_steps_and_stops_at_once(site: Site) -> None:
    worker = site.script()
    runs = [site.client.start("remote-numbers", number) for number in range(20)]
    assert [run.result(timeout=30) for run in runs] == [(number + 1) * 2 for number in range(20)]
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0, worker.output
    with pytest.raises(WorkflowNotAnnounced):
        site.client.start("remote-numbers", 1)


def test_two_scripts_share_a_queue_and_each_task_goes_to_one(site: Site) -> None:
    site.script("one"), site.script("two")
    runs = [site.client.start("remote-numbers", number) for number in range(40)]
    assert [run.result(timeout=40) for run in runs] == [(number + 1) * 2 for number in range(40)]
    assert Lease.objects.filter(status=LeaseStatus.COMPLETED).count() == 80
    until(lambda: site.client.start("remote-numbers", 1) and set(Lease.objects.values_list("worker_name", flat=True)) == {"one", "two"})


def test_a_durable_function_keeps_results_waits_and_starts_children_from_afar(site: Site) -> None:
    site.script()
    run = site.client.start("remote-durable", 1, labels={"order": "A-1"}, idempotency_key="A-1")
    assert site.client.start("remote-durable", 1, labels={"order": "A-1"}, idempotency_key="A-1") == run
    until(lambda: run.phase == "waiting")
    with pytest.raises(ResultTimeout):
        run.result(timeout=0.1)
    receipt = site.client.emit("paid", 1, {"amount": 5}, event_id="e1")
    assert (receipt.known, site.client.emit("paid", 1, {"amount": 5}, event_id="e1").known) == (False, True)
    assert run.result(timeout=30) == {"first": 2, "paid": {"amount": 5}, "child": 6}


def test_a_transactional_step_of_a_durable_function_is_refused_by_name(site: Site) -> None:
    site.script()
    run = site.client.start("remote-books")
    with pytest.raises(RunFailed, match=r"post.*direct transport"):
        run.result(timeout=20)


def test_a_cancel_from_afar_reaches_a_body_afar(site: Site, folder: Folder) -> None:
    site.script()
    run = site.client.start("remote-gate", str(folder))
    held(site, folder, run.id)
    assert site.client.cancel(run.id, "not wanted any more") == RunStatus.CANCELLED
    until(lambda: folder.heard("stopped-run_terminal"), HEARTBEAT + MARGIN)
    with pytest.raises(RunTerminal):
        site.client.signal(run.id, "more")
    with pytest.raises(UnknownRun):
        site.client.cancel("00000000-0000-0000-0000-000000000000")


@pytest.mark.parametrize("times", [{"LEASE_TTL": 60}])
def test_a_body_outlives_a_restart_of_the_server_with_its_lease(site: Site, folder: Folder) -> None:
    """B38."""
    worker = site.script()
    run = site.client.start("remote-gate", str(folder))
    lease = held(site, folder, run.id)
    site.restart()
    extended_at = Lease.objects.get(pk=lease.pk).expires_at
    until(lambda: Lease.objects.get(pk=lease.pk).expires_at > extended_at)
    folder.say("go")
    assert run.result(timeout=20) == worker.pid
    assert [each.status for each in Lease.objects.filter(run__pk=run.id)] == [LeaseStatus.COMPLETED]


@pytest.mark.parametrize(
    ("lose", "call"),
    [
        (Proxy.lose_reply, "/register"),
        (Proxy.lose_reply, "/claim"),
        (Proxy.lose_reply, "/started"),
        (Proxy.lose_reply, "/complete"),
        (Proxy.lose_request, "/complete"),
    ],
    ids=["reply-register", "reply-claim", "reply-started", "reply-complete", "request-complete"],
)
def test_a_call_that_is_lost_is_made_again_and_no_body_runs_twice(
    site: Site, proxied: Proxy, folder: Folder, lose: Callable[[Proxy, str], None], call: str
) -> None:
    """B03, B37."""
    lose(proxied, call)
    site.script(url=proxied.url)
    folder.say("go")
    run = until(lambda: started(site.client, folder))
    pid = run.result(timeout=20)
    assert proxied.lost == [call]
    assert folder.heard("begun") == [pid]
    assert Lease.objects.filter(run__pk=run.id, started_at__isnull=False).count() == 1


def test_what_is_at_work_when_a_script_is_told_to_stop_is_handed_back(site: Site, folder: Folder) -> None:
    worker = site.script(GRACE="0.2")
    run = site.client.start("remote-gate", str(folder))
    lease = held(site, folder, run.id)
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0
    assert Lease.objects.get(pk=lease.pk).status == LeaseStatus.RETURNED
    assert folder.heard("stopped-shutdown") == [worker.pid]


def test_a_key_that_is_revoked_ends_its_worker_with_the_reason_and_a_code(site: Site) -> None:
    key = site.key("worker")
    worker = site.script(key=key)
    keys.revoke(key.split("_")[1], by=SYSTEM, project_id=Project.objects.get().pk)
    site.client.start("remote-numbers", 1)  # the held claim is answered, and the next call meets the refusal
    assert worker.ends(40) == 1
    assert "the server refuses this worker" in worker.output
    assert "make a key with `manage.py workflows_key create`" in worker.output
    assert key not in worker.output


def test_a_key_that_only_works_starts_nothing(site: Site) -> None:
    with Client(site.url, site.worker_key) as client, pytest.raises(Rejected, match=r"workflows\.runs\.start"):
        client.start("remote-numbers", 1)


def test_runworker_works_for_a_server_elsewhere(site: Site, folder: Folder) -> None:
    worker = site.runworker("--url", site.url, "--name", "afar")
    assert f"  server       {site.url}\n" in worker.output
    assert "  database" not in worker.output
    assert site.client.start(quick, 4).result(timeout=20) == 4  # its body asks the database, as bodies of a project do
    run = site.client.start(gated, str(folder))
    until(lambda: folder.heard("begun"))
    worker.send(signal.SIGTERM)
    folder.say("go")
    assert run.result(timeout=20) == worker.pid
    assert worker.ends() == 0
    assert site.worker_key not in worker.output


def test_runworker_runs_bodies_in_processes_for_a_server_elsewhere(site: Site, folder: Folder) -> None:
    worker = site.runworker("--url", site.url, "--processes", "2", "--except", "durable")
    crashed = site.client.start(crashing, "SIGSEGV")
    with pytest.raises(RunFailed, match="SIGSEGV"):
        crashed.result(timeout=30)
    assert site.client.start(where, str(folder)).result(timeout=20) not in (worker.pid, None)


def test_a_developer_works_for_an_app_of_his_own_on_a_server_elsewhere(site: Site, folder: Folder) -> None:
    flags = ["--url", site.url, "--dev", "--api-key", site.key("admin")]
    worker = site.runworker(*flags)
    app = App.objects.get(name__startswith="dev-")
    assert app.queue == app.name
    assert site.client.start(quick, 4, app=app.name).result(timeout=20) == 4
    assert f'EZGH_WORKFLOWS["DEFAULT_APP"] = "{app.name}"' in worker.output


def test_a_developers_app_is_made_in_the_project_that_is_named(site: Site) -> None:
    first = Project.objects.get()
    project = Project.objects.create(organization=first.organization, slug="billing", name="Billing", created_at=first.created_at)
    key = keys.create("dev", ["admin"], by=SYSTEM, project=project)[1]
    worker = site.runworker("--url", site.url, "--dev", "--project", "billing", "--api-key", key)
    assert App.objects.get(name__startswith="dev-").project == project, worker.output


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--url", "server:8000"], "--url: has to be the address of the server"),
        (["--url", "http://127.0.0.1:1/", "--api-key", "ezw a"], "--api-key: has to be a key"),
        (["--api-key", "ezw_a_b"], "--api-key: is for a server elsewhere"),
        (["--project", "billing"], "--project: is for a server elsewhere"),
    ],
)
def test_flags_that_cannot_be_are_refused(site: Site, flags: list[str], said: str) -> None:
    process = site.runworker(*flags)
    assert process.ends(30) == 1
    assert said in process.output
