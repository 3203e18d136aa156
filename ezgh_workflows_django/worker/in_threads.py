"""A sync body's manner: its words are driven in its own thread, its groups run in others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import wait
from contextvars import copy_context
from typing import Any, TypeVar

from ..errors import InvalidArgument
from .cancellation import Cancelled
from .keeper import Keeper
from .manner import Group, Member, Overran, drive, started
from .suspension import Deferred

T = TypeVar("T")


class InThreads:
    """A sync body's manner: in its own thread, its groups in others."""

    def __init__(self, keeper: Keeper | None, cancelled: Cancelled) -> None:
        self._keeper = keeper
        self._cancelled = cancelled

    def me(self) -> object:
        """See `Manner`."""
        return threading.get_ident()

    def give(self, word: Coroutine[Any, Any, Any]) -> Any:
        """See `Manner`."""
        return drive(word)

    def is_word(self, awaitable: object) -> bool:
        """Never known of a callable."""
        return False

    async def call(self, blocking: Callable[[], T]) -> T:
        """See `Manner`."""
        return blocking()

    async def function(self, call: Callable[[], Any], *, is_async: bool, seconds: float | None) -> Any:
        """See `Manner`."""
        if is_async:
            raise InvalidArgument("fn", "an async function can run in an async def body only")
        if seconds is None:
            return call()
        future = started(self._keeper, call)
        if not wait([future], seconds).done:
            assert self._keeper is not None
            self._keeper.leave(future)
            raise Overran
        return future.result()

    async def in_flight(self, work: Coroutine[Any, Any, T]) -> T:
        """See `Manner`."""
        return await work

    async def all(self, members: Sequence[Member[T]], limit: int) -> list[T]:
        """See `Manner`."""
        assert self._keeper is not None
        crew = _Crew(members)
        for _ in range(min(limit, len(members))):
            self._keeper.start(crew.work)
        crew.over.wait()
        return crew.results()

    async def hold_back(self, group: Group) -> None:
        """The member is called again, once the others have been."""
        raise Deferred

    async def pause(self, seconds: float) -> None:
        """See `Manner`."""
        self._cancelled.wait(seconds)

    async def quiet(self) -> None:
        """Nothing is: every group is waited for."""


class _Crew:
    """Threads that take members from one list, one after another; `over` is set when the last has ended."""

    def __init__(self, members: Sequence[Member[Any]]) -> None:
        # Each in a copy of the caller's context: made here, in the caller's thread.
        self._calls = [(index, copy_context(), member) for index, member in enumerate(members)]
        self._left = iter(self._calls)
        self._results: dict[int, Any] = {}
        self._lock = threading.Lock()
        self.over = threading.Event()
        if not self._calls:
            self.over.set()

    def work(self) -> None:
        """One thread's work."""
        while (call := self._next()) is not None:
            index, context, member = call
            result = context.run(_driven, member)
            with self._lock:
                self._results[index] = result
                if len(self._results) == len(self._calls):
                    self.over.set()

    def results(self) -> list[Any]:
        """What the members gave, in their order."""
        return [self._results[index] for index in range(len(self._calls))]

    def _next(self) -> Any:
        with self._lock:
            return next(self._left, None)


def _driven(member: Member[T]) -> T:
    return drive(member())
