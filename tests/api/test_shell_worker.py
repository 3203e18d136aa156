"""The worker in POSIX shell of the docs: five calls carry a run to its end, on a live server, by a claim for that run alone."""

from __future__ import annotations

import subprocess

import httpx
import pytest

from ezgh_workflows_django import Sleep, Step, Workflow
from tests.api.conftest import MakeKey
from tests.api.server import Server
from tests.conftest import ROOT
from tests.engine.graphs import body
from tests.process.conftest import until

pytestmark = [pytest.mark.process, pytest.mark.live]

CHAIN = Workflow(
    "chain",
    [
        Step("first", run=body),
        Step("rest", sleep=Sleep(1), after=["first"]),
        Step("beside", run=body),
        Step("last", run=body, after=["rest", "beside"]),
    ],
)


def test_a_shell_carries_its_own_run_to_the_end(server: Server, remote: httpx.Client, key: MakeKey) -> None:
    remote.post("workers/register", json={"worker": "w", "app": "default", "definitions": [CHAIN.to_spec()]}).raise_for_status()
    run, other = (remote.post("runs", json={"workflow": "chain", "payload": n}).raise_for_status().json()["id"] for n in range(2))
    secret = key("worker")
    shell = subprocess.run(
        ["/bin/sh", "docs/workers/worker.sh", server.url, "default", "chain", "1", run],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "WORKFLOWS_API_KEY": secret},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (shell.returncode, shell.stderr) == (0, "")
    lines = shell.stdout.splitlines()
    assert sorted(lines) == ["beside 200", "first 200", "last 200"]
    assert lines[-1] == "last 200"
    until(lambda: remote.get(f"runs/{run}").json()["phase"] == "succeeded")
    assert remote.get(f"runs/{run}").json()["output"] == "last was done by a shell"
    assert remote.get(f"runs/{other}").json()["phase"] == "queued"
    assert secret not in shell.stdout + server.log.read_text()


def test_a_shell_whose_key_is_refused_says_so(server: Server) -> None:
    shell = subprocess.run(
        ["/bin/sh", "docs/workers/worker.sh", server.url, "default", "chain", "1", "none"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "WORKFLOWS_API_KEY": "ezw_wrong_wrong"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shell.returncode == 1
    assert shell.stderr.startswith("register: 401 ")
