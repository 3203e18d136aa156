"""`RunHandle`: what callers hold of a run. An id, the verbs, the questions, each with its async twin; every question looks again."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections

from ..errors import ResultTimeout, RunCancelled, RunFailed, RunTimedOut
from ..models import JournalEntry, Run, Step
from ..protocol.failures import Failure
from ..protocol.states import RunStatus
from . import episodes, events, hygiene, payloads, reading, runs, totals, versions
from .runs import Actor
from .trail import SYSTEM
from .transactions import database

LOOK_EVERY = 0.2
"""Seconds between two looks of `result` while the run is not over."""

_ENDED = {RunStatus.FAILED: RunFailed, RunStatus.CANCELLED: RunCancelled, RunStatus.TIMED_OUT: RunTimedOut}


class RunHandle:
    """One run: `id`, its verbs and its questions. Made by `start` and `get_run`; costs nothing until it is asked."""

    def __init__(self, run_id: uuid.UUID | str) -> None:
        self.id = str(run_id)

    def __repr__(self) -> str:
        return f"<RunHandle {self.id}>"

    def __str__(self) -> str:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def run(self) -> Run:
        """The run's row as it is now. Raises `UnknownRun`."""
        return runs.get(self.id)

    @property
    def status(self) -> RunStatus:
        """The stored state (spec: engine.md "States")."""
        return RunStatus(self.run.status)

    @property
    def phase(self) -> str:
        """How it ended, else the first that holds of paused, failing, running, retrying, queued, waiting, sleeping."""
        return reading.phase(self.run)

    @property
    def waiting_for(self) -> Sequence[reading.WaitingFor]:
        """What its open waits wait for."""
        return reading.waiting_for(self.run)

    @property
    def failure(self) -> Failure | None:
        """Why it failed or needs attention: class, message, type, step, attempt, attempts, `timed_out`."""
        return reading.failure(self.run)

    @property
    def labels(self) -> dict[str, str]:
        """The labels it was started with."""
        return dict(payloads.from_text(self.run.labels))

    @property
    def state(self) -> dict[str, Any]:
        """The run's state: what completions patched."""
        return dict(payloads.from_text(self.run.state))

    @property
    def payload(self) -> Any:
        """What it was started with; None where nothing was given."""
        return payloads.from_text(self.run.payload)

    @property
    def usage(self) -> tuple[totals.Total, ...]:
        """What its steps used so far, by model and unit, with what that cost: failed attempts count, too."""
        return totals.read(self.run.usage)

    @property
    def cost(self) -> Decimal | None:
        """What that cost in `CURRENCY`, as far as it had a price; None where nothing had one."""
        return totals.cost_of(self.usage)

    @property
    def steps(self) -> list[Step]:
        """The rows of its steps, in the order of the definition."""
        return reading.steps(self.run)

    @property
    def journal(self) -> list[JournalEntry]:
        """What happened to it, in order."""
        return list(JournalEntry.objects.using(database()).filter(run=self.run).order_by("seq"))

    def result(self, timeout: float | None = None) -> Any:
        """The run's output, waiting for its end at most `timeout` seconds (None: for ever).

        Raises `RunFailed`, `RunCancelled`, `RunTimedOut`; `ResultTimeout` where it is not over in time, and at once inside a
        transaction: nobody sees the run before it commits, so waiting there would never end.
        """
        look = _Look(self.id, timeout)
        while not look.is_over():
            time.sleep(look.rest())
        return look.result()

    def signal(self, name: str, payload: Any = None) -> str:
        """Send it an event of its own: `delivered` or `buffered`. Raises `RunTerminal`."""
        return events.signal(self.id, name, payload)

    def cancel(self, reason: str = "", *, actor: Actor = SYSTEM) -> RunStatus:
        """End it; returns the status it is left in. Raises `RunTerminal` where it had ended otherwise."""
        return runs.cancel(self.id, reason, actor)

    def retry(self, from_step: str | None = None, *, actor: Actor = SYSTEM) -> None:
        """Begin again from its failed steps, or from one by name; `pause` stays until `resume`. Raises `VerbRefused` while it is at work,
        and where an `at_most_once` body that would begin again may be. A child is retried by itself: its parent was told of its first end.
        """
        episodes.retry(self.id, from_step, actor)

    def pause(self, reason: str = "", *, actor: Actor = SYSTEM) -> None:
        """Offer nothing of it until `resume`, whatever else is done to it. Raises `RunTerminal`."""
        runs.pause(self.id, reason, actor)

    def resume(self, *, actor: Actor = SYSTEM) -> None:
        """Undo `pause`; a run that needs attention is retried from its failed steps."""
        episodes.resume(self.id, actor)

    def resolve(self, step: str, output: Any, reason: str, *, actor: Actor = SYSTEM) -> None:
        """End a failed or waiting step by hand with this output; `pause` stays until `resume`. Raises `VerbRefused`, `UnknownStep`."""
        episodes.resolve(self.id, step, output, reason, actor)

    def migrate(self, version: str, *, dry_run: bool = False, actor: Actor = SYSTEM) -> versions.Migration:
        """Move it to another stored version of its workflow, or with `dry_run` only say what that would do. Where it is failing already,
        the steps of that version begin with a retry.

        Raises `VerbRefused` with every fault, and `UnknownWorkflow` where that version is not stored.
        """
        return versions.dry_run(self.id, version) if dry_run else versions.migrate(self.id, version, actor)

    async def arun(self) -> Run:
        """As `run`."""
        return await sync_to_async(lambda: self.run)()

    async def astatus(self) -> RunStatus:
        """As `status`."""
        return await sync_to_async(lambda: self.status)()

    async def aphase(self) -> str:
        """As `phase`."""
        return await sync_to_async(lambda: self.phase)()

    async def awaiting_for(self) -> Sequence[reading.WaitingFor]:
        """As `waiting_for`."""
        return await sync_to_async(lambda: self.waiting_for)()

    async def afailure(self) -> Failure | None:
        """As `failure`."""
        return await sync_to_async(lambda: self.failure)()

    async def alabels(self) -> dict[str, str]:
        """As `labels`."""
        return await sync_to_async(lambda: self.labels)()

    async def astate(self) -> dict[str, Any]:
        """As `state`."""
        return await sync_to_async(lambda: self.state)()

    async def apayload(self) -> Any:
        """As `payload`."""
        return await sync_to_async(lambda: self.payload)()

    async def ausage(self) -> tuple[totals.Total, ...]:
        """As `usage`."""
        return await sync_to_async(lambda: self.usage)()

    async def acost(self) -> Decimal | None:
        """As `cost`."""
        return await sync_to_async(lambda: self.cost)()

    async def asteps(self) -> list[Step]:
        """As `steps`."""
        return await sync_to_async(lambda: self.steps)()

    async def ajournal(self) -> list[JournalEntry]:
        """As `journal`."""
        return await sync_to_async(lambda: self.journal)()

    async def aresult(self, timeout: float | None = None) -> Any:
        """As `result`; it holds no thread between two looks, and the event loop goes on meanwhile.

        A look after the connection failed, as where the database was restarted, tries it and opens another.
        """
        look = _Look(self.id, timeout)
        while not await sync_to_async(_in_order(look.is_over))():  # noqa: ASYNC110 - the run ends in another process, which sets no event here
            await asyncio.sleep(look.rest())
        return look.result()

    async def asignal(self, name: str, payload: Any = None) -> str:
        """As `signal`."""
        return await sync_to_async(self.signal)(name, payload)

    async def acancel(self, reason: str = "", *, actor: Actor = SYSTEM) -> RunStatus:
        """As `cancel`."""
        return await sync_to_async(self.cancel)(reason, actor=actor)

    async def aretry(self, from_step: str | None = None, *, actor: Actor = SYSTEM) -> None:
        """As `retry`."""
        await sync_to_async(self.retry)(from_step, actor=actor)

    async def apause(self, reason: str = "", *, actor: Actor = SYSTEM) -> None:
        """As `pause`."""
        await sync_to_async(self.pause)(reason, actor=actor)

    async def aresume(self, *, actor: Actor = SYSTEM) -> None:
        """As `resume`."""
        await sync_to_async(self.resume)(actor=actor)

    async def aresolve(self, step: str, output: Any, reason: str, *, actor: Actor = SYSTEM) -> None:
        """As `resolve`."""
        await sync_to_async(self.resolve)(step, output, reason, actor=actor)

    async def amigrate(self, version: str, *, dry_run: bool = False, actor: Actor = SYSTEM) -> versions.Migration:
        """As `migrate`."""
        return await sync_to_async(self.migrate)(version, dry_run=dry_run, actor=actor)


class _Look:
    """One caller's wait for the end of a run: looks at it, and says how long to rest until the next look. Rests by no means itself."""

    def __init__(self, run_id: str, timeout: float | None) -> None:
        self._id, self._timeout = run_id, timeout
        self._until = None if timeout is None else time.monotonic() + timeout
        self._output: Any = None

    def is_over(self) -> bool:
        """Whether the run has succeeded by now. Raises how it ended else, and `ResultTimeout` where waiting is over or makes no sense."""
        run = runs.get(self._id)
        if run.is_terminal:
            self._output = _output(run)
            return True
        if connections[database()].in_atomic_block:
            raise ResultTimeout(f"run {run.pk} is {run.status}, and this transaction would wait for itself: ask for the result after the commit")
        if self._until is not None and time.monotonic() >= self._until:
            raise ResultTimeout(f"run {run.pk} is still {run.status} after {self._timeout} s")
        return False

    def rest(self) -> float:
        """Seconds until the next look."""
        return LOOK_EVERY if self._until is None else max(0.0, min(LOOK_EVERY, self._until - time.monotonic()))

    def result(self) -> Any:
        """The output, once `is_over`."""
        return self._output


def _in_order(look: Callable[[], bool]) -> Callable[[], bool]:
    """The same look, with this thread's connection in order before it (`hygiene`)."""

    def call() -> bool:
        with hygiene.engine_call():
            return look()

    return call


def _output(run: Run) -> Any:
    if run.status == RunStatus.SUCCEEDED:
        return reading.output(run)
    failure = reading.failure(run)
    why = failure.message if failure else run.reason
    message = f"run {run.pk} of {run.workflow} {run.status}" + (f": {why}" if why else "")
    raise _ENDED[RunStatus(run.status)](message, str(run.pk), failure.to_json() if failure else None)
