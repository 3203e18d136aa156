"""What happens between two statements of a call, without a second thread: a barrier that is the same every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection


@contextmanager
def after_reading(table: str, then: Callable[[], object]) -> Iterator[list[str]]:
    """Once the first SELECT from that table has been read, and before the next statement, do something else. Gives the SELECT, as proof that it came.

    For tests inside a transaction: there every verb begins with a savepoint, so what is done between comes before it.
    """
    met: list[str] = []
    done: list[str] = []

    def pause(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if met and not done:
            done.append(sql)
            then()
        if not met and sql.startswith("SELECT") and connection.ops.quote_name(table) in sql:
            met.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(pause):
        yield met
