"""`@workflow`: a durable function as a workflow of one step, named as the workflow. Runs nothing; calling it calls the function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypeVar

from ..errors import InvalidWorkflow
from ..protocol.states import Delivery
from . import names
from .durations import Duration
from .graph import Step, Workflow
from .policies import Concurrency, Cron, RateLimit, Retry
from .signatures import StandsFor

P = ParamSpec("P")
R = TypeVar("R")


class DurableFunction(Workflow, StandsFor, Generic[P, R]):
    """A workflow whose one step, named as itself, runs a function. Calling it calls the function. Made by `workflow`."""

    function: Callable[P, R]

    def __init__(self, function: Callable[P, R], name: str, *, delivery: str, transactional: bool, **options: Any) -> None:
        self.function = function
        step = Step(name, run=function, delivery=delivery, transactional=transactional)
        try:
            super().__init__(name, [step], **options)
        except InvalidWorkflow as error:
            raise InvalidWorkflow([_plainer(name, fault) for fault in error.faults]) from None
        self.place = _place(function) or self.place
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as it is written."""
        return self.function(*args, **kwargs)


def workflow(
    name: str,
    *,
    revision: str = "1",
    timeout: Duration | None = None,
    deadline: Duration | None = None,
    retry: Retry | None = None,
    on_failure: Callable[..., Any] | None = None,
    concurrency: Concurrency | None = None,
    cron: Cron | Sequence[Cron] | None = None,
    rate: RateLimit | None = None,
    delivery: str = Delivery.AT_LEAST_ONCE,
    transactional: bool = False,
    timeout_ms: int | None = None,
    deadline_ms: int | None = None,
) -> Callable[[Callable[P, R]], DurableFunction[P, R]]:
    """Make a function a workflow of one step, named as the workflow: a durable function where it uses `ctx.step` and its like.

    The options are those of `Workflow`, and of its one `Step`; `timeout_ms` and `deadline_ms` are `timeout` and `deadline` in milliseconds.
    Raises `InvalidWorkflow` with every fault.
    """
    options = {
        "revision": revision,
        "timeout": _either(name, "timeout", timeout, timeout_ms),
        "deadline": _either(name, "deadline", deadline, deadline_ms),
        "retry": retry,
        "on_failure": on_failure,
        "concurrency": concurrency,
        "cron": cron,
        "rate": rate,
    }

    def decorate(function: Callable[P, R]) -> DurableFunction[P, R]:
        return DurableFunction(function, name, delivery=delivery, transactional=transactional, **options)

    return decorate


def _either(workflow: str, what: str, duration: Duration | None, ms: int | None) -> Duration | None:
    if ms is None:
        return duration
    if duration is not None:
        raise InvalidWorkflow([f"workflow {workflow}: it has {what} and {what}_ms: give one"])
    try:
        return timedelta(milliseconds=ms)
    except (TypeError, ValueError, OverflowError):
        raise InvalidWorkflow([f"workflow {workflow}: {what}_ms: {ms!r} is no number of milliseconds"]) from None


def _plainer(name: str, fault: str) -> str:
    if fault != f"workflow {name}, step {name}: a step's name matches {names.STEP_PATTERN}":
        return fault
    return f"workflow {name}: a durable function's step is named as its workflow, so its name matches {names.STEP_PATTERN}"


def _place(function: Callable[..., Any]) -> str | None:
    """Where the function is written, as `module:line`; None for a callable that has no code of its own."""
    code = getattr(function, "__code__", None)
    return None if code is None else f"{function.__module__}:{code.co_firstlineno}"
