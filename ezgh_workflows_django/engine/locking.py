"""Taking runs' locks: the run's row first, then whatever hangs on it.

No verb waits for a second run's lock: a group takes its locks with SKIP LOCKED, and what it could not take
is done alone, afterwards.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

from django.db import connections
from django.db.models import Model, QuerySet

from ..definitions.plan import Plan
from ..errors import UnknownRun, UnknownStep
from ..models import Run, Step
from . import catalog
from .clock import Now, read_at
from .transactions import QUERY_KEYS, batched, database
from .work import Work

M = TypeVar("M", bound=Model)

PAUSES: Final = (0.01, 0.03, 0.06)
"""Seconds between the tries of `insist`."""


@dataclass(slots=True)
class Held:
    """A run whose lock this transaction holds, what it runs, and the work that will be written."""

    run: Run
    plan: Plan
    work: Work
    _steps: dict[str, Step] = field(default_factory=dict)

    def steps(self, names: Iterable[str]) -> list[Step]:
        """The rows of these steps, each read once in this transaction: only the run's lock lets them change.

        Raises `UnknownStep`.
        """
        names = list(names)
        missing = [name for name in names if name not in self._steps]
        for chunk in batched(missing, QUERY_KEYS):
            self.adopt(Step.objects.using(database()).filter(run=self.run, name__in=chunk))
        absent = [name for name in names if name not in self._steps]
        if absent:
            raise UnknownStep(f"run {self.run.pk} has no step {', '.join(absent)}")
        return [self._steps[name] for name in names]

    def find(self, name: str) -> Step | None:
        """The row of one step, or None where the run has none of that name."""
        try:
            return self.steps([name])[0]
        except UnknownStep:
            return None

    def adopt(self, steps: Iterable[Step]) -> None:
        """Take rows that were read under this lock, so that they are not read again."""
        self._steps.update((step.name, step) for step in steps)

    def adopt_new(self, steps: Iterable[Step]) -> None:
        """Take rows read under this lock, but for those that are in hand already."""
        for step in steps:
            self._steps.setdefault(step.name, step)

    def forget_steps(self) -> None:
        """Write what is gathered and forget the rows: a bulk write is about to move them."""
        self.work.flush()
        self._steps.clear()

    @property
    def now(self) -> datetime:
        """The database's moment this transaction works with."""
        return self.work.now


def hold(run_id: uuid.UUID | str) -> Held:
    """Lock one run, waiting for whoever holds it.

    Raises `UnknownRun`. The caller is in a transaction, and calls `work.finish()` at its end.
    """
    run = locked(_runs().filter(pk=run_id)).first()
    if run is None:
        raise UnknownRun(f"there is no run {run_id}")
    return Held(run, catalog.plan_of(run), Work(read_at(run)))


def hold_if_free(run_id: uuid.UUID) -> Held | None:
    """As `hold`, but waiting for nobody: None where somebody holds the run. Raises `UnknownRun`."""
    held, _ = hold_free([run_id])
    if not held and not Run.objects.using(database()).filter(pk=run_id).exists():
        raise UnknownRun(f"there is no run {run_id}")
    return held.get(run_id)


def insist(act: Callable[[], bool]) -> bool:
    """Do what passes a held run over until it was done, or somebody holds the run for longer than a verb of it takes; says whether it was done.

    For after a commit, so that two verbs that meet by chance leave nothing to the next tick: a tenth of a second at most, outside any transaction.
    """
    for pause in PAUSES:
        if act():
            return True
        time.sleep(pause)
    return act()


def hold_free(run_ids: Iterable[uuid.UUID]) -> tuple[dict[uuid.UUID, Held], Work | None]:
    """Lock those of the runs that nobody holds, in id order. They share one `Work`; None where no run was free."""
    runs = list(locked(_runs().filter(pk__in=set(run_ids)).order_by("pk"), skip_locked=True))
    if not runs:
        return {}, None
    work = Work(max(map(read_at, runs)))
    return {run.pk: Held(run, catalog.plan_of(run), work) for run in runs}, work


def _runs() -> QuerySet[Run]:
    return Run.objects.using(database()).annotate(now=Now())


def locked(rows: QuerySet[M], *, skip_locked: bool = False) -> QuerySet[M]:
    """Rows to be read under their locks: FOR NO KEY UPDATE where the database has it; SQLite's transaction holds the whole file already."""
    features = connections[database()].features
    if not features.has_select_for_update:
        return rows
    return rows.select_for_update(skip_locked=skip_locked, no_key=features.has_select_for_no_key_update)
