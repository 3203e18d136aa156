"""What bounds the runs of a workflow: the limits of its newest stored definition, whichever version a run is pinned to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ..definitions.durations import in_words
from ..definitions.plan import Plan
from ..models import Definition
from . import catalog
from .transactions import database

REJECT: Final = "reject"
CANCEL_OLDEST: Final = "cancel_oldest"


@dataclass(frozen=True, slots=True)
class Limits:
    """At most `slots` runs of a bucket at work at once (None: any number), and at most `turns` admissions in each span `per` (None: as they come)."""

    slots: int | None = None
    on_limit: str = "queue"
    turns: int | None = None
    per: timedelta = timedelta(0)

    @classmethod
    def of(cls, plan: Plan) -> Limits:
        """The limits of one definition."""
        slots, rate = plan.concurrency or {}, plan.rate or {}
        return cls(slots.get("limit"), slots.get("on_limit", "queue"), rate.get("limit"), timedelta(milliseconds=rate.get("per_ms", 0)))

    def in_words(self, workflow: str) -> str:
        """What a run in line waits for."""
        waits = []
        if self.slots is not None:
            waits.append(f"the slot of {workflow}" if self.slots == 1 else f"one of {self.slots:,} slots of {workflow}")
        if self.turns is not None:
            span = in_words(round(self.per.total_seconds() * 1000))
            waits.append(f"its turn: {workflow} begins {self.turns:,} {'run' if self.turns == 1 else 'runs'} in {span}")
        return " and ".join(waits) or f"its start: {workflow} has no limits any more"


def newest(app_id: int, workflow: str) -> Limits:
    """The limits that count for a workflow now: one statement."""
    row = Definition.objects.using(database()).filter(app=app_id, workflow=workflow).order_by(*catalog.NEWEST).values_list("version", "pk").first()
    return Limits() if row is None else Limits.of(catalog.plan(*row))
