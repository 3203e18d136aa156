"""Every error this package raises on purpose.

WorkflowsError
├── InvalidWorkflow          a definition has faults; all of them are in `.faults`
├── ExpressionError          a CEL expression does not compile, or failed on its values
├── InvalidPayload           a value that can't be stored; `.path` says where
│   └── PayloadTooLarge      over MAX_PAYLOAD_BYTES
├── InvalidArgument          an argument of a verb is out of range; `.field` says which
├── StartError               a run could not be started
│   ├── NoServer             no engine in this process
│   ├── UnknownWorkflow      no workflow of that name
│   ├── NotAvailable         this version, or this way to the server, can't do what is asked
│   ├── WorkflowNotAnnounced no live worker announces it: starts over HTTP only
│   ├── ConcurrencyLimit     all slots are taken, and the workflow rejects what finds none
│   ├── IdempotencyConflict  the key is taken by a start with other content
│   └── StartBusy            another transaction holds the key for too long
├── NotFound                 no such run, step, lease, worker, app, project, key
│   ├── UnknownRun
│   ├── UnknownStep
│   ├── UnknownLease
│   ├── UnknownApp
│   ├── UnknownProject       no such organization, or no such project in it
│   ├── UnknownSchedule
│   ├── UnknownKey
│   ├── UnknownWorker        register again
│   └── UnknownDefinition    register again
├── KeyRefused               an API key that is none, or is none any more; `.reason` says which
├── NotPermitted             the key, or the person, lacks what the call needs; `.permissions` names it
├── AppConflict              what an app is does not allow the change; `.code` says which
│   ├── AppExists
│   ├── PartitionsShrink     partitions only grow
│   └── QueueFixed           an app keeps its queue
├── VerbRefused              the run's state does not allow the verb
│   └── RunTerminal          the run is over
├── LeaseRefused             one of the four refusals of a worker's call
├── RunEnded                 `result()` of a run that did not succeed
│   ├── RunFailed
│   ├── RunCancelled
│   └── RunTimedOut
├── ResultTimeout            `result(timeout)`: the run is not over yet
├── AlreadyStarted           `Worker.register` after `run()`
├── TransportError           a worker's call did not get an answer it can use
│   ├── Unavailable          try again later; `.retry_after` in seconds, or None
│   ├── SessionLost          the server does not know this worker session: register again
│   └── Rejected             the server refuses this worker for good
└── StepError                raised by bodies to say how a step failed
    ├── Retryable
    ├── Permanent
    ├── StepFailure          a class of the user's own
    ├── WaitTimeout          a durable function's wait timed out
    ├── StepFailed           a durable function's inner step failed for good
    └── ChildFailed          a durable function's child run did not succeed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any


class WorkflowsError(Exception):
    """The root of every error of this package."""


class InvalidWorkflow(WorkflowsError):
    """A definition with faults. `faults` holds every one of them, as text."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


class ExpressionError(WorkflowsError):
    """A CEL expression that does not compile, or that failed on its values."""


class InvalidPayload(WorkflowsError):
    """A value that no database here can keep unchanged. `path` names the place in it."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class PayloadTooLarge(InvalidPayload):
    """A value whose JSON text is over `MAX_PAYLOAD_BYTES`."""


class InvalidArgument(WorkflowsError):
    """An argument that a verb refuses. `field` names it."""

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"{field}: {reason}")


class StartError(WorkflowsError):
    """A run could not be started; nothing was written."""


class NoServer(StartError):
    """No engine in this process: Django is not set up, or the app is not installed."""


class UnknownWorkflow(StartError):
    """No workflow of that name is known to this process or stored for this app."""


class NotAvailable(StartError):
    """What is asked is something that this version, or this way to the server, refuses by name."""


class WorkflowNotAnnounced(StartError):
    """No worker of the app announced a workflow of that name within `ANNOUNCEMENT_TTL`."""

    code = "workflow_not_announced"


class ConcurrencyLimit(StartError):
    """All slots of the run's bucket are taken, and its workflow says `on_limit="reject"`: start it again once one is free."""

    code = "concurrency_limit"


class IdempotencyConflict(StartError):
    """The idempotency key belongs to a run with another payload or other labels."""


class StartBusy(StartError):
    """Another transaction has held the same idempotency key, the same full bucket's door, or the whole SQLite file, for over 5 seconds."""


class NotFound(WorkflowsError):
    """Nothing has that id here."""


class UnknownRun(NotFound):
    """No run has that id."""


class UnknownStep(NotFound):
    """The run has no step of that name."""


class UnknownLease(NotFound):
    """No lease has that id."""


class UnknownApp(NotFound):
    """No app has that name."""


class UnknownProject(NotFound):
    """No organization has that slug or id, or it has no such project, or the key that asks is another project's."""


class UnknownSchedule(NotFound):
    """No schedule has that id, or its workflow has that cron no longer."""


class UnknownKey(NotFound):
    """No key of the project has that prefix."""


class UnknownWorker(NotFound):
    """No live worker session has that id: register again."""


class UnknownDefinition(NotFound):
    """No stored definition is meant by that name and version: register again."""


class KeyRefused(WorkflowsError):
    """An API key that opens nothing. To its bearer all are one; `reason` tells them apart inside.

    `reason` is `malformed`, `unknown`, `expired` or `revoked`; `prefix` and `project_id` name the key where its secret was right, else None.
    """

    code = "unauthenticated"

    def __init__(self, reason: str, *, prefix: str | None = None, project_id: int | None = None) -> None:
        self.reason = reason
        self.prefix = prefix
        self.project_id = project_id
        super().__init__("the API key is missing, unknown, expired or revoked")


class NotPermitted(WorkflowsError):
    """The key, or the person, lacks `permissions`, which the call needs."""

    code = "forbidden"

    def __init__(self, permissions: Sequence[str], reason: str | None = None) -> None:
        self.permissions = tuple(permissions)
        super().__init__(reason or f"this needs {', '.join(self.permissions)}, which the key does not have")


class AppConflict(WorkflowsError):
    """What an app is does not allow the change; nothing was changed. `code` is stable."""

    code = "app_conflict"


class AppExists(AppConflict):
    """The project has an app of that name."""

    code = "app_exists"


class PartitionsShrink(AppConflict):
    """Partitions only grow: steps lie in those that exist."""

    code = "partitions_shrink"


class QueueFixed(AppConflict):
    """An app keeps the queue it was created with."""

    code = "queue_fixed"


class VerbRefused(WorkflowsError):
    """The state the run is in does not allow that verb; nothing was changed."""


class RunTerminal(VerbRefused):
    """The run is over."""


class LeaseRefused(WorkflowsError):
    """A worker's call on a lease was refused for one of the four reasons of `protocol.states.Refusal`.

    `reason` is the code, `outcome` the stored outcome where the reason is `already_applied`.
    """

    def __init__(self, reason: str, message: str, outcome: Mapping[str, Any] | None = None) -> None:
        self.reason = reason
        self.outcome = outcome
        super().__init__(message)


class RunEnded(WorkflowsError):
    """A run ended without a result. `run_id` names it, `failure` (a mapping or None) says why."""

    def __init__(self, message: str, run_id: str, failure: Mapping[str, Any] | None = None) -> None:
        self.run_id = run_id
        self.failure = failure
        super().__init__(message)


class RunFailed(RunEnded):
    """The run failed."""


class RunCancelled(RunEnded):
    """The run was cancelled."""


class RunTimedOut(RunEnded):
    """The run passed its deadline."""


class ResultTimeout(WorkflowsError, TimeoutError):
    """The run was not over within the time `result(timeout)` was given."""


class AlreadyStarted(WorkflowsError):
    """A workflow was registered on a worker that already runs."""


class TransportError(WorkflowsError):
    """A worker's call did not get an answer it can use."""


class Unavailable(TransportError):
    """The other side can't answer now. `retry_after` is the wait it asked for, in seconds, or None."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class SessionLost(TransportError):
    """The server does not know this worker session or one of its definitions: register again."""


class Rejected(TransportError):
    """The server refuses this worker for good; the message says what to do."""


class StepError(WorkflowsError):
    """What a body raises to say how its step failed. `failure_class` is stored and shown."""

    failure_class = "error"
    retry_after: timedelta | None = None


class Retryable(StepError):
    """A failure worth another attempt. `retry_after` (timedelta or seconds) is the least wait before it."""

    failure_class = "retryable"

    def __init__(self, message: str = "", *, retry_after: timedelta | float | None = None) -> None:
        super().__init__(message)
        self.retry_after = timedelta(seconds=retry_after) if isinstance(retry_after, (int, float)) else retry_after


class Permanent(StepError):
    """A failure that no attempt can mend; never retried."""

    failure_class = "permanent"


class StepFailure(StepError):
    """A failure of the user's own class: `kind` matches `[a-z0-9_]{1,64}` and is none of the engine's own."""

    def __init__(self, message: str = "", *, kind: str) -> None:
        super().__init__(message)
        self.failure_class = kind


class WaitTimeout(StepError):
    """A durable function's wait timed out."""

    failure_class = "timeout"


class StepFailed(StepError):
    """A durable function's inner step (`ctx.step`, an item of `ctx.map`) failed for good: the same on the first pass and on every replay.

    `step` is its name, `message` what its function said, `type` the dotted name of the exception that the function raised (or None).
    `failure_class` is the stored class, so one that nobody catches fails the run's step with it.
    """

    def __init__(self, message: str, *, step: str, failure_class: str, type: str | None = None) -> None:
        self.message = message
        self.step = step
        self.failure_class = failure_class
        self.type = type
        super().__init__(f"step {step}: {message}")


class ChildFailed(StepError):
    """A durable function's child run did not succeed. `run_id` names it, `failure` (a mapping or None) says why."""

    failure_class = "child_failed"

    def __init__(self, message: str, run_id: str, failure: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.failure = failure
