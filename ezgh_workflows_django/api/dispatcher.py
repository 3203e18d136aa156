"""Looks for work for all the held claims of one app: one look where nothing is to be had, however many wait.

Claims that ask for the same (revisions, steps, bans, run) share their looks; those that differ in the run alone share one that tells which of their
runs have something. What a claim was given while its client went away goes back at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ..engine import leases, outcomes, wakeups
from ..protocol.messages import Claimed, Lease
from ..protocol.outcomes import Outcome, Report
from .threads import threads

logger = logging.getLogger("ezgh_workflows.api")

NOTHING: Final = Claimed()
MANY: Final = 256
IDLE_AFTER: Final = 60.0
"""Seconds after which a look that nobody shares any more is forgotten, where many are remembered."""

T = TypeVar("T")

Served = tuple[frozenset[tuple[int, frozenset[str] | None]], frozenset[int]]
"""Which revisions, each with its steps, and which definitions it is not offered."""

Key = tuple[Served, uuid.UUID | None]
"""What a claim asks for: claims of one key find the same."""

Leave = Callable[[Claimed], bool]
"""Lets a held claim leave with that, past Django. False where it can't."""


@dataclass(slots=True)
class Waiter:
    """A claim that is held. One that `has_left` has its answer, and is not waited for."""

    call: leases.Claim
    leave: Leave
    answer: asyncio.Future[Claimed]
    has_left: bool = False

    @property
    def is_answered(self) -> bool:
        """Whether nothing more can be given to it."""
        return self.answer.done() or self.has_left

    @property
    def key(self) -> Key:
        """What it asks for."""
        return key_of(self.call)


@dataclass(slots=True)
class Looked:
    """The last look of a key that found nothing: how often the bell had rung before it, and when the next is due (monotonic seconds)."""

    rings: int
    at: float
    due_at: float


@dataclass(slots=True)
class Dispatcher:
    """The held claims of one app, in the order in which they came."""

    app_id: int
    _waiting: list[Waiter] = field(default_factory=list)
    _looked: dict[Key, Looked] = field(default_factory=dict)
    _rung: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """How many claims wait here."""
        return len(self._waiting)

    def knows_empty(self, call: leases.Claim) -> bool:
        """Whether a look has just found nothing for such a claim, and nothing can have changed since without a ring."""
        return self._is_empty(key_of(call))

    def found_nothing(self, call: leases.Claim, rings: int, due_in: float) -> None:
        """Remember a look that found nothing; `rings` is from before it."""
        now = time.monotonic()
        self._looked[key_of(call)] = Looked(rings, now, now + min(due_in, wakeups.listener.patience))

    async def wait(self, call: leases.Claim, seconds: float, leave: Leave) -> Claimed:
        """Hold a claim until there is something for it, at most so long. Cancelled, it gives back what it had been given meanwhile."""
        waiter = Waiter(call, leave, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._rung.set()  # the round that comes takes it in
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._serve(), name=f"ezgh-workflows-claims-{self.app_id}")
        try:
            await asyncio.wait([waiter.answer], timeout=seconds)
            return waiter.answer.result() if waiter.answer.done() else NOTHING
        except asyncio.CancelledError:
            if waiter.answer.done() and not waiter.has_left:
                give_back(waiter.answer.result().leases)
            raise
        finally:
            self._waiting.remove(waiter)
            if not waiter.answer.done():
                waiter.answer.cancel()

    def ring(self) -> None:
        """There may be work."""
        self._rung.set()

    def close(self) -> None:
        """Answer everybody who waits."""
        for waiter in self._waiting:
            waiter.has_left = waiter.leave(waiter.answer.result() if waiter.answer.done() else NOTHING)
            if not waiter.is_answered:
                waiter.answer.set_result(NOTHING)

    async def _serve(self) -> None:
        while self._waiting:
            self._rung.clear()
            for key in await self._promising():
                await self._hand_out(key)
            self._forget()
            await self._pause()

    async def _promising(self) -> list[Key]:
        """What is to be looked for, in the order in which it was first asked for: of one run only where that was found to have something."""
        waiting = {waiter.key: waiter.call for waiter in self._waiting if not waiter.is_answered}
        asked = {key: call for key, call in waiting.items() if not self._is_empty(key)}
        of_runs: dict[Served, list[leases.Claim]] = defaultdict(list)
        for (served, run_id), call in asked.items():
            if run_id is not None:
                of_runs[served].append(call)
        idle = {key for calls in of_runs.values() for key in await self._without_work(calls)}
        return [key for key in asked if key not in idle]

    async def _without_work(self, calls: Sequence[leases.Claim]) -> list[Key]:
        """The keys of those of these claims, alike but for their runs, whose run has nothing."""
        keys, rings = [key_of(call) for call in calls], wakeups.bell.rings(self.app_id)
        looked = await self._look(keys, rings, lambda: leases.without_work(calls))
        if looked is None:
            return keys
        idle, due_in = looked
        for call in idle:
            self.found_nothing(call, rings, due_in)
        return [key_of(call) for call in idle]

    async def _hand_out(self, key: Key) -> None:
        """Look for the claims of one key, in their order, until one finds nothing. Those that come meanwhile have the next round: other keys come first."""
        for waiter in [each for each in self._waiting if each.key == key]:
            if waiter.is_answered:
                continue
            if self.knows_empty(waiter.call):
                return
            rings = wakeups.bell.rings(self.app_id)
            looked = await self._look([key], rings, look_of(waiter.call))
            if looked is None:
                return
            call, claimed, due_in = looked
            if call is None or claimed.leases:
                if waiter.is_answered:  # it went away meanwhile
                    give_back(claimed.leases)
                else:
                    waiter.answer.set_result(claimed)
                continue
            waiter.call = call
            self.found_nothing(call, rings, due_in)
            if waiter.key == key:
                return

    def _is_empty(self, key: Key) -> bool:
        looked = self._looked.get(key)
        return looked is not None and looked.rings == wakeups.bell.rings(self.app_id) and time.monotonic() < looked.due_at

    async def _look(self, keys: Iterable[Key], rings: int, look: Callable[[], T]) -> T | None:
        """What a look for these keys gives. None where it failed: those who wait go on waiting, and are looked for again soon."""
        try:
            return await threads.run(look)
        except Exception:  # a database that is away, or one bad row: everybody is looked for again
            logger.warning("could not look for work for app %s; looking again in %.1f s", self.app_id, wakeups.LOOK_EVERY, exc_info=True)
            now = time.monotonic()
            self._looked.update(dict.fromkeys(keys, Looked(rings, now, now + wakeups.LOOK_EVERY)))
            return None

    async def _pause(self) -> None:
        """Until the bell rings, or the first look is due."""
        keys = {waiter.key for waiter in self._waiting if not waiter.answer.done()}
        due_at = min((self._looked[key].due_at for key in keys if key in self._looked), default=time.monotonic() + wakeups.LOOK_EVERY)
        try:
            async with asyncio.timeout(max(0.01, due_at - time.monotonic())):
                await self._rung.wait()
        except TimeoutError:
            return

    def _forget(self) -> None:
        if len(self._looked) < MANY:
            return
        long_ago = time.monotonic() - IDLE_AFTER
        self._looked = {key: looked for key, looked in self._looked.items() if looked.at > long_ago}


def key_of(call: leases.Claim) -> Key:
    """What a claim asks for."""
    return (frozenset(call.serving.items()), call.session.banned), call.run_id


def look_of(call: leases.Claim) -> Callable[[], tuple[leases.Claim | None, Claimed, float]]:
    """One look, and how many seconds hence the next step that is known becomes available, where that is to be known."""

    def look() -> tuple[leases.Claim | None, Claimed, float]:
        now, claimed = call.look_again()
        return now, claimed, 0.0 if now is None or claimed.leases else now.seconds_to_next()

    return look


def give_back(given: Sequence[Lease]) -> None:
    """Have leases handed back that nobody has seen: their client has gone. Where even that fails, their offers expire."""
    if given:
        threads.post(lambda: outcomes.report([Report(lease.id, Outcome.returned("the client had gone")) for lease in given]))
