"""Looking after database connections in a process that lives for weeks.

The engine's own threads keep theirs open and try them after an error or an idle spell; around users' bodies Django's rules
hold (`CONN_MAX_AGE`), and a connection that died meanwhile is replaced before the body could meet it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections, connections, reset_queries
from django.utils import timezone, translation

from .transactions import database

IDLE = 15.0
"""Seconds a connection may lie idle before it is tried out, at the cost of one round trip."""


@contextlib.contextmanager
def engine_call() -> Iterator[None]:
    """Around one call of the engine: the calling thread's connection is in order before, and known to be suspect after an error.

    Does nothing to a connection that is inside a transaction of somebody else's (a test's).
    """
    connection = connections[database()]
    if connection.in_atomic_block:
        yield
        return
    reset_queries()
    _replace_if_dead(connection)
    try:
        yield
    except DatabaseError:
        _suspect(connection)
        raise
    finally:
        _used(connection)


class BodyScope:
    """What surrounds a body: connections checked before and after, language and time zone as the settings have them.

    For an async body the connections are those of the thread that Django runs its async ORM in.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> None:
        _before_body()
        self._set_locale()

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        _after_body()

    async def __aenter__(self) -> None:
        await sync_to_async(_before_body)()
        self._set_locale()

    async def __aexit__(self, *error: object) -> None:
        self._stack.close()
        await sync_to_async(_after_body)()

    def _set_locale(self) -> None:
        self._stack.enter_context(translation.override(None))
        self._stack.enter_context(timezone.override(None))


def _before_body() -> None:
    reset_queries()
    if _in_somebodys_transaction():
        return
    close_old_connections()
    for connection in connections.all(initialized_only=True):
        _replace_if_dead(connection)


def _after_body() -> None:
    reset_queries()
    if _in_somebodys_transaction():
        return
    close_old_connections()
    for connection in connections.all(initialized_only=True):
        _used(connection)


def _in_somebodys_transaction() -> bool:
    return any(connection.in_atomic_block for connection in connections.all(initialized_only=True))


def _replace_if_dead(connection: Any) -> None:
    """Close a connection that is suspect or has lain idle, if it does not answer: Django opens another at the next query."""
    if connection.connection is None:
        return
    suspect = connection.errors_occurred or time.monotonic() - getattr(connection, "_ezw_used_at", 0.0) > IDLE
    if suspect and not connection.is_usable():
        connection.close()
    connection.errors_occurred = False


def _suspect(connection: Any) -> None:
    connection.errors_occurred = True


def _used(connection: Any) -> None:
    connection._ezw_used_at = time.monotonic()
