"""`ctx.map` and `ctx.gather`: things of one place, side by side. One that parks does not stop the others; the pass parks when all have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ..errors import InvalidArgument
from . import inner_steps
from .durable import Pass
from .inner_steps import Work
from .manner import Group
from .notes import Notes
from .strands import Strand, enter
from .suspension import Broken, Deferred, Unwound, combined, is_suspension

CONCURRENCY: Final = 10
"""Items of a map that are at work at once, where it says nothing."""

THREADS: Final = 32
"""Callables of a sync body's gather that are at work at once; the others wait for their turn."""

Member = Callable[[], Awaitable[Any]]


@dataclass(slots=True)
class _End:
    """How a member ended."""

    strand: Strand
    value: Any = None
    error: BaseException | None = None


async def map_items(home: Pass, name: str, work: Work, items: Iterable[Any], concurrency: int | None) -> list[Any]:
    """An inner step for each item, named `name[index]`; their results, in order. Raises what the first to fail raised, once all have ended."""
    if concurrency is not None and (isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1):
        raise InvalidArgument("concurrency", f"map `{name}`: {concurrency!r} at once is none: give 1 or more")
    given = list(items)
    strand = await home.may_ask(f"map `{name}`")
    names = {f"{name}[{index}]" for index in range(len(given))}
    pos = await home.open_group(strand, f"`{name}` with {len(given)} items", name, names.__contains__)
    members = [partial(inner_steps.step, home, f"{name}[{index}]", inner_steps.with_arguments(work, (item,), {})) for index, item in enumerate(given)]
    return await _run(home, strand, pos, members, limit=concurrency or CONCURRENCY, what="map", plain=[True] * len(given))


async def gather(home: Pass, members: Sequence[Any], *, is_async: bool, return_exceptions: bool) -> list[Any]:
    """What the members give, in order: awaitables, or in a sync body callables. As `map_items` about failures; or they are given as values."""
    try:
        _check(members, is_async)
        strand = await home.may_ask("a gather")
        pos = await home.open_group(strand, "a gather")
    except BaseException:
        _close(members)
        raise
    plain = [home.manner.is_word(member) for member in members]
    calls = [partial(_awaited, member) if is_async else partial(_called, member) for member in members]
    limit = max(1, len(members)) if is_async else THREADS
    return await _run(home, strand, pos, calls, limit=limit, what="gather", plain=plain, return_exceptions=return_exceptions)


async def _run(
    home: Pass, parent: Strand, pos: int, members: Sequence[Member], *, limit: int, what: str, plain: Sequence[bool], return_exceptions: bool = False
) -> list[Any]:
    is_own = parent.pos is None  # a group within a group shares the place of that, which is looked after there
    group = Group(pos, len(members)) if is_own and what == "gather" else None
    number = parent.groups
    ends = await _all_ended(home, parent, pos, members, group, limit)
    parent.now = max([parent.now, *(end.strand.now for end in ends)])
    parent.notes.absorb(end.strand.notes for end in ends)
    for end in ends:
        if isinstance(end.error, (Broken, Unwound, Deferred)):
            raise end.error
    if is_own:
        home.close_group(pos, what)
    parked, failed = _parked(ends), _failures(ends, return_exceptions=return_exceptions)
    if parked and not failed:
        suspensions = [combined(ends[index].strand.suspensions, plain=False) for index in parked]
        raise home.suspend(combined(suspensions, plain=all(plain[index] for index in parked)))
    parent.notes.turn(f"[{number}]")
    if failed:
        # The one that failed first, by what it was given until then: in a later pass another may have failed, too.
        first = min(failed, key=lambda end: end.strand.now).error
        assert first is not None
        raise first
    return [end.value if end.error is None else end.error for end in ends]


async def _all_ended(home: Pass, parent: Strand, pos: int, members: Sequence[Member], group: Group | None, limit: int) -> list[_End]:
    """How the members ended. Those that were held back are called again, as long as that brings anything."""
    ends: dict[int, _End] = {}
    to_call: Sequence[int] = range(len(members))
    while to_call:
        left = home.order.left(pos)
        strands = [_strand(home, parent, parent.member_path(index), pos, group) for index in to_call]
        calls = [partial(_one, home, strand, members[index]) for index, strand in zip(to_call, strands, strict=True)]
        ends |= zip(to_call, await home.manner.all(calls, limit), strict=True)
        again = [index for index in to_call if isinstance(ends[index].error, Deferred)] if group is not None else []
        if len(again) == len(to_call) and left == home.order.left(pos):
            home.close_group(pos, "gather")
        for index in again:
            home.call_again(ends[index].strand)
        to_call = again
    return [ends[index] for index in range(len(members))]


def _strand(home: Pass, parent: Strand, path: str, pos: int, group: Group | None) -> Strand:
    notes = Notes(home.lease.span_id, path, home.sent)
    return Strand(home, path, parent.now, notes, parent=parent, pos=pos, group=group)


async def _one(home: Pass, strand: Strand, member: Member) -> _End:
    """Run one member to its end, whatever that is."""
    enter(strand)
    strand.owner = home.manner.me()
    end = _End(strand)
    try:
        end.value = await member()
    except BaseException as error:  # noqa: BLE001 - the group looks at how all its members ended
        end.error = error
        if isinstance(error, asyncio.CancelledError) and home.cancelled.is_set():
            end.error = Unwound("the body was told to stop")
    if strand.suspensions and not (end.error is not None and (is_suspension(end.error) or isinstance(end.error, (Broken, Unwound, Deferred)))):
        end.error = home.swallowed(strand, "a member of its group returned instead" if end.error is None else "did not let that pass", end.error)
    if isinstance(strand.group, Group):
        strand.group.rest()
    return end


def _parked(ends: Sequence[_End]) -> list[int]:
    """The members that park."""
    return [index for index, end in enumerate(ends) if end.error is not None and is_suspension(end.error)]


def _failures(ends: Sequence[_End], *, return_exceptions: bool) -> list[_End]:
    """The members whose failure is the group's."""
    failed = [end for end in ends if end.error is not None and not is_suspension(end.error)]
    return [end for end in failed if not isinstance(end.error, Exception)] if return_exceptions else failed


async def _awaited(member: Awaitable[Any]) -> Any:
    return await member


async def _called(member: Callable[[], Any]) -> Any:
    return member()


def _check(members: Sequence[Any], is_async: bool) -> None:
    for member in members:
        if is_async and not hasattr(member, "__await__"):
            raise InvalidArgument("gather", f"{member!r:.80} can't be awaited: give ctx.step(…) and the like, or coroutines that use ctx")
        if not is_async and not callable(member):
            raise InvalidArgument("gather", f"{member!r:.80} can't be called: give callables without arguments, such as lambda: ctx.step(…)")


def _close(members: Sequence[Any]) -> None:
    """Coroutines that will never be awaited, said so."""
    for member in members:
        if asyncio.iscoroutine(member):
            member.close()
