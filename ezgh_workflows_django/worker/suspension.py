"""What unwinds a body that is not over: none of it is an `Exception`, so no `except Exception` of a user's holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from ..protocol.durable import MAX_WAITS, WaitFor
from ..protocol.states import FailureClass, Mode, WaitKind


class Suspended(BaseException):
    """The pass ends here: the body parks on these waits, and is called again when they are met.

    `what` names what it waits for, in words. `goes_on` is for rehearsals: what the body would have done next. `late` is the difference where
    something of a gather is asked for too late: nothing comes of it, unless the body parks on that.
    """

    def __init__(self, what: str, waits: Sequence[WaitFor] = (), mode: Mode = Mode.ALL, *, goes_on: str | None = None, late: Broken | None = None) -> None:
        self.what = what
        self.waits = tuple(waits)
        self.mode = mode
        self.goes_on = goes_on
        self.late = late
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
    late = next((suspended.late for suspended in suspensions if suspended.late is not None), None)
    mode = Mode.ALL if patient else Mode.ANY
    return Suspended(_listed([each.what for each in suspensions]), tuple(waits.values()), mode, goes_on=goes_on, late=late)


def bounded(suspended: Suspended) -> Suspended:
    """The same with no more waits than one suspend may have: those that are left out are parked on in a later pass. Raises `Broken`.

    Where all have to come, the first go first. Where any may, only the next tries of steps can be left out, those that are due last: by then the
    body has been woken for the others.
    """
    waits = suspended.waits
    if len(waits) <= MAX_WAITS:
        return suspended
    if suspended.mode is Mode.ALL:
        return Suspended(suspended.what, waits[:MAX_WAITS], Mode.ALL)
    tries = sorted((wait for wait in waits if wait.kind == WaitKind.RETRY), key=_due)
    others = [wait for wait in waits if wait.kind != WaitKind.RETRY]
    if len(others) + bool(tries) > MAX_WAITS:
        why = f"the body parks on {suspended.what}, {len(waits):,} waits of which any may come first: one suspend has at most {MAX_WAITS:,}"
        raise Broken(FailureClass.PERMANENT, f"{why}. Ask for fewer at once")
    return Suspended(suspended.what, (*others, *tries[: MAX_WAITS - len(others)]), Mode.ANY)


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


def _due(wait: WaitFor) -> datetime:
    return wait.until or datetime.min.replace(tzinfo=UTC)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
