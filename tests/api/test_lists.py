"""Lists cost as much with many rows as with few, count nothing and leave the large columns where they are (case B91, the API's part)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django import Cron
from ezgh_workflows_django.engine import following, tenancy
from tests.api.conftest import Caller
from tests.engine.graphs import job

PROJECT = "organizations/default/projects/default"
FEW, MANY = 3, 12
LISTS = (
    "api/runs?limit=50",
    "api/runs?status=succeeded&workflow=job&label.order=A-1",
    f"{PROJECT}/apps/default/runs",
    "api/runs/{run}/journal",
    "api/workflows",
    f"{PROJECT}/apps",
    f"{PROJECT}/apps/default",
    f"{PROJECT}/keys",
    f"{PROJECT}/trails",
)
LARGE = ("payload", "state", "output", "spec")


def grow(api: Caller, count: int) -> str:
    """So many runs more, each with an attempt, a trail row and a key; the last one's id."""
    session = api.register(job())
    for n in range(count):
        run = job().start({"n": n}, labels={"order": "A-1"})
        session.on(session.take(), "complete", {"output": n})
        api.get(f"api/runs/{run.id}")
        api.post(f"{PROJECT}/keys", {"name": f"key-{n}", "permissions": ["read"]})
    return str(run.id)


def asked(api: Caller, path: str) -> list[str]:
    """The statements of one list."""
    with CaptureQueriesContext(connection) as captured:
        told = api.get(path)
    assert told.status == 200, told.body
    return [str(each["sql"]) for each in captured.captured_queries]


def columns_of(sql: str) -> str:
    """What a statement selects."""
    return sql.partition(" FROM ")[0]


def test_a_list_costs_as_much_with_many_rows_as_with_few(api: Caller) -> None:
    run = grow(api, FEW)
    few = {path: asked(api, path.format(run=run)) for path in LISTS}
    grow(api, MANY)
    many = {path: asked(api, path.format(run=run)) for path in LISTS}
    assert {path: len(each) for path, each in many.items()} == {path: len(each) for path, each in few.items()}


@pytest.mark.parametrize("path", [path for path in LISTS if "runs" in path and "journal" not in path])
def test_a_list_of_runs_counts_nothing_and_reads_no_large_column(api: Caller, path: str) -> None:
    grow(api, 1)
    statements = [sql for sql in asked(api, path) if "ezgh_workflows_run" in sql]
    quoted: Any = [f"{mark}{name}{mark}" for name in LARGE for mark in ('"', "`")]
    assert statements
    assert not [sql for sql in statements if "COUNT(" in sql.upper()]
    assert not [sql for sql in statements if any(name in columns_of(sql) for name in quoted)]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("api/runs", "runs"),
        (f"{PROJECT}/apps/default/runs", "runs"),
        (f"{PROJECT}/apps", "apps"),
        (f"{PROJECT}/keys", "keys"),
        (f"{PROJECT}/apps/default/schedules", "schedules"),
        (f"{PROJECT}/trails", "trails"),
        ("api/prices", "prices"),
    ],
)
def test_a_list_is_read_page_by_page_the_newest_first(path: str, name: str, api: Caller) -> None:
    api.register(job("nightly", cron=[Cron(f"{minute} 2 * * *") for minute in range(5)]))
    following.run_once(tenancy.app_now(None)[1], 10)
    for n in range(5):
        job().start({"n": n})
        api.post(f"{PROJECT}/keys", {"name": f"key-{n}", "permissions": ["read"]})
        api.post(f"{PROJECT}/apps", {"name": f"app-{n}"})
        api.post("api/prices", {"unit": "seconds", "amount": "1", "effective_from": f"2026-01-0{n + 1}"})
    whole = api.get(f"{path}?limit=200").body
    assert whole["next"] is None
    assert len(whole[name]) >= 5
    found, cursor = [], ""
    while cursor is not None:
        told = api.get(f"{path}?limit=2{cursor and '&cursor='}{cursor}").body
        found += told[name]
        cursor = told["next"]
    assert found == whole[name]


@pytest.mark.parametrize("cursor", ["x", "AAAA", "MTAw" * 40, "OTk5OTk5OTk5OTk5OTk5OTk5OTk5", "MS41", "AA", "7aCA", "%C3%A9"])
@pytest.mark.parametrize("path", ["api/runs", f"{PROJECT}/apps", f"{PROJECT}/keys", f"{PROJECT}/apps/default/schedules", "api/prices"])
def test_a_cursor_that_no_page_gave_is_refused_by_name(path: str, cursor: str, api: Caller) -> None:
    told = api.get(f"{path}?cursor={cursor}")
    assert (told.status, list(told.body["error"]["fields"])) == (400, ["cursor"])
