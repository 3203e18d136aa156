"""How often and how long a task is tried: said for a backend in its `OPTIONS`, and for one function by `@policy`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from ...definitions.durations import Duration
from ...definitions.graph import Step, Workflow
from ...definitions.policies import Retry
from ...errors import InvalidWorkflow
from ...protocol.states import Delivery

Function = TypeVar("Function", bound=Callable[..., Any])

_ATTRIBUTE: Final = "ezgh_workflows_policy"


@dataclass(frozen=True, slots=True)
class Policy:
    """The policies of a task's one step; None is what a step without any has: one attempt, no timeout of its own."""

    retry: Retry | None = None
    timeout: Duration | None = None
    delivery: str = Delivery.AT_LEAST_ONCE


def policy(*, retry: Retry | None = None, timeout: Duration | None = None, delivery: str | None = None) -> Callable[[Function], Function]:
    """Policies of one task, below its `@task`: what is given here goes before the backend's. Other backends do not see it.

    `timeout` is a timedelta or seconds, of one attempt; `delivery` is "at_least_once" or "at_most_once".
    """
    given = {name: value for name, value in (("retry", retry), ("timeout", timeout), ("delivery", delivery)) if value is not None}

    def mark(function: Function) -> Function:
        setattr(function, _ATTRIBUTE, given)
        return function

    return mark


def policy_of(function: Callable[..., Any], options: Mapping[str, Any]) -> Policy:
    """The policies of a function under a backend with these `OPTIONS`."""
    given = {name.lower(): value for name, value in options.items() if name in POLICY_OPTIONS}
    if isinstance(given.get("retry"), Mapping):
        given["retry"] = Retry(**given["retry"])
    return replace(Policy(), **(given | getattr(function, _ATTRIBUTE, {})))


POLICY_OPTIONS: Final = tuple(field.name.upper() for field in fields(Policy))
MODULES: Final = "MODULES"
OPTIONS: Final = (*POLICY_OPTIONS, MODULES)
"""`RETRY` (a `Retry` or the arguments of one), `TIMEOUT`, `DELIVERY`; `MODULES`, which hold tasks besides every app's `tasks`."""


def modules_of(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The modules of these `OPTIONS`; none where they are no list of names, which is a fault."""
    return tuple(options.get(MODULES, ())) if not list(_modules_faults(options)) else ()


def faults(options: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a backend's `OPTIONS`, but for the values of policies, which the definition of a workflow judges."""
    for name in options:
        if name not in OPTIONS:
            yield f"there is no option {name!r}: there are {', '.join(OPTIONS)}"
    retry = options.get("RETRY")
    known = sorted(field.name for field in fields(Retry))
    unknown = [str(name) for name in retry if name not in known] if isinstance(retry, Mapping) else []
    if unknown:
        yield f"RETRY has no {', '.join(sorted(unknown))}: there are {', '.join(known)}"
    elif retry is not None and not isinstance(retry, (Retry, Mapping)):
        yield f"RETRY is {type(retry).__name__}, not a Retry or a dict of its arguments"
    yield from _modules_faults(options)


def value_faults(options: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the values of `OPTIONS` that have none of `faults`. Imports no module but the packages around those of `MODULES`."""
    policy = policy_of(_nothing, options)
    try:
        Workflow("task", [Step("task", run=_nothing, retry=policy.retry, timeout=policy.timeout, delivery=policy.delivery)])
    except InvalidWorkflow as error:
        yield from (fault.removeprefix("workflow task, step task: ") for fault in error.faults)
    yield from (f"{MODULES}: there is no module {name!r}" for name in modules_of(options) if not _is_module(name))


def _modules_faults(options: Mapping[str, Any]) -> Iterator[str]:
    modules = options.get(MODULES, ())
    if isinstance(modules, str) or not isinstance(modules, Iterable) or not all(isinstance(name, str) for name in modules):
        yield f"{MODULES} is a list of dotted names"


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _nothing() -> None:
    """The body of no task."""
