"""The messages of the worker protocol, as frozen dataclasses (spec: protocol.md).

Values (`input`, `output`, `state`, …) are plain JSON values here; `codec` turns users' values into them.
Durations are milliseconds, moments are aware datetimes in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from .states import CheckpointKind, Delivery, FailureClass, LeaseStatus, Mode, WaitKind
from .tracing import TraceContext

EMPTY: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt, a step or a run failed.

    `class_` is what retry policies look at, `type` the exception's dotted name where there was one.
    """

    class_: str
    message: str
    type: str | None = None
    step: str | None = None
    attempt: int | None = None
    attempts: int | None = None

    @property
    def timed_out(self) -> bool:
        """Whether a timeout or a deadline is what ended it."""
        return self.class_ in (FailureClass.TIMEOUT, FailureClass.DEADLINE)

    def to_json(self) -> dict[str, Any]:
        """The wire form; keys without a value are left out."""
        pairs = {"class": self.class_, "message": self.message, "type": self.type, "step": self.step, "attempt": self.attempt, "attempts": self.attempts}
        return {key: value for key, value in pairs.items() if value is not None}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Failure:
        """Read the wire form back; unknown keys are ignored."""
        return cls(
            class_=value["class"],
            message=value["message"],
            type=value.get("type"),
            step=value.get("step"),
            attempt=value.get("attempt"),
            attempts=value.get("attempts"),
        )


@dataclass(frozen=True, slots=True)
class Serve:
    """What a worker serves of one workflow revision: all its steps, or only those named."""

    name: str
    revision: str
    steps: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A worker's first call. `definitions` are wire forms (`Workflow.to_spec()`). `cron`: it wants the schedules of a developer's own app fired."""

    worker: str
    app: str
    concurrency: int = 10
    definitions: tuple[Mapping[str, Any], ...] = ()
    sdk: str = ""
    host: str = ""
    organization: str | None = None
    project: str | None = None
    cron: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The answer to a registration: the session's id and the numbers the protocol works with."""

    worker_id: str
    lease_ttl_ms: int
    recovery_ms: int
    offer_ttl_ms: int
    heartbeat_ms: int
    max_wait_ms: int
    definitions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """A call for work. `claim_id` is the client's own, so a repeated call gives the same leases."""

    worker_id: str
    claim_id: str
    max: int
    wait_ms: int = 0
    serves: tuple[Serve, ...] = ()
    run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One thing that a durable function asked for, as it is stored; a lease carries them in the order of `pos`.

    `pos` is its place among the things the function asks for, from 1; the members of a `map`, `gather`, `wait_any` or `wait_all` share one.
    `is_open` says that it has no result yet: a wait that is not met, children that are not over, a step that is to be tried again at `retry_at`
    after `failures` failures (`failure` is then the last one). `at` is when the result was stored, None while it is open.

    The result is `output`, `failure`, or `timed_out` (an event's wait). For a `child` it is `{"run", "status", "output"?, "error"?}`, for a
    `batch` a list of those in the order of their payloads; `children` is how many of them have been started.
    """

    name: str
    pos: int
    kind: CheckpointKind
    output: Any = None
    failure: Failure | None = None
    timed_out: bool = False
    at: datetime | None = None
    is_open: bool = False
    failures: int = 0
    retry_at: datetime | None = None
    children: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One attempt of a step, offered to one worker.

    `steps` holds the outputs of the step's ancestors by name; `last` says that a failure now would spend the last of the retry budget.
    `run_started_at` is when the run was admitted: the first moment that `ctx.now()` gives. `span_id` is the step's span; `is_sampled` says whether
    its trace is recorded.
    """

    id: str
    token: int
    run_id: str
    workflow: str
    version: str
    revision: str
    step: str
    attempt: int
    expires_at: datetime
    expires_in_ms: int
    input: Any = None
    has_input: bool = True
    steps: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    correlation_id: str = ""
    idempotency_key: str = ""
    delivery: str = Delivery.AT_LEAST_ONCE
    trace_id: str = ""
    span_id: str = ""
    is_sampled: bool = True
    timeout_ms: int | None = None
    deadline: datetime | None = None
    run_started_at: datetime | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    failure: Failure | None = None
    last: bool = True
    retries: bool = False

    @property
    def traceparent(self) -> str:
        """The W3C trace context a body's own spans hang under."""
        return TraceContext(self.trace_id, self.span_id, self.is_sampled).to_text()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The answer to a claim. `retry_after_ms` is the least wait before the next one, if any."""

    leases: tuple[Lease, ...] = ()
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """An amount of something a body used. `amount` is a decimal as text, so no digit is lost."""

    unit: str
    amount: str
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFor:
    """One thing a step parks on. Durations are milliseconds.

    A `sleep` ends `ms` after it was first asked for, or at `until`. An `event` takes one of that name and key; `timeout_ms`, `on_timeout` and
    `lookback_ms` (None: nothing before it was first asked for) are those of a graph's wait. A `child` waits for the runs that `children` started
    under its name, a `retry` for the next try of the checkpoint of its name. What is stored first for a name wins.
    """

    name: str
    kind: WaitKind
    pos: int | None = None
    ms: int | None = None
    until: datetime | None = None
    event: str = ""
    key: str = ""
    timeout_ms: int | None = None
    on_timeout: str = "fail"
    lookback_ms: int | None = 0
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A call to store a checkpoint: a result, or a failure with the policy (wire form) that says whether it is tried again.

    `retry_after_ms` is the least rest before that. `state` is a patch of top-level keys, stored once with the checkpoint. `failures` is how often
    it had failed before this try, as the worker was told: so a failure whose answer was lost is known again, and counted once.
    """

    lease_id: str
    name: str
    pos: int
    kind: CheckpointKind = CheckpointKind.STEP
    output: Any = None
    failure: Failure | None = None
    retry: Mapping[str, Any] | None = None
    retry_after_ms: int | None = None
    failures: int | None = None
    state: Mapping[str, Any] | None = None
    usage: tuple[Usage, ...] = ()
    spans: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The answer to a `Record`: what is stored under its name (the first write wins), or the refusal.

    With `retry_at`, the failure is not final: the step parks on a `retry` of that name. `repeated` says that it had been stored before.
    """

    lease_id: str
    name: str
    output: Any = None
    failure: Failure | None = None
    at: datetime | None = None
    retry_at: datetime | None = None
    repeated: bool = False
    refused: Refused | None = None

    @property
    def is_final(self) -> bool:
        """Whether nothing more will come of this checkpoint."""
        return self.retry_at is None and self.refused is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    """A call to start child runs, once per name: one for each payload, the first of them the child number `first` of that name.

    A long batch goes in several calls, in order. `payloads` are plain JSON values; an empty batch is allowed.
    """

    lease_id: str
    name: str
    pos: int
    workflow: str
    payloads: tuple[Any, ...]
    first: int = 0
    kind: CheckpointKind = CheckpointKind.CHILD
    has_payload: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The answer to `Children`: the runs, in the order of their payloads, or the refusal."""

    lease_id: str
    name: str
    runs: tuple[str, ...] = ()
    refused: Refused | None = None


_ENDS_AS: Final[Mapping[str, LeaseStatus]] = {
    FailureClass.RETURNED: LeaseStatus.RETURNED,
    FailureClass.UNSERVABLE: LeaseStatus.UNSERVABLE,
    FailureClass.TIMEOUT: LeaseStatus.TIMED_OUT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a pass of a body ended. Made by `completed`, `failed`, `suspended` or `returned`, so that its fields always agree."""

    status: LeaseStatus
    output: Any = None
    state: Mapping[str, Any] | None = None
    class_: str | None = None
    message: str | None = None
    type: str | None = None
    traceback: str | None = None
    keeps_traceback: bool = False
    retry_after_ms: int | None = None
    body_ended: bool = True
    waits: tuple[WaitFor, ...] = ()
    mode: Mode = Mode.ALL
    usage: tuple[Usage, ...] = ()
    spans: tuple[Mapping[str, Any], ...] = ()

    @property
    def ends_as(self) -> LeaseStatus:
        """The status that this outcome leaves its lease in."""
        return _ENDS_AS.get(self.class_ or "", self.status)

    @classmethod
    def completed(
        cls, output: Any = None, *, state: Mapping[str, Any] | None = None, usage: tuple[Usage, ...] = (), spans: tuple[Mapping[str, Any], ...] = ()
    ) -> Outcome:
        """The body returned `output`; `state` is a patch of top-level keys."""
        return cls(status=LeaseStatus.COMPLETED, output=output, state=state, usage=usage, spans=spans)

    @classmethod
    def failed(
        cls,
        class_: str,
        message: str,
        *,
        type: str | None = None,
        traceback: str | None = None,
        keeps_traceback: bool = False,
        retry_after_ms: int | None = None,
        body_ended: bool = True,
        usage: tuple[Usage, ...] = (),
        spans: tuple[Mapping[str, Any], ...] = (),
    ) -> Outcome:
        """The body raised, timed out, or was never run (`returned`, `unservable`).

        `body_ended` is False where the body may still be at work (a timeout whose body will not stop):
        an at-most-once step is then never run again. `keeps_traceback`: the traceback is kept whatever the setting says.
        """
        return cls(
            status=LeaseStatus.FAILED,
            class_=class_,
            message=message,
            type=type,
            traceback=traceback,
            keeps_traceback=keeps_traceback,
            retry_after_ms=retry_after_ms,
            body_ended=body_ended,
            usage=usage,
            spans=spans,
        )

    @classmethod
    def suspended(
        cls,
        waits: tuple[WaitFor, ...],
        mode: Mode = Mode.ALL,
        *,
        state: Mapping[str, Any] | None = None,
        usage: tuple[Usage, ...] = (),
        spans: tuple[Mapping[str, Any], ...] = (),
    ) -> Outcome:
        """The body parks: the step is ready again, in the same attempt, when its waits are met."""
        return cls(status=LeaseStatus.SUSPENDED, waits=waits, mode=mode, state=state, usage=usage, spans=spans)

    @classmethod
    def returned(cls, message: str, *, usage: tuple[Usage, ...] = (), spans: tuple[Mapping[str, Any], ...] = ()) -> Outcome:
        """The lease is handed back: the body did not run, or was stopped on purpose."""
        return cls.failed(FailureClass.RETURNED, message, usage=usage, spans=spans)


@dataclass(frozen=True, slots=True)
class Report:
    """An outcome, addressed to its lease."""

    lease_id: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a call on a lease was refused. `reason` is one of the four, or a code such as `unknown_lease` or `invalid`."""

    reason: str
    message: str
    outcome: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one reported outcome: the statuses it left, or the refusal."""

    lease_id: str
    step: str | None = None
    run: str | None = None
    retry_at: datetime | None = None
    refused: Refused | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """One lease's heartbeat. `progress` is shown in the console."""

    lease_id: str
    progress: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The answer to `started` or a heartbeat: how long the lease now lives, or the refusal."""

    lease_id: str
    expires_at: datetime | None = None
    expires_in_ms: int | None = None
    refused: Refused | None = None
