"""What a scripted server keeps of one durable function: as the engine would, but that the test says when time passes and what arrives."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ..definitions.wire import read_retry
from ..protocol.durable import Checkpoint, Children, Record, Started, Stored
from ..protocol.failures import Failure
from ..protocol.messages import Lease
from ..protocol.outcomes import Outcome
from ..protocol.states import CheckpointKind, RunStatus, WaitKind

BEGIN: Final = datetime(2024, 1, 1, 9, tzinfo=UTC)

_KINDS: Final = {WaitKind.SLEEP: CheckpointKind.SLEEP, WaitKind.EVENT: CheckpointKind.EVENT}


@dataclass(frozen=True, slots=True)
class Child:
    """A child run that was started."""

    run: str
    workflow: str
    payload: Any


class ScriptedCheckpoints:
    """The checkpoints of one lease. Its clock goes a second further with each thing that is stored. Safe from any thread."""

    def __init__(self, stored: Sequence[Checkpoint] = ()) -> None:
        self.rows = {row.name: row for row in stored}
        self.children: dict[str, list[Child]] = {}
        self.noted: dict[str, None] = {}
        self.now = BEGIN
        self._lock = threading.RLock()

    def keep(self, record: Record) -> Stored:
        """Store a result or a failure; the first final write of a name wins."""
        with self._lock:
            row = self.rows.get(record.name) or Checkpoint(name=record.name, pos=record.pos, kind=record.kind, is_open=True)
            if row.is_open:
                row = self._met(row, output=record.output) if record.failure is None else self._failed(row, record, record.failure)
            self.rows[record.name] = row
            return Stored(
                lease_id=record.lease_id, name=row.name, output=row.output, failure=row.failure, at=row.at, retry_at=row.retry_at if row.is_open else None
            )

    def start(self, request: Children) -> Started:
        """Start those children that are not there yet."""
        with self._lock:
            row = self.rows.get(request.name) or Checkpoint(name=request.name, pos=request.pos, kind=request.kind, is_open=True)
            there = self.children.setdefault(request.name, [])
            for index, payload in enumerate(request.payloads, request.first):
                if index >= len(there):
                    there.append(Child(f"{request.name}-{index}", request.workflow, payload))
            self.rows[request.name] = replace(row, children=len(there))
            runs = tuple(child.run for child in there[request.first : request.first + len(request.payloads)])
            return Started(lease_id=request.lease_id, name=request.name, runs=runs)

    def park(self, outcome: Outcome) -> None:
        """Open what a pass parks on and what is not there yet."""
        with self._lock:
            self.noted |= dict.fromkeys(outcome.noted)
            for wait in outcome.waits:
                if wait.kind in _KINDS:
                    self.rows.setdefault(wait.name, Checkpoint(name=wait.name, pos=wait.pos or 0, kind=_KINDS[wait.kind], is_open=True))

    def meet(self, *names: str, output: Any = None, timed_out: bool = False) -> None:
        """These waits or sleeps are over."""
        with self._lock:
            for name in names:
                self.rows[name] = self._met(self.rows[name], output=output, timed_out=timed_out)

    def end_children(self, name: str, *outputs: Any) -> None:
        """The children of that name are over: succeeded with these outputs, or failed where one is a `Failure`."""
        with self._lock:
            told = [_result(child, output) for child, output in zip(self.children.get(name, []), outputs, strict=True)]
            row = self.rows[name]
            self.rows[name] = self._met(row, output=told if row.kind is CheckpointKind.BATCH else told[0])

    def next_pass(self, lease: Lease) -> Lease:
        """The lease of the next pass, with what is stored; every retry is due."""
        with self._lock:
            self.now += timedelta(days=1)
            rows = sorted(self.rows.values(), key=lambda row: row.pos)
            expires_at = self.now + timedelta(milliseconds=lease.expires_in_ms)
            return replace(lease, token=lease.token + 1, checkpoints=tuple(rows), noted=tuple(self.noted), expires_at=expires_at)

    def _met(self, row: Checkpoint, **result: Any) -> Checkpoint:
        self.now += timedelta(seconds=1)
        return replace(row, is_open=False, at=self.now, retry_at=None, **({"failure": None} | result))

    def _failed(self, row: Checkpoint, record: Record, failure: Failure) -> Checkpoint:
        policy, failures = read_retry(record.retry or {}), row.failures + 1
        row = replace(row, failure=failure, failures=failures)
        if not policy.covers(failure.class_) or failures >= policy.max_attempts:
            return self._met(row, failure=failure)
        return replace(row, retry_at=self.now + timedelta(milliseconds=max(policy.delay_ms(failures, 0.5), record.retry_after_ms or 0)))


def _result(child: Child, output: Any) -> dict[str, Any]:
    if isinstance(output, Failure):
        return {"run": child.run, "status": RunStatus.FAILED, "error": output.to_json()}
    return {"run": child.run, "status": RunStatus.SUCCEEDED, "output": output}
