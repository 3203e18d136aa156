"""An async body's manner: its words are awaited on its event loop, blocking calls made in threads."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

from .cancellation import Cancelled, Why
from .keeper import Keeper
from .manner import Group, Member, Overran, started

T = TypeVar("T")


class OnLoop:
    """An async body's manner: on its event loop, blocking calls in threads."""

    def __init__(self, keeper: Keeper | None, cancelled: Cancelled) -> None:
        self._keeper = keeper
        self._cancelled = cancelled
        self._words: weakref.WeakSet[Any] = weakref.WeakSet()
        self._in_flight: set[asyncio.Task[Any]] = set()

    def me(self) -> object:
        """See `Manner`."""
        return asyncio.current_task()

    def give(self, word: Coroutine[Any, Any, Any]) -> Any:
        """See `Manner`."""
        self._words.add(word)
        return word

    def is_word(self, awaitable: object) -> bool:
        """See `Manner`."""
        return inspect.iscoroutine(awaitable) and awaitable in self._words

    async def call(self, blocking: Callable[[], T]) -> T:
        """See `Manner`."""
        return cast(T, await asyncio.wrap_future(started(self._keeper, blocking)))

    async def function(self, call: Callable[[], Any], *, is_async: bool, seconds: float | None) -> Any:
        """See `Manner`."""
        return await (_within(call, seconds) if is_async else self._in_thread(call, seconds))

    async def in_flight(self, work: Coroutine[Any, Any, T]) -> T:
        """See `Manner`."""
        task = asyncio.ensure_future(work)
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._cancelled.is_set():
                task.cancel()
            raise

    async def all(self, members: Sequence[Member[T]], limit: int) -> list[T]:
        """See `Manner`."""
        results: dict[int, T] = {}
        left = iter(enumerate(members))

        async def work() -> None:
            for index, member in left:
                results[index] = await asyncio.create_task(member())

        await asyncio.gather(*(work() for _ in range(min(limit, len(members)))))
        return [results[index] for index in range(len(members))]

    async def hold_back(self, group: Group) -> None:
        """See `Manner`."""
        turn = asyncio.get_running_loop().create_future()
        group.waiting.append(turn)
        group.rest()
        await turn

    async def pause(self, seconds: float) -> None:
        """See `Manner`."""
        await asyncio.sleep(seconds)

    async def quiet(self) -> None:
        """See `Manner`."""
        while self._in_flight:
            await asyncio.wait(set(self._in_flight))

    async def _in_thread(self, call: Callable[[], Any], seconds: float | None) -> Any:
        assert self._keeper is not None
        future = started(self._keeper, call)
        running = asyncio.wrap_future(future)
        try:
            done, _ = await asyncio.wait({running}, timeout=seconds)
        except asyncio.CancelledError:
            running.cancel()
            if self._cancelled.why is Why.TIMEOUT:
                self._keeper.leave(future)
            raise
        if not done:
            running.cancel()
            self._keeper.leave(future)
            raise Overran
        result = running.result()
        return await result if inspect.isawaitable(result) else result


async def _within(call: Callable[[], Awaitable[Any]], seconds: float | None) -> Any:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await call()
    except TimeoutError:
        if limit.expired():
            raise Overran from None
        raise
