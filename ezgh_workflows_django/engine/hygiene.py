"""Looking after database connections in a process that lives for weeks.

The engine's own threads keep theirs open and try them after an error or an idle spell; around users' bodies Django's rules
hold (`CONN_MAX_AGE`), and a connection that died meanwhile is replaced before the body could meet it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator, Set
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connections, reset_queries
from django.utils import timezone, translation

from .transactions import database

_log = logging.getLogger("ezgh_workflows.worker")

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
    except (DatabaseError, InterfaceError):
        _suspect(connection)
        raise
    finally:
        _used(connection)


@contextlib.contextmanager
def other_databases() -> Iterator[None]:
    """Around a call on a thread that serves no request of Django's: its connections to all other databases are looked after as Django does around a request.

    Where hosts keep people, sessions and the rows of their signal receivers apart from workflows, nobody else would ever replace a dead one.
    """
    for connection in _of_others():
        connection.close_if_unusable_or_obsolete()
        _replace_if_dead(connection)
    try:
        yield
    finally:
        for connection in _of_others():
            connection.close_if_unusable_or_obsolete()
            _used(connection)


class BodyScope:
    """What surrounds a body: connections checked before and after, language and time zone as the settings have them.

    An async body gets a thread of its own for what is thread-sensitive, Django's async ORM above all, as a request of Django's ASGI handler does.
    Its connections are closed with that thread; a call that never returns keeps it, and no other body's.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._open: Set[str] = frozenset()
        self._context: Any = ThreadSensitiveContext()

    def __enter__(self) -> None:
        self._open = _transactions()
        _before_body(self._open)
        self._set_locale()

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        _after_body(self._open)

    async def __aenter__(self) -> None:
        await self._context.__aenter__()
        self._set_locale()

    async def __aexit__(self, *error: object) -> None:
        self._stack.close()
        if self._context in SyncToAsync.context_to_thread_executor:
            # The body is not over before its thread is free. Whoever cancels this goes on without that: the connections are closed all the same.
            await asyncio.shield(sync_to_async(_after_last_call)())
        await self._context.__aexit__(None, None, None)

    def _set_locale(self) -> None:
        self._stack.enter_context(translation.override(settings.LANGUAGE_CODE))
        self._stack.enter_context(timezone.override(None))


def _before_body(open_before: Set[str]) -> None:
    reset_queries()
    if open_before:
        return
    close_old_connections()
    for connection in connections.all(initialized_only=True):
        _replace_if_dead(connection)


def _after_body(open_before: Set[str]) -> None:
    reset_queries()
    for alias in _transactions() - open_before:
        _abandon(connections[alias])
    if open_before:
        return
    close_old_connections()
    for connection in connections.all(initialized_only=True):
        _used(connection)


def _after_last_call() -> None:
    for alias in _transactions():
        _abandon(connections[alias])
    connections.close_all()


def _transactions() -> Set[str]:
    """The databases to which this thread has a transaction open."""
    return {connection.alias for connection in connections.all(initialized_only=True) if connection.in_atomic_block}


def _abandon(connection: Any) -> None:
    """Close a connection with the transaction that a body has left open on it: what came after would be part of that, and lost with it."""
    _log.error(
        "a body has ended within a transaction that it left open on the database %s: the transaction is rolled back, and what the body wrote in it is lost. "
        "Look for an atomic() that is entered and not left, such as in a generator that is kept somewhere",
        connection.alias,
    )
    connection.in_atomic_block = connection.closed_in_transaction = False  # else Django keeps the connection for who entered the transaction
    with contextlib.suppress(DatabaseError, InterfaceError):  # it may be closed already
        connection.close()


def _of_others() -> list[Any]:
    return [each for each in connections.all(initialized_only=True) if each.alias != database() and not each.in_atomic_block]


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
