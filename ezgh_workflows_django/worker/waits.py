"""What a durable function waits for by itself: time and events. From what was asked to what is parked on, and from what came to what is given."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from ..definitions import validation
from ..definitions.durations import MAX_SPAN_MS, Duration, in_words, milliseconds, optional_milliseconds
from ..definitions.policies import Wait, key_text
from ..errors import InvalidArgument, WaitTimeout
from ..protocol.durable import MAX_NAME, Checkpoint, WaitFor
from ..protocol.states import CheckpointKind, Mode, WaitKind
from .durable import Pass
from .suspension import Suspended


class TimedOut(Enum):
    """The type of `TIMED_OUT`."""

    TIMED_OUT = "timed_out"

    def __repr__(self) -> str:
        return "TIMED_OUT"

    def __bool__(self) -> bool:
        return False


TIMED_OUT: Final = TimedOut.TIMED_OUT
"""What a wait with `on_timeout="continue"` gives when nothing came; no payload is it, not even null."""


class Arrived(NamedTuple):
    """What `ctx.wait_any` gives: the branch that came first, and its payload."""

    name: str
    payload: Any


async def sleep(home: Pass, name: str, duration: Duration) -> None:
    """Park for a while, from when it is first asked for."""
    for fault in validation.duration_faults("duration", duration, MAX_SPAN_MS, zero=True):
        raise InvalidArgument("duration", f"sleep `{name}`: {fault}")
    await _sleep(home, name, ms=milliseconds(duration))


async def sleep_until(home: Pass, name: str, moment: datetime) -> None:
    """Park until a moment, which may have passed."""
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidArgument("moment", f"sleep `{name}`: {moment!r:.80} is no moment: give a datetime with a time zone")
    await _sleep(home, name, until=moment.astimezone(UTC))


async def _sleep(home: Pass, name: str, *, ms: int | None = None, until: datetime | None = None) -> None:
    asked, stored = await home.ask(name, CheckpointKind.SLEEP)
    if stored is None or stored.is_open:
        raise home.suspend(Suspended(f"{asked}", [WaitFor(name=name, kind=WaitKind.SLEEP, pos=asked.pos, ms=ms, until=until)]))
    home.give(stored)


async def for_event(home: Pass, name: str, wait: Wait) -> Any:
    """The payload of an event, or `TIMED_OUT`. Raises `WaitTimeout`."""
    _check(name, wait)
    asked, stored = await home.ask(name, CheckpointKind.EVENT)
    if stored is None or stored.is_open:
        raise home.suspend(Suspended(f"{asked}", [_wait_for(name, asked.pos, wait)]))
    return _payload(home.give(stored), wait)


async def any_of(home: Pass, name: str, branches: Mapping[str, Wait]) -> Arrived:
    """The branch that comes first. Raises `WaitTimeout` where that is a timeout."""
    found = await _opened(home, "wait_any", name, branches)
    first = min((row for row in found.values() if not _is_open(row)), key=_moment, default=None)
    if first is None:
        raise home.suspend(_parked(f"wait `{name}`", found, branches, Mode.ANY))
    branch = next(branch for branch, row in found.items() if row is first)
    return Arrived(branch, _payload(home.give(first), branches[branch]))


async def all_of(home: Pass, name: str, branches: Mapping[str, Wait]) -> dict[str, Any]:
    """What came for each branch. Raises `WaitTimeout` for the first that timed out, once all have ended."""
    found = await _opened(home, "wait_all", name, branches)
    if any(_is_open(row) for row in found.values()):
        raise home.suspend(_parked(f"wait `{name}`", found, branches, Mode.ALL))
    by_moment = sorted(found, key=lambda branch: _moment(found[branch]))
    came = {branch: _payload(home.give(found[branch]), branches[branch]) for branch in by_moment}
    return {branch: came[branch] for branch in branches}


async def _opened(home: Pass, word: str, name: str, branches: Mapping[str, Wait]) -> dict[str, Checkpoint]:
    """What is stored of each branch; one that was never asked for is open."""
    if not branches:
        raise InvalidArgument("branches", f"{word} `{name}` waits for nothing: give it branches, each a Wait")
    for branch, wait in branches.items():
        if len(f"{name}[{branch}]") > MAX_NAME:
            raise InvalidArgument("branches", f"{word} `{name}`, branch `{branch}`: together, as name[branch], they have over {MAX_NAME} characters")
        _check(f"{name}[{branch}]", wait)
    members = {f"{name}[{branch}]" for branch in branches}
    strand = await home.may_ask(f"{word} `{name}`")
    pos = await home.open_group(strand, f"{word} `{name}`", name, members.__contains__)
    found: dict[str, Checkpoint] = {}
    for branch in branches:
        asked, stored = await home.ask(f"{name}[{branch}]", CheckpointKind.EVENT, pos)
        found[branch] = stored or Checkpoint(name=asked.name, pos=pos, kind=CheckpointKind.EVENT, is_open=True)
    return found


def _parked(what: str, found: Mapping[str, Checkpoint], branches: Mapping[str, Wait], mode: Mode) -> Suspended:
    waits = [_wait_for(row.name, row.pos, branches[branch]) for branch, row in found.items() if row.is_open]
    return Suspended(what, waits, mode)


def _wait_for(name: str, pos: int, wait: Wait) -> WaitFor:
    return WaitFor(
        name=name,
        kind=WaitKind.EVENT,
        pos=pos,
        event=wait.event,
        key=_key(wait),
        timeout_ms=optional_milliseconds(wait.timeout),
        on_timeout=wait.on_timeout,
        lookback_ms=optional_milliseconds(wait.lookback),
    )


def _payload(stored: Checkpoint, wait: Wait) -> Any:
    if not stored.timed_out:
        return stored.output
    if wait.on_timeout == "continue":
        return TIMED_OUT
    with_key = f" with key {_key(wait)}" if _key(wait) else ""
    after = f" after {in_words(milliseconds(wait.timeout))}" if wait.timeout is not None else ""
    raise WaitTimeout(f"wait {stored.name} timed out{after}: no event {wait.event}{with_key} came")


def _check(name: str, wait: Any) -> None:
    """Raise `InvalidArgument` for a wait that a body can't ask for."""
    if not isinstance(wait, Wait):
        raise InvalidArgument("wait", f"wait `{name}`: give a Wait, not {type(wait).__name__}")
    if wait.key_expr is not None or callable(wait.key):
        raise InvalidArgument(
            "key", f"wait `{name}`: within a body give the key itself: {'key_expr' if wait.key_expr else 'a callable'} is for steps of a graph"
        )
    for fault in validation.wait_faults(wait, ()):
        raise InvalidArgument("wait", f"wait `{name}`: {fault}")


def _key(wait: Wait) -> str:
    return "" if wait.key is None else key_text(wait.key)


def _is_open(row: Checkpoint) -> bool:
    return row.is_open


def _moment(row: Checkpoint) -> datetime:
    return row.at or datetime.max.replace(tzinfo=UTC)
