"""Every call of the committed document, with what fits it and what does not, against a live server: no 5xx, no answer that the document has not.

For about half of the calls the ids are those of real things (`fuzzing`). One seed: the same calls each time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from ezgh_workflows_django.engine import keys, tenancy
from ezgh_workflows_django.models import Project
from tests.api.conftest import SYSTEM
from tests.api.server import Server
from tests.conftest import ROOT
from tests.invariant_guard import broken

LIMITS: Final = {"KEY_RATE": 0, "OFFER_TTL": 600, "LEASE_TTL": 600, "REQUEST_TIMEOUT": 1}
"""No call is refused for how often it comes, no lease ends by itself, none is held for long."""


@pytest.fixture
def fuzzed(child_env: Mapping[str, str], tmp_path: Path) -> Iterator[Server]:
    """A live server for it."""
    tenancy.provision()
    running = Server({**child_env, "WORKFLOWS": json.dumps(LIMITS)}, tmp_path / "server.log")
    try:
        running.wait_until_up()
        yield running
    finally:
        running.close()


@pytest.mark.fuzz
@pytest.mark.timeout(900)
def test_every_call_is_answered_as_the_document_says(fuzzed: Server, child_env: Mapping[str, str]) -> None:
    secret = keys.create("fuzz", ["admin"], by=SYSTEM, project=Project.objects.get(slug="default"))[1]
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file=tests/api/schemathesis.toml", "run", "docs/openapi.json"]
    env = {**child_env, "FUZZ_URL": fuzzed.url, "FUZZ_KEY": secret}
    told = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    print(told.stdout, told.stderr, fuzzed.log.read_text()[-20_000:])
    assert told.returncode == 0
    assert broken() == []
