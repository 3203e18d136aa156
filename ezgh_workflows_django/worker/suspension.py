"""What unwinds a body that is not over: none of it is an `Exception`, so no `except Exception` of a user's holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from ..protocol.messages import WaitFor
from ..protocol.states import Mode


class Suspended(BaseException):
    """The pass ends here: the body parks on these waits, and is called again when they are met.

    `what` names what it waits for, in words. `goes_on` is for rehearsals: what the body would have done next.
    """

    def __init__(self, what: str, waits: Sequence[WaitFor] = (), mode: Mode = Mode.ALL, *, goes_on: str | None = None) -> None:
        self.what = what
        self.waits = tuple(waits)
        self.mode = mode
        self.goes_on = goes_on
        super().__init__(f"the body parks on {what}")


class Unwound(BaseException):
    """The body was told to stop (the lease is lost, the run over, the time up, the worker stopping), and does so here."""


class Broken(BaseException):
    """The pass has failed, whatever the body does about it: `class_` and the message are its outcome."""

    def __init__(self, class_: str, message: str) -> None:
        self.class_ = class_
        super().__init__(message)


class Deferred(BaseException):
    """A member of a group asks for something new while results of its siblings are still to be asked for: it is called again after them."""


def combined(suspensions: Sequence[Suspended], *, plain: bool) -> Suspended:
    """What a group parks on, whose members park on these. `plain` says that nothing of the body's own comes after any of them in the group.

    Plain waits are all waited for; where a member could go on when its own has come, any of them wakes the body.
    """
    if len(suspensions) == 1:
        return suspensions[0]
    waits = {wait.name: wait for suspended in suspensions for wait in suspended.waits}
    patient = plain and all(suspended.mode is Mode.ALL for suspended in suspensions)
    goes_on = next((suspended.goes_on for suspended in suspensions if suspended.goes_on is not None), None)
    return Suspended(_listed([each.what for each in suspensions]), tuple(waits.values()), Mode.ALL if patient else Mode.ANY, goes_on=goes_on)


def is_suspension(error: BaseException) -> bool:
    """Whether this is a suspension, be it in a group such as a `TaskGroup` makes of it, with the tasks it cancelled."""
    leaves = list(_leaves(error))
    suspended = [leaf for leaf in leaves if isinstance(leaf, Suspended)]
    return bool(suspended) and all(isinstance(leaf, (Suspended, asyncio.CancelledError)) for leaf in leaves)


def suspensions_in(error: BaseException) -> Sequence[Suspended]:
    """The suspensions that this is, or holds."""
    return [leaf for leaf in _leaves(error) if isinstance(leaf, Suspended)]


def _leaves(error: BaseException) -> Iterable[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
