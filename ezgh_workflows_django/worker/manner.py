"""The two manners of a body, sync and async, as one interface: the words of a durable function are written once, as coroutines.

A sync body's words never wait on an event loop, so they are driven where they are called; an async body's are given to it to await.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Protocol, TypeVar, cast

from .keeper import Keeper

T = TypeVar("T")
Member = Callable[[], Coroutine[Any, Any, T]]


class Overran(Exception):
    """A function did not end in its time."""


class Group:
    """The members of a gather at work, and those of them that wait for the others to ask for what is stored of them. Of one event loop.

    `is_stuck` says that all of them wait, or are over: what is stored and not asked for now never will be.
    """

    def __init__(self, pos: int, size: int) -> None:
        self.pos = pos
        self.active = size
        self.is_stuck = False
        self.waiting: list[asyncio.Future[None]] = []

    def release(self) -> None:
        """Let those that wait look again."""
        waiting, self.waiting = self.waiting, []
        self.active += len(waiting)
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def rest(self) -> None:
        """A member is over, or begins to wait."""
        self.active -= 1
        if self.active <= 0:
            self.is_stuck = True
            self.release()


class Manner(Protocol):
    """How a body's words run. What is raised comes through."""

    def me(self) -> object:
        """What runs here: a thread, or a task."""

    def give(self, word: Coroutine[Any, Any, Any]) -> Any:
        """A word's result, or what to await for it."""

    def is_word(self, awaitable: object) -> bool:
        """Whether this is a word alone, with nothing of the body's own after it."""

    async def call(self, blocking: Callable[[], T]) -> T:
        """Make a blocking call."""

    async def function(self, call: Callable[[], Any], *, is_async: bool, seconds: float | None) -> Any:
        """Run a user's function. Raises `Overran` after that many seconds; a sync one is then left behind in its thread."""

    async def in_flight(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry work through to its end, even where the body does not wait for it."""

    async def all(self, members: Sequence[Member[T]], limit: int) -> list[T]:
        """What the members give, at most `limit` of them at work at once. They raise nothing."""

    async def hold_back(self, group: Group) -> None:
        """Let the other members of the group go first."""

    async def pause(self, seconds: float) -> None:
        """Rest."""

    async def quiet(self) -> None:
        """Wait until nothing is in flight."""


def drive(word: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, without an event loop."""
    try:
        word.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    word.close()
    raise RuntimeError("a sync body's word waited; that can't happen")


def started(keeper: Keeper | None, call: Callable[[], T]) -> Future[T]:
    """The call, begun in a thread of the keeper's, in a copy of this context."""
    assert keeper is not None
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    context = copy_context()

    def run() -> None:
        try:
            result = context.run(call)
        except BaseException as error:  # noqa: BLE001 - it goes to who asked
            _settle(future, error)
        else:
            future.set_result(result)

    keeper.start(run)
    return future


def _settle(future: Future[Any], error: BaseException) -> None:
    # A StopIteration can't be raised into a coroutine: it comes as what Python itself makes of it.
    with suppress(Exception):
        future.set_exception(RuntimeError(f"the function raised {error!r}") if isinstance(error, StopIteration) else error)
