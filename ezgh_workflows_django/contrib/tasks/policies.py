"""How often and how long a task is tried: said for a backend in its `OPTIONS`, and for one function by `@policy`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeVar

from ...definitions.durations import Duration
from ...definitions.policies import Retry
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


def faults(options: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a backend's `OPTIONS`, but for the values of policies, which the definition of a workflow judges."""
    for name in options:
        if name not in OPTIONS:
            yield f"there is no option {name!r}: there are {', '.join(OPTIONS)}"
    retry = options.get("RETRY")
    known = {field.name for field in fields(Retry)}
    if isinstance(retry, Mapping) and not known >= set(retry):
        yield f"RETRY has no {', '.join(sorted(set(retry) - known))}: there are {', '.join(sorted(known))}"
    elif retry is not None and not isinstance(retry, (Retry, Mapping)):
        yield f"RETRY is {type(retry).__name__}, not a Retry or a dict of its arguments"
    modules = options.get(MODULES, ())
    if isinstance(modules, str) or not all(isinstance(name, str) for name in modules):
        yield f"{MODULES} is a list of dotted names"
