"""The API's own threads live as long as the process: every connection they have used is looked after, not the workflows' alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, connections
from django.db.utils import Error
from django.test import override_settings

from ezgh_workflows_django.api.threads import Threads


@pytest.fixture
def threads(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Threads]:
    """One thread of an API whose workflows are in a database of their own, beside `default`, where people and sessions are."""
    monkeypatch.setitem(connections.settings, "beside", {**connections.settings["default"]})
    one = Threads(1)
    with override_settings(EZGH_WORKFLOWS={**settings.EZGH_WORKFLOWS, "DATABASE": "beside"}):
        yield one
        one.close()


def ask() -> Any:
    """Something of `default`."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return cursor.fetchone()[0]


def cut() -> None:
    """The server goes away, and nobody tells this side."""
    ask()
    assert connection.connection is not None
    connection.connection.close()


def test_a_dead_connection_to_another_database_is_replaced_after_the_call_that_met_it(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("a file does not go away, and Django takes every connection to one for good")
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", None)
    threads.post(cut).result()
    with suppress(Error):  # not every client library lets it come to that
        threads.post(ask).result()
    assert threads.post(ask).result() == 1


@pytest.mark.parametrize(("age", "is_kept"), [(0, False), (None, True)])
def test_a_connection_to_another_database_is_kept_as_long_as_its_settings_say(
    threads: Threads, monkeypatch: pytest.MonkeyPatch, age: int | None, *, is_kept: bool
) -> None:
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", age)
    assert threads.post(ask).result() == 1
    assert threads.post(lambda: connection.connection is not None).result() is is_kept
