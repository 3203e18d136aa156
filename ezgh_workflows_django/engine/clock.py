"""The database's clock, which every stored moment is taken from and judged by.

Taken in a verb's first statement, never by a query of its own, and passed down as `now`.
On SQLite it is the host's clock: one file, one host. `freeze` is the test switch.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.db.models import DateTimeField, Func

_frozen: Callable[[], datetime] | None = None

# UTC_TIMESTAMP is the statement's start; SYSDATE goes on while a statement waits for a lock.
_MARIADB_NOW = "(UTC_TIMESTAMP(6) + INTERVAL TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) MICROSECOND)"


class _Moment(Func):
    """A moment of the database's clock, as an expression."""

    output_field = DateTimeField()
    sql: dict[str, str] = {}

    def as_sql(self, compiler: Any, connection: Any, **_: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        """The vendor's own function; a bound moment on SQLite and under a frozen clock."""
        own = self.sql.get(connection.vendor)
        if own is not None and _frozen is None:
            return own, []
        moment = connection.ops.adapt_datetimefield_value(_frozen() if _frozen else datetime.now(UTC))
        if connection.vendor == "postgresql":
            return "%s::timestamptz", [moment]
        if connection.vendor == "mysql":
            return "CAST(%s AS DATETIME(6))", [moment]
        return "%s", [moment]


class Now(_Moment):
    """The moment a row is read, after any wait for its lock: for select lists."""

    sql = {"postgresql": "clock_timestamp()", "mysql": _MARIADB_NOW}


class StatementNow(_Moment):
    """The moment a statement began: for predicates, where an index can use it."""

    sql = {"postgresql": "statement_timestamp()", "mysql": "UTC_TIMESTAMP(6)"}


def read_at(row: Any) -> datetime:
    """The moment a row was read, where its query asked for it: `annotate(now=Now())`."""
    moment: datetime = row.now
    return moment


def freeze(source: Callable[[], datetime] | None) -> None:
    """Let `source` tell the time to this process, or, with `None`, the database again. For tests."""
    global _frozen
    _frozen = source
