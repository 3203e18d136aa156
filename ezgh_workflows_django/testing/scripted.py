"""A server that is a script: hands prepared leases to a real `Worker`, keeps its calls, and answers as it was told to. Runs nothing itself."""

from __future__ import annotations

import secrets
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, overload

from ..definitions.graph import Workflow
from ..protocol.durable import Children, Record, Started, Stored
from ..protocol.failures import Refused
from ..protocol.messages import Beat, Claimed, ClaimRequest, Extension, Lease, Registered, Registration
from ..protocol.outcomes import Answer, Outcome, Report
from ..protocol.states import LeaseStatus, RunStatus, StepStatus
from .scripted_checkpoints import ScriptedCheckpoints

SESSION: Final = Registered(worker_id="w1", lease_ttl_ms=30_000, recovery_ms=30_000, offer_ttl_ms=10_000, heartbeat_ms=20_000, max_wait_ms=24_000)
"""The numbers a scripted registration answers with, unless it is given others."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the worker: its name, and what it was given."""

    name: str
    argument: Any


def lease_of(workflow: Workflow, step: str, input: Any = None, **fields: Any) -> Lease:
    """A lease of that step, as a server would offer it; `fields` are those of `Lease`."""
    prepared: dict[str, Any] = {
        "id": secrets.token_hex(8),
        "token": 1,
        "run_id": secrets.token_hex(8),
        "workflow": workflow.name,
        "version": workflow.version,
        "revision": workflow.revision,
        "step": step,
        "attempt": 1,
        "expires_at": datetime.now(UTC) + timedelta(seconds=10),
        "expires_in_ms": 10_000,
        "input": input,
        "trace_id": secrets.token_hex(16),
        "span_id": secrets.token_hex(8),
    }
    return Lease(**(prepared | fields))


class ScriptedTransport:
    """A `Transport` whose answers are set beforehand. Safe from any thread; `wait_until` waits for what the worker does."""

    def __init__(self, *leases: Lease, session: Registered = SESSION, scope: Callable[[Lease], AbstractContextManager[Any]] | None = None) -> None:
        self.calls: list[Call] = []
        self.outcomes: dict[str, list[Outcome]] = defaultdict(list)
        self.session = session
        self.tended = 0
        self.released: set[str] = set()
        self.is_closed = False
        self.stored: dict[str, ScriptedCheckpoints] = defaultdict(ScriptedCheckpoints)
        self.rolled_back = 0
        self._scope = scope
        self._offers: deque[Lease] = deque(leases)
        self._given: dict[str, tuple[Lease, ...]] = {}
        self._errors: dict[str, deque[tuple[BaseException, bool]]] = defaultdict(deque)
        self._refusals: dict[tuple[str, str], Refused] = {}
        self._gates: dict[str, threading.Event] = {}
        self._is_interrupted = False
        self._changed = threading.Condition()

    def offer(self, *leases: Lease) -> None:
        """Give these to the next claims."""
        with self._changed:
            self._offers.extend(leases)
            self._changed.notify_all()

    def fail(self, call: str, *errors: BaseException, lands: bool = False) -> None:
        """Let the next calls of that name raise these, one each; with `lands`, after having done what they ask (a lost reply)."""
        with self._changed:
            self._errors[call].extend((error, lands) for error in errors)

    def refuse(self, call: str, lease_id: str, reason: str, message: str = "so the script says", outcome: dict[str, Any] | None = None) -> None:
        """Refuse that lease in every call of that name ("started", "heartbeat", "report", "checkpoint", "children") from now on."""
        self._refusals[call, lease_id] = Refused(reason, message, outcome)

    def accept(self, call: str, lease_id: str) -> None:
        """Refuse it no more."""
        self._refusals.pop((call, lease_id), None)

    def block(self, call: str) -> threading.Event:
        """Make calls of that name wait until the event this gives is set."""
        return self._gates.setdefault(call, threading.Event())

    def named(self, call: str) -> list[Any]:
        """What the calls of that name were given, in order."""
        return [made.argument for made in list(self.calls) if made.name == call]

    def wait_until(self, holds: Callable[[], bool], timeout: float = 60.0) -> None:
        """Block until `holds()`, looked at after each call of the worker. Raises `TimeoutError` after `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(holds, timeout):
                raise TimeoutError(f"the worker did not do what was waited for; its calls: {[made.name for made in self.calls]}")

    def register(self, registration: Registration) -> Registered:
        """Give the session; after the first time under another id, as a server that forgot it would."""
        self._made("register", registration)
        count = len(self.named("register"))
        return self.session if count == 1 else replace(self.session, worker_id=f"w{count}")

    def claim(self, request: ClaimRequest) -> Claimed:
        """Give what is on offer; a repeated claim id brings the same again."""
        landed = self._made("claim", request, lambda: self._give(request))
        return Claimed(leases=landed)

    def started(self, lease_ids: Sequence[str]) -> Sequence[Extension]:
        """Accept these, but for the refused."""
        self._made("started", tuple(lease_ids))
        return [self._extension("started", lease_id) for lease_id in lease_ids]

    def heartbeat(self, beats: Sequence[Beat]) -> Sequence[Extension]:
        """Extend these, but for the refused."""
        self._made("heartbeat", tuple(beats))
        return [self._extension("heartbeat", beat.lease_id) for beat in beats]

    def report(self, reports: Sequence[Report]) -> Sequence[Answer]:
        """Keep these outcomes, but for the refused."""
        answers: list[Answer] = self._made("report", tuple(reports), lambda: [self._store(report) for report in reports])
        return answers

    def checkpoint(self, records: Sequence[Record]) -> Sequence[Stored]:
        """Store these in `stored`, by lease, as a server does, but for the refused."""
        answers: list[Stored] = self._made("checkpoint", tuple(records), lambda: [self._keep(record) for record in records])
        return answers

    def children(self, request: Children) -> Started:
        """Take note of child runs, named by their checkpoint and index, but for a refused lease."""
        answer: Started = self._made("children", request, lambda: self._start(request))
        return answer

    @overload
    def atomically(self, work: Callable[[], Record]) -> Stored: ...

    @overload
    def atomically(self, work: Callable[[], Report]) -> Answer: ...

    def atomically(self, work: Callable[[], Record] | Callable[[], Report]) -> Stored | Answer:
        """Run `work` and store what it returns; `rolled_back` counts what it raised, and refusals."""
        try:
            done = work()
        except BaseException:
            self.rolled_back += 1
            raise
        answer: Stored | Answer
        [answer] = self.checkpoint([done]) if isinstance(done, Record) else self.report([done])
        self.rolled_back += answer.refused is not None
        return answer

    def leave(self, worker_id: str) -> None:
        """Take note."""
        self._made("leave", worker_id)

    def interrupt(self) -> None:
        """End the claim that is being held."""
        with self._changed:
            self._is_interrupted = True
            self._changed.notify_all()

    def body_scope(self, lease: Lease) -> AbstractContextManager[Any]:
        """The scope it was made with, else nothing."""
        return self._scope(lease) if self._scope is not None else nullcontext()

    def tend(self) -> None:
        """Count it."""
        self._made("tend", None)
        self.tended += 1

    def release(self) -> None:
        """Take note of the thread."""
        with self._changed:
            self.released.add(threading.current_thread().name)

    def close(self) -> None:
        """Take note."""
        self.is_closed = True

    def _made(self, name: str, argument: Any, do: Callable[[], Any] = lambda: None) -> Any:
        """Record a call; then wait at its gate, fail as told, or do it."""
        with self._changed:
            self.calls.append(Call(name, argument))
            self._changed.notify_all()
        if name in self._gates:
            self._gates[name].wait()
        with self._changed:
            error, lands = self._errors[name].popleft() if self._errors[name] else (None, True)
            done = do() if lands else None
            self._changed.notify_all()
        if error is not None:
            raise error
        return done

    def _give(self, request: ClaimRequest) -> tuple[Lease, ...]:
        if request.claim_id not in self._given:
            self._changed.wait_for(lambda: self._offers or self._is_interrupted, request.wait_ms / 1000)
            self._given[request.claim_id] = tuple(self._offers.popleft() for _ in range(min(request.max, len(self._offers))))
        return self._given[request.claim_id]

    def _extension(self, call: str, lease_id: str) -> Extension:
        refused = self._refusals.get((call, lease_id))
        ttl = self.session.lease_ttl_ms
        return Extension(lease_id=lease_id, refused=refused) if refused else Extension(lease_id=lease_id, expires_in_ms=ttl)

    def _keep(self, record: Record) -> Stored:
        refused = self._refusals.get(("checkpoint", record.lease_id))
        return self.stored[record.lease_id].keep(record) if refused is None else Stored(lease_id=record.lease_id, name=record.name, refused=refused)

    def _start(self, request: Children) -> Started:
        refused = self._refusals.get(("children", request.lease_id))
        return self.stored[request.lease_id].start(request) if refused is None else Started(lease_id=request.lease_id, name=request.name, refused=refused)

    def _store(self, report: Report) -> Answer:
        self.outcomes[report.lease_id].append(report.outcome)
        refused = self._refusals.get(("report", report.lease_id))
        if refused is not None:
            return Answer(lease_id=report.lease_id, refused=refused)
        if report.outcome.status is LeaseStatus.SUSPENDED:
            self.stored[report.lease_id].park(report.outcome)
            return Answer(lease_id=report.lease_id, step=StepStatus.WAITING, run=RunStatus.RUNNING)
        ended_well = report.outcome.status is LeaseStatus.COMPLETED
        step, run = (StepStatus.SUCCEEDED, RunStatus.RUNNING) if ended_well else (StepStatus.FAILED, RunStatus.FAILED)
        return Answer(lease_id=report.lease_id, step=step, run=run)
