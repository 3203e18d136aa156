"""Durable workflows for Django: the words a user writes. Importing them needs no Django and no settings.

A name is imported when it is first asked for, so a process pays for what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .definitions.function import workflow
    from .definitions.graph import Step, Workflow
    from .definitions.policies import Concurrency, Cron, RateLimit, Retry, Sleep, Wait
    from .definitions.seam import RunHandle, aemit, aget_run, astart_run, emit, get_run, runs_of, start_run
    from .definitions.starts import Start
    from .errors import (
        ChildFailed,
        IdempotencyConflict,
        InvalidWorkflow,
        Permanent,
        Retryable,
        RunCancelled,
        RunFailed,
        RunTimedOut,
        StepFailed,
        StepFailure,
        WaitTimeout,
        WorkflowsError,
    )
    from .worker import Worker
    from .worker.client import Client
    from .worker.context import Context, StepInfo, step_info, with_step_info
    from .worker.waits import TIMED_OUT, Arrived

__version__ = "0.1.0"

__all__ = [
    "TIMED_OUT",
    "Arrived",
    "ChildFailed",
    "Client",
    "Concurrency",
    "Context",
    "Cron",
    "IdempotencyConflict",
    "InvalidWorkflow",
    "Permanent",
    "RateLimit",
    "Retry",
    "Retryable",
    "RunCancelled",
    "RunFailed",
    "RunHandle",
    "RunTimedOut",
    "Sleep",
    "Start",
    "Step",
    "StepFailed",
    "StepFailure",
    "StepInfo",
    "Wait",
    "WaitTimeout",
    "Worker",
    "Workflow",
    "WorkflowsError",
    "aemit",
    "aget_run",
    "astart_run",
    "emit",
    "get_run",
    "runs_of",
    "start_run",
    "step_info",
    "with_step_info",
    "workflow",
]

_MODULES = {
    "definitions.function": ("workflow",),
    "definitions.graph": ("Step", "Workflow"),
    "definitions.policies": ("Concurrency", "Cron", "RateLimit", "Retry", "Sleep", "Wait"),
    "definitions.seam": ("RunHandle", "aemit", "aget_run", "astart_run", "emit", "get_run", "runs_of", "start_run"),
    "definitions.starts": ("Start",),
    "errors": (
        "ChildFailed",
        "IdempotencyConflict",
        "InvalidWorkflow",
        "Permanent",
        "Retryable",
        "RunCancelled",
        "RunFailed",
        "RunTimedOut",
        "StepFailed",
        "StepFailure",
        "WaitTimeout",
        "WorkflowsError",
    ),
    "worker": ("Worker",),
    "worker.client": ("Client",),
    "worker.context": ("Context", "StepInfo", "step_info", "with_step_info"),
    "worker.waits": ("TIMED_OUT", "Arrived"),
}
_HOMES = {name: module for module, exported in _MODULES.items() for name in exported}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
