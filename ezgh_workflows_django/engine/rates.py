"""The turns of a rate: at most so many admissions in each span of time, whenever it begins. What has no turn yet waits; nothing is dropped.

The rule is a sliding window over the admissions themselves: with `RateLimit(n, per)` one more may be admitted as soon as the n-th last
admission is `per` ago. So no span of that length ever holds more than n, and n may come at once where nothing came before. The moments are
rows, which a restart finds again, and a run that is retried or deleted takes nothing away from what was counted.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..models import Admission, Rate
from . import uniques
from .clock import Now, read_at
from .limits import Limits
from .locking import locked
from .transactions import database

_TOLERANCE = timedelta(seconds=1)
"""How far ahead a stored moment may be without the clock having been set back: a statement may read the clock before it waits for its lock."""


@dataclass(slots=True)
class Turns:
    """The turns of one rate, whose row this transaction holds: `left` of them may be taken `now`, the one after that at `next_at`."""

    rate: Rate
    per: timedelta
    now: datetime
    left: int
    next_at: datetime

    def take(self, count: int, at: datetime) -> None:
        """So many runs were admitted at that moment. What no longer counts is forgotten."""
        if not count:
            return
        Admission.objects.using(database()).bulk_create([Admission(rate=self.rate, at=at) for _ in range(count)])
        Admission.objects.using(database()).filter(rate=self.rate, at__lte=at - self.per)._raw_delete(database())

    def look_again(self, at: datetime | None) -> None:
        """Let maintenance look at the line again then, or not before somebody joins it."""
        if self.rate.due_at != at:
            Rate.objects.using(database()).filter(pk=self.rate.pk).update(due_at=at)


def hold(line: uuid.UUID, app_id: int, workflow: str, limits: Limits, wanted: int) -> Turns:
    """Lock a rate, and see how many of at most `wanted` turns may be taken now.

    Where the clock was set back, what was admitted at moments still to come counts as of now: that costs at most one `per`.
    """
    most = limits.turns or 0
    wanted = min(wanted, most)
    rate = _locked(line, app_id, workflow)
    now = read_at(rate)
    moments = Admission.objects.using(database()).filter(rate=rate)
    moments.filter(at__gt=now + _TOLERANCE).update(at=now)
    past: list[datetime] = list(moments.order_by("-at").values_list("at", flat=True)[most - wanted : most])
    over = sum(at <= now - limits.per for at in past)
    left = wanted - len(past) + over
    if left < wanted:
        return Turns(rate, limits.per, now, left, past[-over - 1] + limits.per)
    return Turns(rate, limits.per, now, left, now + limits.per if wanted == most else now)


def _locked(line: uuid.UUID, app_id: int, workflow: str) -> Rate:
    rows = locked(Rate.objects.using(database()).annotate(now=Now()).filter(pk=line))
    found = rows.first()
    if found is None:
        uniques.insert_or_find(Rate(id=line, app_id=app_id, workflow=workflow), Rate.objects.using(database()).filter(pk=line).first)
        found = rows.get()
    return found
