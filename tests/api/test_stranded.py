"""Runs that no live worker serves: told in health and on the app's page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django.api import health
from ezgh_workflows_django.engine import apps
from ezgh_workflows_django.models import App, Worker
from tests.api.conftest import Caller
from tests.engine.graphs import job

HERE = "organizations/default/projects/default/apps/default"


@pytest.fixture(autouse=True)
def counter(monkeypatch: pytest.MonkeyPatch) -> health.StrandedCount:
    """A count of this test's own: the process keeps another."""
    made = health.StrandedCount()
    monkeypatch.setattr(health, "STRANDED", made)
    return made


def strand(api: Caller, *workflows: Any) -> list[Any]:
    """A run of each, which a worker announced that has left."""
    session = api.register(*workflows)
    runs = [workflow.start() for workflow in workflows]
    api.post(f"api/workers/{session.id}/leave")
    return runs


def test_health_counts_the_runs_that_no_live_worker_serves(api: Caller) -> None:
    api.register(job("served"))
    job("served").start()
    assert Caller(None).get("api/health").body["stranded"] == 0


def test_health_counts_those_of_every_app(api: Caller) -> None:
    strand(api, job("one"), job("two"))
    api.post("organizations/default/projects/default/apps", {"name": "reports"})
    api.register(job("three"), app="reports")
    api.post("api/runs", {"workflow": "three", "app": "reports"})
    Worker.objects.update(left_at=datetime(2024, 1, 1, tzinfo=UTC))
    assert Caller(None).get("api/health").body["stranded"] == 3


def test_health_counts_at_most_once_in_a_while_and_never_beyond_a_bound(api: Caller, counter: health.StrandedCount) -> None:
    strand(api, job("one"))
    now = 0.0
    assert counter.count(now) == 1
    strand(api, job("two"))
    with CaptureQueriesContext(connection) as asked:
        assert counter.count(now + health.COUNTED_EVERY - 0.1) == 1
    assert len(asked) == 0
    assert counter.count(now + health.COUNTED_EVERY) == 2
    assert apps.count_stranded(1) == 1


def test_the_apps_page_lists_them_the_newest_first(api: Caller) -> None:
    first, second = strand(api, job("one", revision="7"), job("two"))
    told = api.get(HERE).body
    assert told["stranded"] == 2
    assert [(each["id"], each["workflow"], each["version"], each["revision"], each["status"]) for each in told["stranded_runs"]] == [
        (second.id, "two", job("two").version, "1", "running"),
        (first.id, "one", job("one", revision="7").version, "7", "running"),
    ]
    assert datetime.fromisoformat(told["stranded_runs"][0]["created_at"]) > datetime.now(UTC) - timedelta(days=1)


def test_it_lists_so_many_and_counts_the_rest(api: Caller) -> None:
    session = api.register(job())
    job().start_many(range(apps.MOST_LISTED + 1))
    api.post(f"api/workers/{session.id}/leave")
    told = api.get(HERE).body
    assert (told["stranded"], len(told["stranded_runs"])) == (apps.MOST_LISTED + 1, apps.MOST_LISTED)


def test_it_costs_one_page_and_no_list_of_apps_anything_more(api: Caller) -> None:
    strand(api, job())
    assert "stranded_runs" not in api.get("organizations/default/projects/default/apps").body["apps"][0]
    app = App.objects.get(name="default")
    with CaptureQueriesContext(connection) as asked:
        list(apps.stranded(app))
    assert len(asked) == 2
