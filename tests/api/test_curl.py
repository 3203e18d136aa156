"""The `curl` that users of the hosted service know creates an app here too: only its host, the ids and the key are others."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ezgh_workflows_django.models import App
from tests.api.conftest import MakeKey
from tests.api.server import Server

pytestmark = [pytest.mark.process, pytest.mark.live]

COMMAND = r"""curl -X POST "https://workflows-api.ezghcloud.com/v1/organizations/$EZGH_ORG_ID/projects/$EZGH_PROJECT_ID/apps" \
  -H "Authorization: Bearer $EZGH_API_KEY" -H "Content-Type: application/json" \
  -d '{"name": "reports", "kind": "pull", "queue": "default", "partitions": 8}'
"""


def test_the_curl_of_the_hosted_service_creates_an_app(server: Server, key: MakeKey, tmp_path: Path) -> None:
    (tmp_path / ".curlrc").write_text('silent\nshow-error\nwrite-out = "\\n%{http_code}"\n')
    done = subprocess.run(
        ["/bin/sh", "-c", COMMAND.replace("https://workflows-api.ezghcloud.com", server.url)],
        env={
            "PATH": "/usr/bin:/bin",
            "CURL_HOME": str(tmp_path),
            "EZGH_ORG_ID": "default",
            "EZGH_PROJECT_ID": "default",
            "EZGH_API_KEY": key("workflows.apps.create"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told, status = done.stdout.rsplit("\n", 1)
    assert status == "201", told
    answer = json.loads(told)
    assert {name: answer[name] for name in ("name", "kind", "queue", "partitions")} == {
        "name": "reports",
        "kind": "pull",
        "queue": "default",
        "partitions": 8,
    }
    app = App.objects.get(name="reports")
    assert (app.queue, app.partitions, app.project.slug) == ("default", 8, "default")
