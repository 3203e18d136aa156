"""A worker's session, its claims, its leases and their heartbeats, as frozen dataclasses (spec: protocol.md).

What a report says is in `outcomes`, what a durable function's calls carry in `durable`. Values (`input`, `output`, `state`, …) are plain JSON
values here; `codec` turns users' values into them. Durations are milliseconds, moments are aware datetimes in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from .durable import Checkpoint
from .failures import Failure, Refused
from .states import Delivery
from .tracing import TraceContext

USUAL_MAX_CLAIM: Final = 100
"""What a server allows that does not say its `max_claim`."""


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
    """The answer to a registration: the session's id and the numbers the protocol works with. `max_claim`: the most leases one claim may ask for."""

    worker_id: str
    lease_ttl_ms: int
    recovery_ms: int
    offer_ttl_ms: int
    heartbeat_ms: int
    max_wait_ms: int
    max_claim: int = USUAL_MAX_CLAIM
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
    `run_started_at` is when the run was admitted, in the episode that the step is of: the first moment that `ctx.now()` gives. `span_id` is the
    step's span; `is_sampled` says whether its trace is recorded. `noted` is what the step's suspends said as theirs, which is the worker's own to
    read.
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
    noted: tuple[str, ...] = ()
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
