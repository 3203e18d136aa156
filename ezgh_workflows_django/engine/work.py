"""One transaction's writes, gathered and sent in as few statements as they allow.

Rows that change alike are written by one guarded UPDATE: each by its key and the status it was read with.
A write that does not land raises `LostRace`, and the verb is run again from its start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from django.db import models, transaction

from ..models import JournalEntry, Lease, Run, Step
from ..models.fields import JsonTextField
from ..protocol import codec
from . import moves, wakeups
from .transactions import QUERY_KEYS, LostRace, batched, database

T = TypeVar("T")
M = TypeVar("M", bound=models.Model)
_GUARDED = (Run, Step, Lease)

AT_ONCE: Final = 2 * 1024 * 1024
"""How many characters of JSON one INSERT holds, but for a row that has more: up to four times as many bytes, and MariaDB takes 16 MiB at once."""


class Work:
    """What one transaction will write. Verbs move rows through it; nothing else assigns a status."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self._guards: dict[tuple[type[models.Model], Any], str | None] = {}
        self._rows: dict[tuple[type[models.Model], Any], models.Model] = {}
        self._changes: dict[tuple[type[models.Model], Any], dict[str, Any]] = {}
        self._new: dict[int, models.Model] = {}
        self._journal: list[JournalEntry] = []
        self._told: list[moves.Move] = []
        self._after: list[Callable[[], object]] = []
        self._together: dict[Callable[[list[Any]], object], list[Any]] = defaultdict(list)
        self._awake: set[int] = set()
        self._read: dict[Hashable, Any] = {}

    def insert(self, rows: Iterable[models.Model]) -> None:
        """Insert rows with the next flush; until then what moves them only sets their fields."""
        self._new.update((id(row), row) for row in rows)

    def move(self, row: models.Model, **fields: Any) -> None:
        """Change a row that was read under its run's lock; the row in hand shows the new values at once."""
        if id(row) in self._new:
            return _set(row, fields)
        key = (type(row), row.pk)
        if key not in self._guards:
            self._guards[key] = getattr(row, "status", None) if isinstance(row, _GUARDED) else None
            self._rows[key] = row
            self._changes[key] = {}
        self._changes[key].update(fields)
        return _set(row, fields)

    def record(self, run: Run, kind: str, *, step: str = "", attempt: int | None = None, worker: str = "", **data: Any) -> None:
        """Append to the run's journal. The run's lock is held, so its sequence has no gap and no double."""
        self.move(run, journal_seq=run.journal_seq + 1)
        text = codec.dumps(data, limit=None, what="journal") if data else "{}"
        self._journal.append(JournalEntry(run=run, seq=run.journal_seq, kind=kind, at=self.now, step=step, attempt=attempt, worker=worker, data=text))
        if moves.is_told(kind):
            self._told.append(moves.of_journal(run, kind, self.now, step, attempt, worker, data))

    def once(self, what: Hashable, read: Callable[[], T]) -> T:
        """What `read` gives, read once in this transaction: for things that many of its rows need, and no run's lock guards."""
        if what not in self._read:
            self._read[what] = read()
        found: T = self._read[what]
        return found

    def after(self, callback: Callable[[], object]) -> None:
        """Do this once the transaction has committed; an error in it is logged, never raised."""
        self._after.append(callback)

    def after_together(self, callback: Callable[[list[Any]], object], item: Any) -> int:
        """As `after`, once for all the items that this transaction has for the callback; returns how many it had before this one."""
        self._together[callback].append(item)
        return len(self._together[callback]) - 1

    def wake(self, app_id: int) -> None:
        """After the commit, tell whoever waits for this app's work to look."""
        self._awake.add(app_id)

    def flush(self) -> None:
        """Write what has been gathered. Called before a read that must see it, and at the end."""
        self._insert_new()
        for (model, guard, names), members in self._grouped().items():
            self._write(model, guard, names, members)
        self._guards.clear()
        self._rows.clear()
        self._changes.clear()
        if self._journal:
            _insert(JournalEntry, self._journal)
            self._journal = []

    def finish(self) -> None:
        """Write, and hand over what is to be done after the commit."""
        self.flush()
        awake, after, told = frozenset(self._awake), tuple(self._after), tuple(self._told)
        if told:
            after_commit(lambda: moves.tell(told))
        if awake:
            after_commit(lambda: wakeups.notify(awake))
        for callback in after:
            after_commit(callback)
        for together, items in self._together.items():
            after_commit(partial(together, items))

    def _insert_new(self) -> None:
        by_model: dict[type[models.Model], list[models.Model]] = defaultdict(list)
        for row in self._new.values():
            by_model[type(row)].append(row)
        self._new = {}
        for model, rows in by_model.items():
            _insert(model, rows)

    def _grouped(self) -> dict[tuple[type[models.Model], str | None, tuple[tuple[str, Any], ...]], list[Any]]:
        groups: dict[tuple[type[models.Model], str | None, tuple[tuple[str, Any], ...]], list[Any]] = defaultdict(list)
        for key, fields in self._changes.items():
            groups[key[0], self._guards[key], tuple(sorted(fields.items()))].append(key[1])
        return groups

    def _write(self, model: type[models.Model], guard: str | None, fields: tuple[tuple[str, Any], ...], keys: list[Any]) -> None:
        for chunk in batched(keys, QUERY_KEYS):
            rows = model._default_manager.using(database()).filter(pk__in=chunk)
            if guard is not None:
                rows = rows.filter(status=guard)
            if rows.update(**dict(fields)) != len(chunk):
                raise LostRace(f"{model.__name__} {chunk[0]}…: no longer {guard}")


def _insert(model: type[models.Model], rows: Sequence[models.Model]) -> None:
    for some in _slices(rows, [field.attname for field in model._meta.concrete_fields if isinstance(field, JsonTextField)]):
        model._default_manager.using(database()).bulk_create(some)


def _slices(rows: Sequence[M], of_json: Sequence[str]) -> Iterator[Sequence[M]]:
    """The rows in order, in slices of at most `AT_ONCE`."""
    begin = size = 0
    for place, row in enumerate(rows):
        of_row = sum(len(getattr(row, name) or "") for name in of_json)
        if size + of_row > AT_ONCE and place > begin:
            yield rows[begin:place]
            begin, size = place, 0
        size += of_row
    yield rows[begin:]


def _set(row: models.Model, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        setattr(row, name, value)


def after_commit(callback: Callable[[], object]) -> None:
    """Run a callback once the caller's transaction has committed, or now where there is none."""
    transaction.on_commit(callback, using=database(), robust=True)
