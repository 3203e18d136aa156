"""The names of the testing kit: each is there, each is on the page, and those that need no Django ask for none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ezgh_workflows_django import testing
from tests.conftest import ROOT

ALONE = """
import sys
from ezgh_workflows_django import Step, Worker, Workflow
from ezgh_workflows_django.testing import ScriptedTransport, lease_of

flow = Workflow("flow", steps=[Step("work", run=lambda value: value + 1)])
lease = lease_of(flow, "work", 1)
server = ScriptedTransport(lease)
Worker(server, workflows=[flow], until_idle=True).run_sync()
print([outcome.output for outcome in server.outcomes[lease.id]], "django" in sys.modules)
"""


@pytest.mark.parametrize("name", testing.__all__)
def test_a_name_can_be_imported_and_is_on_the_page(name: str) -> None:
    assert getattr(testing, name).__name__ == name
    if name not in {"BodyStuck", "LabBlocked"}:  # errors, which say themselves what they mean
        assert name in (ROOT / "docs" / "testing.md").read_text()


def test_a_scripted_server_needs_no_django() -> None:
    shown = subprocess.run([sys.executable, "-c", ALONE], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (shown.stdout, shown.returncode) == ("[2] False\n", 0), shown.stderr
