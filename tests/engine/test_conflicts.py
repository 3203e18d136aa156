"""What the database asks to be tried again is tried again, from its start and by the outermost transaction only: each code, as its driver raises it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from ezgh_workflows_django.engine.transactions import ATTEMPTS, LostRace, verb

pytestmark = pytest.mark.usefixtures("transactional_db")

only_on = {
    vendor: pytest.mark.skipif(f"__import__('django.db').db.connection.vendor != '{vendor}'", reason=f"an error of {vendor}")
    for vendor in ("postgresql", "mysql", "sqlite")
}


def signal_postgres(code: str) -> None:
    """The server raises it."""
    with connection.cursor() as cursor:
        cursor.execute(f"DO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '{code}'; END $$")


def signal_mariadb(code: str) -> None:
    """The server raises it."""
    with connection.cursor() as cursor:
        cursor.execute(f"BEGIN NOT ATOMIC SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'on purpose'; END")


def signal_sqlite(code: str) -> None:
    """The driver raises it, through Django's own wrapper."""
    with connection.wrap_database_errors:
        raise sqlite3.OperationalError(code)


def lose_a_race(_: str) -> None:
    """A guarded write did not land."""
    raise LostRace("on purpose")


RETRIED = [
    pytest.param(signal_postgres, "40P01", marks=only_on["postgresql"], id="deadlock-40P01"),
    pytest.param(signal_postgres, "40001", marks=only_on["postgresql"], id="serialization-40001"),
    pytest.param(signal_mariadb, "1213", marks=only_on["mysql"], id="deadlock-1213"),
    pytest.param(signal_mariadb, "1205", marks=only_on["mysql"], id="lock-timeout-1205"),
    pytest.param(signal_mariadb, "1020", marks=only_on["mysql"], id="changed-since-read-1020"),
    pytest.param(signal_sqlite, "database is locked", marks=only_on["sqlite"], id="locked"),
    pytest.param(signal_sqlite, "database table is locked: ezgh_workflows_run", marks=only_on["sqlite"], id="table-locked"),
    pytest.param(lose_a_race, "", id="lost-race"),
]
NOT_RETRIED = [
    pytest.param(signal_postgres, "23505", marks=only_on["postgresql"], id="unique-23505"),
    pytest.param(signal_postgres, "57014", marks=only_on["postgresql"], id="cancelled-57014"),
    pytest.param(signal_mariadb, "1062", marks=only_on["mysql"], id="unique-1062"),
    pytest.param(signal_mariadb, "1064", marks=only_on["mysql"], id="syntax-1064"),
    pytest.param(signal_sqlite, "no such table: nowhere", marks=only_on["sqlite"], id="no-table"),
]


class Tries:
    """A verb that fails so many times, and counts its tries."""

    def __init__(self, fail: Callable[[str], None], code: str, times: int) -> None:
        self.count, self._fail, self._code, self._times = 0, fail, code, times

    @property
    def verb(self) -> Callable[[], str]:
        """As every verb of the engine is made."""
        return verb(self._once)

    def _once(self) -> str:
        self.count += 1
        if self.count <= self._times:
            self._fail(self._code)
        return "done"


@pytest.mark.parametrize(("fail", "code"), RETRIED)
def test_a_verb_that_meets_a_conflict_is_done_again_from_its_start(fail: Any, code: str) -> None:
    tries = Tries(fail, code, 2)
    assert (tries.verb(), tries.count) == ("done", 3)


@pytest.mark.parametrize(("fail", "code"), RETRIED)
def test_a_conflict_that_does_not_end_is_raised_in_the_end(fail: Any, code: str) -> None:
    tries = Tries(fail, code, ATTEMPTS)
    with pytest.raises((DatabaseError, LostRace)):
        tries.verb()
    assert tries.count == ATTEMPTS


@pytest.mark.parametrize(("fail", "code"), RETRIED)
def test_inside_a_callers_transaction_a_conflict_is_the_callers(fail: Any, code: str) -> None:
    tries = Tries(fail, code, 2)
    with pytest.raises((DatabaseError, LostRace)), transaction.atomic():
        tries.verb()
    assert tries.count == 1


@pytest.mark.parametrize(("fail", "code"), NOT_RETRIED)
def test_what_is_no_conflict_is_not_done_again(fail: Any, code: str) -> None:
    tries = Tries(fail, code, 1)
    with pytest.raises(DatabaseError):
        tries.verb()
    assert tries.count == 1


def test_what_is_no_error_of_the_database_is_not_done_again() -> None:
    tries = Tries(lambda _: (_ for _ in ()).throw(ValueError("a bug")), "", 1)
    with pytest.raises(ValueError, match="a bug"):
        tries.verb()
    assert tries.count == 1


def test_a_conflict_of_a_nested_verb_is_tried_again_by_the_outermost() -> None:
    tries = Tries(lose_a_race, "", 2)
    outer: list[int] = []

    @verb
    def around() -> str:
        outer.append(1)
        return tries.verb()

    assert (around(), len(outer), tries.count) == ("done", 3, 3)
