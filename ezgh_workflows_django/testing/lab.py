"""`Lab`: the real engine on the test's own database, on a clock the test moves. No second process, no sleeping, no fake engine."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connections

from .. import clock as worker_clock
from ..definitions.graph import Workflow
from ..definitions.registry import registry
from ..engine import clock, invariants, maintenance
from ..engine.handles import RunHandle
from ..engine.transactions import database
from ..models import JournalEntry, Tick
from . import due
from .lab_worker import LabWorker, Line
from .replays import broken_replays

logger = logging.getLogger("ezgh_workflows.testing")

START = datetime(2024, 1, 1, 9, 0, tzinfo=UTC)
"""A Monday morning: where a lab's clock stands unless told otherwise."""

ROUNDS = 100_000
"""How often a lab looks at one moment for more to do, before it says that this never ends."""


class LabBlocked(AssertionError):
    """`run_until_idle` ended with bodies that wait on `ctx`: move the clock, cancel their runs, or use `run_until_blocked`."""


class Lab:
    """A fleet, a clock and an outside world for one test; a context manager.

    `now` is an aware datetime or ISO text. `workflows` are what this lab knows and its worker serves; without them, all that this
    project registered. Works inside `TestCase` and outside, on every database. Labs do not nest.
    """

    _open: Lab | None = None

    def __init__(self, now: datetime | str = START, workflows: Sequence[Workflow] | None = None, *, app: str = "default") -> None:
        self.now = datetime.fromisoformat(now) if isinstance(now, str) else now
        if self.now.tzinfo is None:
            raise ValueError(f"{now}: a lab's clock needs a time zone, such as 2024-01-01T09:00Z")
        self.workers: list[LabWorker] = []
        self._killed: list[LabWorker] = []
        self._line = Line(lambda: self.now)
        self._workflows = workflows
        self._app = app

    def __enter__(self) -> Lab:
        if Lab._open is not None:
            raise RuntimeError("a lab is open already, and there is one clock: close it first")
        Lab._open = self
        began = self.now
        self._registered = registry.swap() if self._workflows is not None else None
        clock.freeze(lambda: self.now)
        worker_clock.set_source(lambda: (self.now - began).total_seconds())
        self._callbacks_before = len(connections[database()].run_on_commit)
        try:
            self._furnish()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def worker(self, name: str, workflows: Sequence[Workflow] | None = None, *, app: str | None = None) -> LabWorker:
        """One more worker, serving these workflows; without any, all that the lab knows."""
        made = LabWorker(name, list(registry) if workflows is None else workflows, app or self._app, self._line)
        self.workers.append(made)
        return made

    def kill(self, worker: LabWorker) -> None:
        """End a worker as SIGKILL does: not a line of its bodies runs on, its heartbeats stop, its leases go the way of lost ones."""
        self.workers.remove(worker)
        self._killed.append(worker)

    def drop_reply(self) -> None:
        """Lose the answer to the next outcome that a worker of the lab reports: it lands, and is posted again."""
        self._line.drops_reply = True

    def run_until_idle(self) -> None:
        """Let everything happen that can at this moment. Raises `LabBlocked` where bodies still wait on `ctx`."""
        self.run_until_blocked()
        waiting = [turn.name for worker in self.workers for turn in worker.turns]
        if waiting:
            raise LabBlocked(f"bodies wait on ctx at {self.now:%a %Y-%m-%d %H:%M:%S}: {', '.join(waiting)}")

    def run_until_blocked(self) -> None:
        """Let everything happen that can at this moment, but for bodies that wait on `ctx`."""
        self._arrive()
        for _ in range(ROUNDS):
            if not self._round() and not self._beat():
                return
        raise AssertionError(f"the lab has not come to rest after {ROUNDS} rounds at {self.now}: does a step retry for ever without a wait?")

    def advance(self, duration: timedelta | None = None, **units: float) -> None:
        """Move the clock, visiting each due moment in order and letting everything happen there: `advance(hours=24)`.

        Live leases are kept alive on the way. Raises `ValueError` for a negative duration.
        """
        duration = timedelta(**units) if duration is None else duration
        if duration < timedelta(0):
            raise ValueError("a lab's clock never goes back")
        target = self.now + duration
        self.run_until_blocked()
        while (moment := self._next_moment()) is not None and moment <= target:
            self._move_to(moment)
        self._move_to(target)

    def journal(self, run: Any) -> list[JournalEntry]:
        """What happened to a run, in order."""
        return RunHandle(run.id).journal

    def invariants(self) -> list[invariants.Violation]:
        """What is broken in the database, of all that should always hold; empty is well."""
        return invariants.violations() + [invariants.Violation("I12", "a replay", text) for text in broken_replays()]

    def _furnish(self) -> None:
        maintenance.ensure_row()
        for workflow in self._workflows or ():
            registry.add(workflow)
        self.worker("lab")

    def _close(self) -> None:
        for worker in [*self.workers, *self._killed]:
            worker.abandon()
        clock.freeze(None)
        worker_clock.set_source(None)
        if self._registered is not None:
            registry.swap(self._registered)
        Lab._open = None

    def _move_to(self, moment: datetime) -> None:
        self.now = moment
        self.run_until_blocked()

    def _arrive(self) -> None:
        """Nobody slept on the way here: every heartbeat has landed, and maintenance has seen no gap in which they could not."""
        Tick.objects.using(database()).update(ticked_at=self.now, lenient_until=None)
        self._beat()

    def _beat(self) -> bool:
        """A heartbeat of every worker; says whether a body was told to stop by it."""
        told = [worker.beat() for worker in self.workers]
        return any(told)

    def _round(self) -> bool:
        """One pass over everything that could happen now; says whether something did."""
        happened = self._do_what_follows_commits()
        happened |= maintenance.tick().handled > 0
        for worker in self.workers:
            happened |= worker.work()
        return happened

    def _do_what_follows_commits(self) -> bool:
        """Inside a `TestCase` nothing commits, so what waits for a commit is done here."""
        connection: Any = connections[database()]  # its stubs know neither blocks nor callbacks as they are
        if not connection.in_atomic_block or any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks):
            return False
        callbacks = connection.run_on_commit[self._callbacks_before :]
        del connection.run_on_commit[self._callbacks_before :]
        for _, callback, is_robust in callbacks:
            try:
                callback()
            except Exception:
                if not is_robust:
                    raise
                logger.exception("%r, which waited for a commit, failed: as after a commit, what waits behind it comes all the same", callback)
        return bool(callbacks)

    def _next_moment(self) -> datetime | None:
        return min((moment for moment in self._moments() if moment is not None and moment > self.now), default=None)

    def _moments(self) -> Iterator[datetime | None]:
        held = [turn.lease.id for worker in self.workers for turn in worker.turns]
        yield from due.moments(self.now, held, [worker.session for worker in self.workers])
        for worker in self.workers:
            yield from worker.moments()
