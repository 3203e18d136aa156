"""The conformance kit against a live server of ours, with durations so short that what only time shows is checked too."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from ezgh_workflows_django.conformance import Asked, run
from ezgh_workflows_django.conformance.catalogue import CHECKS
from ezgh_workflows_django.conformance.findings import Outcome
from ezgh_workflows_django.models import Announcement, ApiKey, Run
from ezgh_workflows_django.protocol.states import TERMINAL_RUN
from ezgh_workflows_django.worker.transports.http import Line
from tests.api.conftest import MakeKey
from tests.api.lies import Falsified, Forward, Told, leases, over_http, refusal, refused, together, unheard
from tests.api.server import Server
from tests.conftest import ROOT

pytestmark = [pytest.mark.process, pytest.mark.live, pytest.mark.timeout(300)]


@pytest.fixture
def workflows() -> Mapping[str, Any]:
    return {"LEASE_TTL": 4, "RECOVERY_WINDOW": 5, "HEARTBEAT": 1, "OFFER_TTL": 3, "REQUEST_TIMEOUT": 10}


def check(url: str, key: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """The kit in a process of its own, which has no Django settings."""
    command = [sys.executable, "-W", "error", "-m", "ezgh_workflows_django.conformance", "--url", url, *flags]
    env = {"EZGH_WORKFLOWS_API_KEY": key, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=280, check=False)


def test_our_server_keeps_every_promise(server: Server, key: MakeKey) -> None:
    secret = key("admin")
    done = check(server.url, secret, "--slow", "--json", "--timeout", "30")
    report = json.loads(done.stdout)
    others = {each["name"]: (each["reason"], each["seen"][-1:]) for each in report["checks"] if each["result"] != "passed"}
    assert (others, done.returncode) == ({}, 0), f"{others}\n{server.log.read_text()[-5000:]}"
    assert [each["name"] for each in report["checks"]] == list(CHECKS)
    assert secret not in done.stdout + done.stderr
    assert set(Run.objects.values_list("status", flat=True)) <= TERMINAL_RUN
    assert not Announcement.objects.exists()
    assert ApiKey.objects.filter(revoked_at=None).count() == 1
    assert report["left"][0] == "app conformance, made for this"


def test_a_server_that_gets_time_wrong_fails_every_check_that_waits(server: Server, key: MakeKey) -> None:
    fences = unheard("/heartbeat", refusal(409, "fenced"))
    lie = together(fences, leases(attempt=lambda attempt: attempt + 5), refused("run_terminal", refusal(409, "fenced")), unbounded)
    waiting = [each.name for each in CHECKS.values() if each.takes is not None]
    with httpx.Client(base_url=server.url, timeout=60) as client:

        def connect(key: str) -> Line:
            return Line(server.url, key, through=Falsified(lie, over_http(client)))

        report = run(connect(key("admin")), connect, Asked(app="default", only=waiting, timeout=30, slow=True))
    assert [result.check.name for result in report.results if result.outcome is not Outcome.FAILED] == []
    assert len(report.results) == len(waiting)


def unbounded(path: str, body: Any, forward: Forward) -> Told:
    """A claim that asks for too long a hold is an error."""
    return refusal(400, "invalid") if path.endswith("/claim") and body["wait_ms"] > 10_000 else forward(path, body)
