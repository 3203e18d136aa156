"""States, and the table of moves between them, as data.

The engine makes moves, the worker reads them, the docs draw them, and one test walks every pair (spec: engine.md "States").
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class RunStatus(StrEnum):
    """Where one execution is."""

    QUEUED = "queued"  # waits for its time or a concurrency slot
    RUNNING = "running"
    PAUSED = "paused"  # by an operator, or needing attention
    FAILING = "failing"  # `on_failure` is at work
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class StepStatus(StrEnum):
    """Where one node of a run's graph is."""

    BLOCKED = "blocked"  # a parent has not succeeded yet
    READY = "ready"  # claimable from `available_at`
    LEASED = "leased"
    WAITING = "waiting"
    SLEEPING = "sleeping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class LeaseStatus(StrEnum):
    """How one attempt stands, or how it ended."""

    OFFERED = "offered"  # handed out, the body has not begun
    STARTED = "started"
    ORPHANED = "orphaned"  # its heartbeats stopped; it may live again
    COMPLETED = "completed"
    FAILED = "failed"
    SUSPENDED = "suspended"
    RETURNED = "returned"
    UNSERVABLE = "unservable"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"  # cut short by the run's end, a sibling's failure or an operator
    RECLAIMED = "reclaimed"


class StepKind(StrEnum):
    """What a node does. `on_failure` is the step that compensation runs in."""

    RUN = "run"
    WAIT = "wait"
    SLEEP = "sleep"
    ON_FAILURE = "on_failure"


class CheckpointKind(StrEnum):
    """What a durable function asked for when the checkpoint was made."""

    STEP = "step"
    SLEEP = "sleep"
    EVENT = "event"
    CHILD = "child"  # one child run
    BATCH = "batch"  # many child runs under one name


class WaitKind(StrEnum):
    """What a parked step waits for. `retry` is a checkpoint that failed and is to be tried again."""

    SLEEP = "sleep"
    EVENT = "event"
    CHILD = "child"
    RETRY = "retry"


class Mode(StrEnum):
    """When a parked step is ready again: all its waits are met, or any of them."""

    ALL = "all"
    ANY = "any"


class Delivery(StrEnum):
    """What a lost attempt means for its step."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class Refusal(StrEnum):
    """The four reasons a worker's call is refused for; the list is closed."""

    ALREADY_APPLIED = "already_applied"
    FENCED = "fenced"
    RUN_TERMINAL = "run_terminal"
    NOT_STARTED = "not_started"


class FailureClass(StrEnum):
    """The classes the engine knows; users add their own, `[a-z0-9_]{1,64}`."""

    RETRYABLE = "retryable"
    PERMANENT = "permanent"
    ERROR = "error"
    TIMEOUT = "timeout"
    UNSERVABLE = "unservable"
    RETURNED = "returned"
    NONDETERMINISM = "nondeterminism"
    CRASHED = "crashed"
    ORPHANED = "orphaned"
    POISON = "poison"
    DEADLINE = "deadline"


TERMINAL_RUN: Final = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.TIMED_OUT})
LIVE_RUN: Final = frozenset(RunStatus) - TERMINAL_RUN
TERMINAL_STEP: Final = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.CANCELLED})
LIVE_LEASE: Final = frozenset({LeaseStatus.OFFERED, LeaseStatus.STARTED, LeaseStatus.ORPHANED})

ENGINE_CLASSES: Final = frozenset({FailureClass.ORPHANED, FailureClass.POISON, FailureClass.DEADLINE})
"""Only the engine gives these; a worker that reports one is refused."""

HOPELESS_CLASSES: Final = frozenset({FailureClass.PERMANENT, FailureClass.NONDETERMINISM, FailureClass.POISON})
"""No attempt can mend these, so no policy retries them."""

RUN_MOVES: Final[dict[RunStatus, frozenset[RunStatus]]] = {
    RunStatus.QUEUED: frozenset({RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.FAILING, *TERMINAL_RUN}),
    RunStatus.RUNNING: frozenset({RunStatus.PAUSED, RunStatus.FAILING, *TERMINAL_RUN}),
    RunStatus.PAUSED: frozenset({RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.FAILING, *TERMINAL_RUN}),
    RunStatus.FAILING: frozenset({RunStatus.PAUSED, RunStatus.FAILED, RunStatus.TIMED_OUT}),
    # A terminal run moves again only by `retry` or `resolve`, which open a new episode; where its workflow has limits it is to be let in again.
    RunStatus.SUCCEEDED: frozenset({RunStatus.RUNNING, RunStatus.QUEUED}),
    RunStatus.FAILED: frozenset({RunStatus.RUNNING, RunStatus.QUEUED}),
    RunStatus.CANCELLED: frozenset({RunStatus.RUNNING, RunStatus.QUEUED}),
    RunStatus.TIMED_OUT: frozenset({RunStatus.RUNNING, RunStatus.QUEUED}),
}
