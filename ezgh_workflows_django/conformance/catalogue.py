"""The checks there are: plain functions, registered by `@check`. Knows none of them by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from ..errors import InvalidArgument

if TYPE_CHECKING:
    from .bench import Bench
    from .shapes import Durations

Body = Callable[["Bench"], None]
Seconds = Callable[["Durations"], float]


@dataclass(frozen=True, slots=True)
class Check:
    """One promise and the function that looks whether a server keeps it.

    `name` is stable: it is the function's, with dashes. `promise` is one sentence, `page` the page of the specification that it is from.
    `takes` gives the seconds that the check has to wait, from the server's own durations; None: it waits for nothing.
    """

    name: str
    promise: str
    page: str
    body: Body
    takes: Seconds | None = None


CHECKS: Final[dict[str, Check]] = {}
"""Every check by its name, in the order of their files."""


def check(page: str, *, takes: Seconds | None = None) -> Callable[[Body], Body]:
    """Register a function as a check. Its docstring is the promise; it raises `Mismatch` where the server does not keep it, or `NotApplicable`."""

    def register(body: Body) -> Body:
        name = body.__name__.replace("_", "-")
        if name in CHECKS:
            raise ValueError(f"two checks are named {name}")
        CHECKS[name] = Check(name, " ".join((inspect.getdoc(body) or "").split()), page, body, takes)
        return body

    return register


def chosen(patterns: Iterable[str]) -> list[Check]:
    """The checks that one of these patterns means (`claim-*`), in their order; all of them for none. Raises `InvalidArgument` for one that means none."""
    wanted = list(patterns)
    idle = [pattern for pattern in wanted if not any(fnmatchcase(name, pattern) for name in CHECKS)]
    if idle:
        raise InvalidArgument("only", f"no check is named {', '.join(idle)}: --list names them all")
    return [each for name, each in CHECKS.items() if not wanted or any(fnmatchcase(name, pattern) for pattern in wanted)]
