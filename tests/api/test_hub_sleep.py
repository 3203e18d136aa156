"""How long the hub of held claims sleeps between two looks while the database tells of new work. Time here is the event loop's own, and jumps."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from ezgh_workflows_django.api import dispatcher
from ezgh_workflows_django.api.dispatcher import NOTHING, Dispatcher
from ezgh_workflows_django.api.threads import threads
from ezgh_workflows_django.engine import leases, wakeups
from ezgh_workflows_django.protocol.messages import Claimed
from tests.engine.conftest import Desk, Hand
from tests.engine.conftest import desk as desk
from tests.engine.test_held_sleep import PATIENT, TRIGGERS, Listening, a_step_that_fails, request
from tests.engine.threads import elsewhere


class Jumping(selectors.SelectSelector):
    """Whoever would wait has waited: the clock of the loop and that of the desk move instead."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.now = 0.0
        self._desk = desk

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is not None and timeout > 0:
            self.now += timeout
            self._desk.now += timedelta(seconds=timeout)
        return super().select(0)


class Hub:
    """The dispatcher of an app, its looks done at once, on a loop whose time jumps. `looks` are their moments."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks: list[float] = []
        self._selector = Jumping(desk)
        self._loop = asyncio.SelectorEventLoop(self._selector)
        monkeypatch.setattr(self._loop, "time", lambda: self._selector.now)
        monkeypatch.setattr(dispatcher, "time", SimpleNamespace(monotonic=lambda: self._selector.now))
        monkeypatch.setattr(wakeups, "listener", Listening())
        monkeypatch.setattr(threads, "run", self._look)

    async def _look(self, call: Callable[[], Any]) -> Any:
        self.looks.append(self._selector.now)
        return elsewhere(call)

    def hold(self, hand: Hand, seconds: float, **rest: Any) -> Claimed:
        """What a claim that has looked in vain is answered."""
        call = leases.open_claim(request(hand, **rest))
        assert call.look()[1] == NOTHING
        try:
            return self._loop.run_until_complete(Dispatcher(call.session.app.pk).wait(call, seconds, lambda _: False))
        finally:
            self._loop.run_until_complete(_ended())
            self._loop.close()


async def _ended() -> None:
    """Let the dispatcher see that nobody waits any more."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@pytest.fixture
def hub(transactional_db: None, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The hub of the test's one held claim."""
    return Hub(desk, monkeypatch)


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_what_a_claim_would_not_take_does_not_wake_the_hub(desk: Desk, hub: Hub, trigger: Callable[[Desk], tuple[Hand, dict[str, Any]]]) -> None:
    hand, rest = trigger(desk)
    assert hub.hold(hand, 2.5 * PATIENT, **rest) == NOTHING
    assert hub.looks == [0, PATIENT, 2 * PATIENT]


@pytest.mark.parametrize("seconds", [2, PATIENT + 2])
def test_the_hub_looks_again_when_a_step_is_due(desk: Desk, hub: Hub, seconds: float) -> None:
    hand, run = a_step_that_fails(desk, seconds)
    assert [lease.run_id for lease in hub.hold(hand, 60).leases] == [run]
    assert hub.looks == [0, *([PATIENT] if seconds > PATIENT else []), seconds]
