"""The one writer that a SQLite file has: how a transaction becomes it as it begins, and how long it waits for that. Other databases have no such thing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.db import OperationalError

from ..models import App

_BUSY: Final = 5
_BUSY_SNAPSHOT: Final = 517
_LOOK_AGAIN_SECONDS: Final = 0.02


class WriterBusy(Exception):
    """Another connection has been the file's writer for longer than the caller would wait; nothing was begun."""


@contextmanager
def begins_as_writer(connection: Any, within: float | None) -> Iterator[None]:
    """Let the transaction that the block begins take the write lock at once, so that it never has to upgrade a read lock.

    It waits for the lock as long as the connection does, or at most `within` seconds: then it raises `WriterBusy`.
    """
    connection.ensure_connection()
    mode, connection.transaction_mode = getattr(connection, "transaction_mode", None), "IMMEDIATE"
    try:
        with _bounded(connection, within):
            _use_wal(connection)
            yield
    except OperationalError as error:
        if within is None or not _is_held(error):
            raise
        raise WriterBusy from error
    finally:
        connection.transaction_mode = mode


def become_writer(connection: Any, within: float) -> None:
    """Take the write lock inside a transaction that somebody else began. Raises `WriterBusy` after `within` seconds.

    A transaction that has read and was overtaken by another's commit can never write: it gets the database's own error, at once.
    """
    if connection.transaction_mode in ("IMMEDIATE", "EXCLUSIVE"):
        return  # it has had the lock since it began
    until = time.monotonic() + within
    with _bounded(connection, within):
        while not _is_writer(connection):
            # SQLite waits by itself only where the transaction has not read yet.
            if time.monotonic() >= until:
                raise WriterBusy
            time.sleep(_LOOK_AGAIN_SECONDS)


def _is_writer(connection: Any) -> bool:
    """Whether a statement that changes no row could take the lock."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(App._meta.db_table)} WHERE 0")  # noqa: S608 - a name of our own
    except OperationalError as error:
        if not _is_held(error):
            raise
        return False
    return True


def _is_held(error: OperationalError) -> bool:
    """Whether the lock is another's; not where this transaction's view of the file is too old to write on."""
    code: int = getattr(error.__cause__, "sqlite_errorcode", 0)
    return code & 0xFF == _BUSY and code != _BUSY_SNAPSHOT


@contextmanager
def _bounded(connection: Any, within: float | None) -> Iterator[None]:
    """Set SQLite's own patience for the block, on the bare connection: a transaction that is to be rolled back gets its own again too."""
    if within is None:
        yield
        return
    bare = connection.connection
    [before] = bare.execute("PRAGMA busy_timeout").fetchone()
    bare.execute(f"PRAGMA busy_timeout = {max(0, round(within * 1000))}")
    try:
        yield
    finally:
        bare.execute(f"PRAGMA busy_timeout = {before}")


def _use_wal(connection: Any) -> None:
    """Switch the file to write-ahead logging once per connection: readers and the writer stop blocking each other."""
    if getattr(connection, "_ezw_wal_of", None) is connection.connection:
        return
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA journal_mode=WAL")
    connection._ezw_wal_of = connection.connection
