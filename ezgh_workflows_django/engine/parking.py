"""Bodies that park: what they wait for is stored, and they are ready again, in the same attempt, when it has come.

While a step is parked its event waits are open; on waking they are closed, and opened again where the body still asks for them:
what came in between is found by the look that opening begins with. A checkpoint that is met never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..definitions.durations import MAX_SPAN_MS
from ..errors import InvalidPayload
from ..models import App, Checkpoint, Event, Lease, Step, Wait
from ..protocol import codec
from ..protocol.durable import WaitFor
from ..protocol.states import CheckpointKind, LeaseStatus, Mode, StepStatus, WaitKind
from . import child_ends, payloads, progress, waits
from .locking import Held
from .refusals import BY_WORKER
from .transactions import database

_KIND = {WaitKind.SLEEP: CheckpointKind.SLEEP, WaitKind.EVENT: CheckpointKind.EVENT}
_OF_CHILDREN = (CheckpointKind.CHILD, CheckpointKind.BATCH)
_SHOWN = 20
"""How many names of what is waited for the journal tells."""


@dataclass(frozen=True, slots=True)
class Parked:
    """On which checkpoints a step is parked, and whether one of them is enough."""

    mode: Mode
    names: tuple[str, ...]

    def to_text(self) -> str:
        """As it is stored."""
        return codec.dumps({"mode": self.mode, "names": list(self.names)}, limit=None, what="parked")

    @classmethod
    def of(cls, step: Step) -> Parked | None:
        """What a step is parked on; None where it is not."""
        stored: Any = payloads.from_text(step.parked)
        return None if stored is None else cls(Mode(stored["mode"]), tuple(stored["names"]))


@dataclass(frozen=True, slots=True)
class _Met:
    """Something that has come for a checkpoint, at that moment. An event is only found yet, and not taken."""

    checkpoint: Checkpoint
    moment: datetime
    wait: Wait | None = None
    is_late: bool = False
    episodes: str | None = None

    @property
    def takes_an_event(self) -> bool:
        return self.wait is not None and not self.is_late


def park(held: Held, lease: Lease, asked: Sequence[WaitFor], mode: Mode, outcome: str, noted: Sequence[str] = ()) -> None:
    """End a pass: the lease is over, and the step waits for these, or is ready at once where what it needs is there already.

    `noted` is kept with what the passes before said, and given back with each lease: the body's worker knows by it what it has sent.
    Raises `InvalidPayload` for a wait that can't be: a retry of nothing, children nobody started, a name of another kind.
    """
    step = lease.step
    stored = {row.name: row for row in Checkpoint.objects.using(database()).filter(step=step, name__in=[wait.name for wait in asked])}
    rows = [stored.get(wait.name) or _opened(held, step, wait) for wait in asked]
    for wait, row in zip(asked, rows, strict=True):
        _check_kind(wait, row)
    held.work.insert(row for row in rows if row.name not in stored)
    progress.end_lease(held, lease, LeaseStatus.SUSPENDED, BY_WORKER, cut=False, outcome=outcome)
    parked = Parked(mode, tuple(row.name for row in rows))
    open_rows = [row for row in rows if row.is_open]
    held.work.record(
        held.run, "step.parked", step=step.name, attempt=lease.attempt, worker=lease.worker_name, mode=mode, waits=list(parked.names[:_SHOWN]), count=len(rows)
    )
    held.work.move(step, has_checkpoints=True, reclaims=0, parked=parked.to_text(), timer_at=None, **_resting(open_rows), **_noted(step, noted))
    if len(open_rows) < len(rows) and (mode is Mode.ANY or not open_rows):
        return _wake(held, step)
    opened = _open_waits(held, step, [row for row in open_rows if row.kind == CheckpointKind.EVENT])
    _settle(held, step, mode, open_rows, opened)
    if opened and step.status != StepStatus.READY:
        # Due at once: the next tick looks a second time, after this commit, for an event that came while neither side saw the other.
        held.work.move(step, timer_at=held.now)
    return None


def look(held: Held, step: Step) -> list[Event]:
    """Take in what has come for a parked step; it is ready when that is enough. Returns the events that it took."""
    parked = Parked.of(step)
    if parked is None:
        return []
    rows = Checkpoint.objects.using(database()).filter(step=step, met_at=None, name__in=parked.names)
    opened = {wait.name: wait for wait in Wait.objects.using(database()).filter(step=step)}
    return _settle(held, step, parked.mode, list(rows), opened)


def _settle(held: Held, step: Step, mode: Mode, rows: Sequence[Checkpoint], opened: dict[str, Wait]) -> list[Event]:
    ends = child_ends.look([row.pk for row in rows if row.kind in _OF_CHILDREN])
    come = filter(None, (_come(held, row, opened.get(row.name), ends) for row in rows))
    found = sorted(come, key=lambda met: (met.moment, met.checkpoint.pos, met.checkpoint.name))
    if mode is Mode.ANY:  # the earliest wins; a second event stays where it is, for whoever asks for it
        found = found[:1] + [met for met in found[1:] if not met.takes_an_event and not met.is_late]
    taken: list[Event] = []
    met = [each for each in found if _meet(held, step, each, taken)]
    left = [row for row in rows if all(each.checkpoint is not row for each in met)]
    if met and (mode is Mode.ANY or not left):
        _wake(held, step)
    else:
        held.work.move(step, timer_at=min((row.due_at for row in left if row.due_at is not None), default=None), **_resting(left))
    return taken


def _come(held: Held, row: Checkpoint, wait: Wait | None, ends: child_ends.Ends) -> _Met | None:
    """What is there for an open checkpoint now, if anything."""
    if row.kind in _OF_CHILDREN:
        return None if row.pk in ends.at_work else _Met(row, held.now, episodes=ends.episodes(row.pk))
    if wait is not None:
        event = waits.find(wait)
        if event is not None:
            return _Met(row, event.created_at, wait)
    if row.due_at is not None and row.due_at <= held.now:
        return _Met(row, row.due_at, wait, is_late=row.kind == CheckpointKind.EVENT)
    return None


def _meet(held: Held, step: Step, met: _Met, taken: list[Event]) -> bool:
    """Store what has come. False where another wait of the same park has taken the event meanwhile."""
    row = met.checkpoint
    if row.kind == CheckpointKind.STEP:  # its next try is due; only that try changes it
        return True
    result: dict[str, Any] = {}
    if met.wait is not None and not met.is_late:
        event = waits.arrival(held, met.wait)
        if event is None:
            return False
        taken.append(event)
        result = {"output": event.payload}
    elif met.is_late:
        result = {"timed_out": True}
        if met.wait is not None:
            met.wait.delete(using=database())
    elif met.episodes is not None:
        result = {"episodes": met.episodes}
    held.work.move(row, met_at=held.now, due_at=None, **result)
    held.work.record(held.run, "checkpoint.met", step=step.name, name=row.name, of=row.kind, timed_out=met.is_late)
    return True


def _wake(held: Held, step: Step) -> None:
    Wait.objects.using(database()).filter(step=step).delete()
    progress.make_ready(held, step, held.now, parked=None, is_resuming=True)
    held.work.record(held.run, "step.resumed", step=step.name)


def _resting(rows: Iterable[Checkpoint]) -> dict[str, Any]:
    """The status of a step that is parked on these: asleep where only time can wake it."""
    timed = all(row.kind in (CheckpointKind.SLEEP, CheckpointKind.STEP) for row in rows)
    return {"status": StepStatus.SLEEPING if timed else StepStatus.WAITING}


def _noted(step: Step, more: Sequence[str]) -> dict[str, Any]:
    if not more:
        return {}
    together = dict.fromkeys((*noted_of(step), *more))
    return {"noted": codec.dumps(list(together), limit=None, what="noted")}


def noted_of(step: Step) -> tuple[str, ...]:
    """What the passes before have told as noted, in that order."""
    stored: Any = payloads.from_text(step.noted)
    return tuple(stored or ())


def _open_waits(held: Held, step: Step, rows: Sequence[Checkpoint]) -> dict[str, Wait]:
    """Open the waits of these checkpoints, as they were first asked for."""
    if not rows:
        return {}
    held.work.flush()
    app = App.objects.using(database()).only("id", "name", "project_id").get(pk=held.run.app_id)
    opened = [waits.waiting(held, step, app, _wanted(row)) for row in rows]
    Wait.objects.using(database()).bulk_create(opened)
    for wait in opened:
        held.work.record(held.run, "wait.opened", step=step.name, name=wait.name, event=wait.event, key=wait.key, until=wait.timeout_at)
    return {wait.name: wait for wait in opened}


def _wanted(row: Checkpoint) -> waits.Wanted:
    stored = payloads.from_text(row.wanted)
    return waits.Wanted(name=row.name, event=stored["event"], key=stored["key"], since=datetime.fromisoformat(stored["since"]), timeout_at=row.due_at)


def _opened(held: Held, step: Step, wait: WaitFor) -> Checkpoint:
    """A new open checkpoint for something that is asked for the first time."""
    if wait.kind not in _KIND:
        missing = "no checkpoint of that name failed" if wait.kind == WaitKind.RETRY else "no children were started under that name"
        raise InvalidPayload(f"waits.{wait.name}", missing)
    row = Checkpoint(run=held.run, step=step, name=wait.name, pos=wait.pos or 0, kind=_KIND[wait.kind], created_at=held.now)
    if wait.kind == WaitKind.SLEEP:
        row.due_at = wait.until if wait.until is not None else held.now + timedelta(milliseconds=wait.ms or 0)
        if row.due_at - held.now > timedelta(milliseconds=MAX_SPAN_MS):
            raise InvalidPayload(f"waits.{wait.name}", "until is at most 3,650 days from now")
        return row
    row.due_at = None if wait.timeout_ms is None else held.now + timedelta(milliseconds=wait.timeout_ms)
    since = held.now if wait.lookback_ms is None else held.run.created_at - timedelta(milliseconds=wait.lookback_ms)
    row.wanted = codec.dumps({"event": wait.event, "key": wait.key, "since": since.isoformat()}, limit=None, what="wanted")
    return row


def _check_kind(wait: WaitFor, row: Checkpoint) -> None:
    """Whether a stored checkpoint is what the wait takes it for."""
    expected = _OF_CHILDREN if wait.kind == WaitKind.CHILD else (_KIND.get(wait.kind, CheckpointKind.STEP),)
    if row.kind not in expected:
        raise InvalidPayload(f"waits.{wait.name}", f"it was stored as a {row.kind}, and can't be waited for as a {wait.kind}")
