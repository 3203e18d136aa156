"""One verb, one transaction: begun right on each database, and tried again where the database asks for it.

Only the outermost transaction is tried again: on MariaDB a deadlock has rolled back all of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from django.db import DatabaseError, OperationalError, connections, transaction

from ..conf import app_settings
from ..errors import PayloadTooLarge
from . import writer

P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS = 12
QUERY_KEYS = 5_000
"""How many keys one statement names at most: SQLite bounds a statement's parameters."""
_RETRY_ERRNO = frozenset({1213, 1205, 1020})
_TOO_LARGE_ERRNO = 1153
_RETRY_SQLSTATE = frozenset({"40P01", "40001"})


class LostRace(Exception):
    """A guarded write did not land: the rows moved since they were read. The transaction is tried again."""


def database() -> str:
    """The alias that all workflow tables live in."""
    return str(app_settings.DATABASE)


def is_outermost() -> bool:
    """Whether a transaction begun now would be the caller's first."""
    return not connections[database()].in_atomic_block


def is_conflict(error: BaseException) -> bool:
    """Whether trying the whole transaction again may help: a deadlock, a lock timeout, a busy SQLite file."""
    if isinstance(error, LostRace):
        return True
    if not isinstance(error, DatabaseError):
        return False
    cause = error.__cause__
    if getattr(cause, "sqlstate", None) in _RETRY_SQLSTATE:
        return True
    if _errno(error) in _RETRY_ERRNO:
        return True
    return "database is locked" in str(error) or "database table is locked" in str(error)


def _errno(error: BaseException) -> object:
    return error.args[0] if isinstance(error, OperationalError) and error.args else None


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in slices of at most `size`."""
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]


@contextmanager
def write_transaction(*, within: float | None = None) -> Iterator[None]:
    """A transaction that will write. On SQLite it takes the write lock as it begins, so it never has to upgrade a read lock.

    Inside a caller's transaction it is a savepoint: what is refused leaves nothing, and the caller's goes on. With `within` it
    waits for SQLite's one writer that many seconds at most, then raises `WriterBusy`; what comes after waits as ever.
    """
    alias = database()
    connection: Any = connections[alias]
    with ExitStack() as begun:
        if connection.vendor == "sqlite" and not connection.in_atomic_block:
            with writer.begins_as_writer(connection, within):
                begun.enter_context(transaction.atomic(using=alias))
        else:
            if connection.vendor == "sqlite" and within is not None:
                writer.become_writer(connection, within)
            begun.enter_context(transaction.atomic(using=alias))
        yield


def verb(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function one transaction. Its body must be able to run again from its start: it is, after a conflict."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return carry_out(partial(function, *args, **kwargs))

    return run


def carry_out(call: Callable[[], T], *, within: float | None = None) -> T:
    """Make a call one transaction, as `verb` does. Raises `WriterBusy` where all its tries waited `within` seconds for SQLite's writer.

    Raises `PayloadTooLarge` for a statement that MariaDB finds too large. Where it hangs up before it says so, nobody can tell.
    """
    until = None if within is None else time.monotonic() + within
    tries = ATTEMPTS if is_outermost() else 1
    for attempt in range(tries):
        try:
            with write_transaction(within=None if until is None else max(0.0, until - time.monotonic())):
                return call()
        except (DatabaseError, LostRace) as error:
            if _errno(error) == _TOO_LARGE_ERRNO:
                raise PayloadTooLarge("payload", f"is more than the database takes at once ({error}): keep it elsewhere and pass its address") from error
            if not is_conflict(error) or attempt == tries - 1:
                raise
            _back_off(attempt)
    raise AssertionError("unreachable")  # pragma: no cover - the last attempt returns or raises


def _back_off(attempt: int) -> None:
    """Wait a little, longer each time, so that two who met do not meet again."""
    time.sleep(random.uniform(0.001, 0.005) * 2 ** min(attempt, 6))  # noqa: S311 - spreads retries, no secret
