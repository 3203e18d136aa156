"""Requests that wait for runs to be over: one look for all of them now and then, and at once where a run ends in this process."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import defaultdict
from typing import Any, Final

from .. import dispatch
from ..engine.transactions import database
from ..models import Run
from ..protocol.states import TERMINAL_RUN
from .threads import threads

logger = logging.getLogger("ezgh_workflows.api")

LOOK_EVERY: Final = 0.5


class Endings:
    """Who waits for which run, on one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[uuid.UUID, set[asyncio.Future[None]]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        dispatch.run_finished.connect(self._ended_here)  # weakly: it goes with this object

    @property
    def count(self) -> int:
        """How many requests wait here."""
        return sum(len(each) for each in self._waiting.values())

    async def wait(self, run_id: uuid.UUID, seconds: float) -> None:
        """Return when the run is over, or after so many seconds. The caller looks at the run afterwards."""
        future = self._loop.create_future()
        self._waiting[run_id].add(future)
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._look(), name="ezgh-workflows-endings")
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            self._waiting[run_id].discard(future)
            if not self._waiting[run_id]:
                del self._waiting[run_id]

    def close(self) -> None:
        """Answer everybody who waits."""
        for run_id in list(self._waiting):
            self._over(run_id)

    async def _look(self) -> None:
        while self._waiting:
            wanted = list(self._waiting)
            try:
                for run_id in await threads.run(lambda wanted=wanted: _over(wanted)):  # type: ignore[misc]
                    self._over(run_id)
            except Exception:  # the database is away: those who wait go on waiting
                logger.warning("could not look whether runs are over; looking again in %.1f s", LOOK_EVERY, exc_info=True)
            await asyncio.sleep(LOOK_EVERY)

    def _ended_here(self, run_id: str, **_: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._over, uuid.UUID(run_id))

    def _over(self, run_id: uuid.UUID) -> None:
        for future in self._waiting.get(run_id, ()):
            if not future.done():
                future.set_result(None)


def _over(run_ids: list[uuid.UUID]) -> list[uuid.UUID]:
    return list(Run.objects.using(database()).filter(pk__in=run_ids, status__in=TERMINAL_RUN).values_list("pk", flat=True))
