"""No text is cut off, on a database that would do so without a word: every text of every call is kept whole, or refused by name (case B53).

MariaDB without its strict mode cuts off what is too long for a column, and two keys that begin alike become one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.db import DataError, connection, transaction

from ezgh_workflows_django.api.samples import SAMPLES
from ezgh_workflows_django.models import Project
from tests.api.conftest import Caller
from tests.engine.graphs import job

HERE = "organizations/default/projects/default"
LONG = "k" * 300
"""Longer than any column of names or ids, and than no payload."""

CUT_OFF = {1264, 1265, 1366, 1406}
"""MariaDB's warnings that a value was changed to fit its column: out of range, truncated, incorrect, too long."""


@pytest.fixture
def cut_off(db: None) -> Iterator[list[Any]]:
    """What the database has cut off: it may do so now, where it is MariaDB."""
    found: list[Any] = []
    if connection.vendor != "mysql":
        yield found
        return

    def watch(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        raw = connection.connection
        if raw.warning_count():
            with raw.cursor() as cursor:
                cursor.execute("SHOW WARNINGS")
                found.extend((*warning, sql) for warning in cursor.fetchall() if warning[1] in CUT_OFF)
        return result

    with connection.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.sql_mode")
        before = cursor.fetchone()[0]
        cursor.execute("SET SESSION sql_mode = ''")
    with connection.execute_wrapper(watch):
        yield found
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = %s", [before])


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Where in it a text stands, and each name in its objects (as a pair of the name and None)."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        if isinstance(key, str):
            yield ((key, None),)
        yield from ((key, *rest) for rest in places(each))
    if isinstance(value, str):
        yield ()


def with_text(value: Any, place: tuple[Any, ...], text: str) -> Any:
    """The same, with this text there."""
    if not place:
        return text
    changed = copy.copy(value)
    if isinstance(place[0], tuple):
        changed[text] = changed.pop(place[0][0])
    else:
        changed[place[0]] = with_text(value[place[0]], place[1:], text)
    return changed


CALLS: dict[str, Any] = {
    "api/runs": {"workflow": "job", "labels": {"a": "b"}, "idempotency_key": "i", "correlation_id": "c", "app": "default", "payload": {"a": "b"}},
    "api/events": {"name": "paid", "key": "A-1", "payload": {"a": "b"}, "id": "e"},
    "api/runs/{run}/signal": {"name": "paid", "payload": {"a": "b"}},
    "api/runs/{run}/cancel": {"reason": "enough"},
    "api/runs/{run}/pause": {"reason": "look"},
    "api/workers/register": {"worker": "w", "app": "default", "host": "h", "release": "r", "definitions": [SAMPLES["Definition"]]},
    "api/steps/claim": SAMPLES["Claim"],
    "api/steps/{lease}/heartbeat": {"progress": "half"},
    "api/steps/{lease}/complete": SAMPLES["Complete"],
    "api/steps/{lease}/fail": SAMPLES["Fail"],
    "api/steps/{lease}/suspend": SAMPLES["Suspend"],
    "api/steps/{lease}/checkpoint": SAMPLES["Checkpoint"],
    "api/steps/{lease}/children": SAMPLES["Children"],
    f"{HERE}/keys": {"name": "bot", "permissions": ["read"]},
    f"{HERE}/apps": {"name": "second", "kind": "pull"},
}


def test_what_is_cut_off_is_seen(project: Project, cut_off: list[Any]) -> None:
    """By the fixture: else the next test could not fail on MariaDB."""
    with suppress(DataError), transaction.atomic():
        Project.objects.update(name=LONG)
    assert bool(cut_off) == (connection.vendor == "mysql")


@pytest.mark.long
@pytest.mark.parametrize("call", CALLS)
def test_a_text_is_kept_whole_or_refused(api: Caller, cut_off: list[Any], call: str) -> None:
    session = api.register(job())
    for number, place in enumerate(places(CALLS[call])):
        at = {}
        if "{run}" in call or "{lease}" in call:
            at["run"] = api.post("api/runs", {"workflow": "job", "idempotency_key": f"of {number}"}).body["id"]
        if "{lease}" in call:
            at["lease"] = session.take()["id"]
        told = api.post(call.format(**at), with_text(CALLS[call], place, LONG))
        assert told.status in (200, 201, 400, 404, 409, 413), (place, told.body)
        assert cut_off == [], place
