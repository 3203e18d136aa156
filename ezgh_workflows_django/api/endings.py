"""Requests that watch runs, until they are over or their journals have grown: one look for all of them now and then.

Where a run ends in this process, who waits for that is told at once.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from .. import dispatch
from ..engine.transactions import database
from ..models import Run
from ..protocol.states import TERMINAL_RUN
from .threads import threads

logger = logging.getLogger("ezgh_workflows.api")

LOOK_EVERY: Final = 0.5

Leave = Callable[[], bool]
"""Lets a request leave past Django with what it has. False where it can't."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a look found of a run; `seq` is that of the last entry of its journal."""

    is_over: bool
    seq: int


GONE: Final = Standing(is_over=True, seq=0)
"""A run that is no more: who watches it finds out by itself."""


@dataclass(slots=True, eq=False)
class Watcher:
    """A request that watches a run. With `after`, it is woken when the journal has gone beyond that `seq`, too."""

    after: int | None = None
    leave: Leave | None = None
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _is_closed: bool = False

    async def wait(self, seconds: float) -> bool:
        """Return when there is something to see, or the process is told to go, or after so many seconds: then False."""
        if not self._is_closed:
            self._woken.clear()  # what was rung before is in what the caller has read, or the next look rings again
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        return self._woken.is_set()

    def tell(self, standing: Standing) -> None:
        """Wake it, if that is what it waits for."""
        if standing.is_over or (self.after is not None and standing.seq > self.after):
            self._woken.set()

    def close(self) -> None:
        """Let it leave; where it can't, wake it for good."""
        if self.leave is not None and self.leave():
            return
        self._is_closed = True
        self._woken.set()


class Endings:
    """Who watches which run, on one event loop."""

    def __init__(self) -> None:
        self._watchers: dict[uuid.UUID, set[Watcher]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        dispatch.run_finished.connect(self._ended_here)  # weakly: it goes with this object

    @property
    def count(self) -> int:
        """How many requests watch here."""
        return sum(len(each) for each in self._watchers.values())

    async def wait(self, run_id: uuid.UUID, seconds: float, leave: Leave) -> None:
        """Return when the run is over, or after so many seconds. The caller looks at the run afterwards."""
        with self.watch(run_id, leave=leave) as watcher:
            await watcher.wait(seconds)

    @contextmanager
    def watch(self, run_id: uuid.UUID, after: int | None = None, leave: Leave | None = None) -> Iterator[Watcher]:
        """A place for a request, for as long as the block lasts."""
        watcher = Watcher(after, leave)
        self._watchers[run_id].add(watcher)
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._look(), name="ezgh-workflows-endings")
        try:
            yield watcher
        finally:
            self._watchers[run_id].discard(watcher)
            if not self._watchers[run_id]:
                del self._watchers[run_id]

    def close(self) -> None:
        """Answer everybody who waits."""
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.close()

    async def _look(self) -> None:
        while self._watchers:
            wanted = list(self._watchers)
            try:
                found = await threads.run(lambda wanted=wanted: _standings(wanted))  # type: ignore[misc]
                for run_id in wanted:
                    self._tell(run_id, found.get(run_id, GONE))
            except Exception:  # the database is away: those who wait go on waiting
                logger.warning("could not look how runs stand; looking again in %.1f s", LOOK_EVERY, exc_info=True)
            await asyncio.sleep(LOOK_EVERY)

    def _ended_here(self, run_id: str, **_: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell, uuid.UUID(run_id), Standing(is_over=True, seq=0))

    def _tell(self, run_id: uuid.UUID, standing: Standing) -> None:
        for watcher in self._watchers.get(run_id, ()):
            watcher.tell(standing)


def _standings(run_ids: list[uuid.UUID]) -> Mapping[uuid.UUID, Standing]:
    rows = Run.objects.using(database()).filter(pk__in=run_ids).values_list("pk", "status", "journal_seq")
    return {pk: Standing(is_over=status in TERMINAL_RUN, seq=seq) for pk, status, seq in rows}
