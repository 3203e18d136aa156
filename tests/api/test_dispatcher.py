"""Held claims that ask for different things share one dispatcher fairly (case B70)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from ezgh_workflows_django.api.dispatcher import Dispatcher
from ezgh_workflows_django.api.threads import threads
from ezgh_workflows_django.protocol.messages import Claimed


@dataclass
class Ask:
    """What stands for a claim: it serves one definition, and each look finds something."""

    definition: int
    session: Any = field(default_factory=lambda: SimpleNamespace(banned=frozenset()))
    run_id: None = None

    @property
    def serving(self) -> dict[int, None]:
        return {self.definition: None}


def test_a_flood_for_one_kind_of_claim_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of the flood claim again as soon as they are answered."""
    answered: list[int] = []

    async def look(_: Any) -> Any:
        await asyncio.sleep(0)
        return SimpleNamespace(), Claimed(leases=(SimpleNamespace(id="lease"),)), 0.0  # type: ignore[arg-type]

    async def story() -> None:
        desk = Dispatcher(1)

        async def work(definition: int, times: int) -> None:
            for _ in range(times):
                await desk.wait(Ask(definition), 10, lambda claimed: False)  # type: ignore[arg-type]
                answered.append(definition)

        await asyncio.wait_for(asyncio.gather(*[work(1, 100) for _ in range(3)], work(2, 1)), 10)

    monkeypatch.setattr(threads, "run", look)
    asyncio.run(story())
    assert answered.index(2) <= 6
