"""The messages of the worker protocol, as frozen dataclasses (spec: protocol.md).

Values (`input`, `output`, `state`, …) are plain JSON values here; `codec` turns users' values into them.
Durations are milliseconds, moments are aware datetimes in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from .states import Delivery, FailureClass, LeaseStatus

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
    """A worker's first call. `definitions` are wire forms (`Workflow.to_spec()`)."""

    worker: str
    app: str
    concurrency: int = 10
    definitions: tuple[Mapping[str, Any], ...] = ()
    sdk: str = ""
    host: str = ""
    organization: str | None = None
    project: str | None = None


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
class Lease:
    """One attempt of a step, offered to one worker.

    `steps` holds the outputs of the step's ancestors by name; `last` says that a failure now would spend the last of the retry budget.
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
    timeout_ms: int | None = None
    deadline: datetime | None = None
    checkpoints: tuple[Mapping[str, Any], ...] = ()
    failure: Failure | None = None
    last: bool = True
    retries: bool = False

    @property
    def traceparent(self) -> str:
        """The W3C trace context a body's own spans hang under."""
        return f"00-{self.trace_id}-{self.span_id}-01"


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


_ENDS_AS: Final[Mapping[str, LeaseStatus]] = {
    FailureClass.RETURNED: LeaseStatus.RETURNED,
    FailureClass.UNSERVABLE: LeaseStatus.UNSERVABLE,
    FailureClass.TIMEOUT: LeaseStatus.TIMED_OUT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a body ended. Made by `completed` or `failed`, so that its fields always agree."""

    status: LeaseStatus
    output: Any = None
    state: Mapping[str, Any] | None = None
    class_: str | None = None
    message: str | None = None
    type: str | None = None
    traceback: str | None = None
    retry_after_ms: int | None = None
    body_ended: bool = True
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
        retry_after_ms: int | None = None,
        body_ended: bool = True,
        usage: tuple[Usage, ...] = (),
        spans: tuple[Mapping[str, Any], ...] = (),
    ) -> Outcome:
        """The body raised, timed out, or was never run (`returned`, `unservable`).

        `body_ended` is False where the body may still be at work (a timeout whose body will not stop):
        an at-most-once step is then never run again.
        """
        return cls(
            status=LeaseStatus.FAILED,
            class_=class_,
            message=message,
            type=type,
            traceback=traceback,
            retry_after_ms=retry_after_ms,
            body_ended=body_ended,
            usage=usage,
            spans=spans,
        )

    @classmethod
    def returned(cls, message: str) -> Outcome:
        """The lease is handed back: the body did not run, or was stopped on purpose."""
        return cls.failed(FailureClass.RETURNED, message)


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
