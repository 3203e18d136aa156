"""Inserting a row whose unique key another transaction may be taking at this moment: who comes second gets the first one's row.

Where the first one rolls back, the second one's row is inserted after all. The caller's transaction survives either.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from django.db import DatabaseError, IntegrityError, connections, models, transaction

from .transactions import database

R = TypeVar("R", bound=models.Model)

LONGEST_WAIT_SECONDS = 50.0
"""How long an insert is tried again where its caller names no bound: what the databases themselves wait."""
_LOOK_AGAIN_SECONDS = 0.02
_LOCK_TIMEOUT_SQLSTATE = "55P03"
_LOCK_TIMEOUT_ERRNO = 1205


def insert_or_find(row: R, find: Callable[[], R | None]) -> R:
    """Insert a row, or give back the one that `find` finds by its key. Waits as the database waits; a deadlock is its verb's."""
    try:
        with transaction.atomic(using=database()):
            row.save(using=database(), force_insert=True)
    except IntegrityError:
        found = find()
        if found is None:
            raise
        return found
    return row


def insert_or_find_in_callers(row: R, find: Callable[[], R | None], *, within: float | None = None) -> R:
    """As `insert_or_find`, for keys that callers choose and use in transactions of their own, which no deadlock must undo.

    Waits for a transaction that has taken the key and not ended, at most `within` seconds: then it raises the database's
    error, which `is_lock_timeout` knows.
    """
    until = time.monotonic() + (LONGEST_WAIT_SECONDS if within is None else within)
    while True:
        try:
            with _bounded_wait(within):
                return insert_or_find(row, find)
        except DatabaseError as error:
            if not is_lock_timeout(error) or time.monotonic() >= until:
                raise
        time.sleep(_LOOK_AGAIN_SECONDS)


def is_lock_timeout(error: DatabaseError) -> bool:
    """Whether a statement gave up waiting for a lock."""
    return getattr(error.__cause__, "sqlstate", None) == _LOCK_TIMEOUT_SQLSTATE or error.args[:1] == (_LOCK_TIMEOUT_ERRNO,)


@contextlib.contextmanager
def _bounded_wait(within: float | None) -> Iterator[None]:
    """Bound how long a statement waits for a lock. On SQLite the whole file has one writer, and this is it already.

    On MariaDB the insert does not wait at all, it is tried again: inserts that wait hold shared locks, and two of them are a
    deadlock as soon as the transaction they wait for rolls back, which would undo their callers' transactions (case B88).
    """
    connection = connections[database()]
    bounds: dict[str, tuple[str, str, str | int | None]] = {
        "postgresql": ("SELECT current_setting('lock_timeout')", "SELECT set_config('lock_timeout', %s, true)", None if within is None else f"{within}s"),
        "mysql": ("SELECT @@innodb_lock_wait_timeout", "SET SESSION innodb_lock_wait_timeout = %s", 0),
    }
    read, write, bound = bounds.get(connection.vendor, ("", "", None))
    if bound is None:
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute(read)
        before = cursor.fetchone()[0]
        cursor.execute(write, [bound])
    try:
        yield
    finally:
        if not connection.needs_rollback:
            with connection.cursor() as cursor:
                cursor.execute(write, [before])
