"""Making room by cancelling: where a workflow says `on_limit="cancel_oldest"`, only the newest runs of a bucket go on.

The older ones are cancelled in transactions of their own; whoever takes their slots is let in by the same rule as ever, so even here there
are never more runs at work than the limit. A run that compensates is left to end by itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from ..models import Run
from ..protocol.states import RunStatus
from . import limits, progress, slots
from .limits import Limits
from .locking import hold_free
from .transactions import database, verb

TOGETHER: Final = 100
"""How many runs are cancelled in one transaction."""

_REASON: Final = "a newer run takes its slot"


def cancel_older(bounds: Limits, buckets: Iterable[uuid.UUID]) -> bool:
    """Cancel what is older than the newest runs of each of these buckets that there are slots for; says whether that is done for all of them."""
    if bounds.on_limit != limits.CANCEL_OLDEST or bounds.slots is None:
        return True
    older = [(pk, bucket) for bucket in sorted(set(buckets)) for pk in _older(bucket, bounds.slots)]
    return not older or (_cancel(older[:TOGETHER], bounds.slots) and len(older) <= TOGETHER)


@verb
def _cancel(older: Sequence[tuple[uuid.UUID, uuid.UUID]], slots_there: int) -> bool:
    """Cancel those of these runs that nobody holds and that are still too old; says whether none was held."""
    held, work = hold_free([pk for pk, _ in older])
    if work is None:
        return False
    still = {pk for bucket in {bucket for _, bucket in older} for pk in _older(bucket, slots_there)}
    live = [each for pk, each in held.items() if pk in still and not each.run.is_terminal]
    for each in live:
        work.record(each.run, "run.cancel_requested", by="concurrency", reason=_REASON)
    progress.cancel_all(live, _REASON)
    work.finish()
    return len(held) == len(older)


def _older(bucket: uuid.UUID, slots_there: int) -> list[uuid.UUID]:
    """The runs of a bucket, at work or in line, that are older than the newest of which it has slots for, but for those that compensate."""
    live = Run.objects.using(database()).filter(slots.HOLD_SLOTS | slots.STAND_IN_LINE, bucket=bucket).order_by()
    if live.count() <= slots_there:
        return []
    rows = live.only("pk", "status", "paused_from", "start_at", "queue_order", "priority")
    newest_first = sorted(rows, key=_came, reverse=True)
    return [run.pk for run in newest_first[slots_there:] if RunStatus.FAILING not in (run.status, run.paused_from)]


def _came(run: Run) -> tuple[datetime, uuid.UUID]:
    """When a run came to stand in line, whatever its priority."""
    return (run.start_at if run.queue_order is None else run.queue_order + run.priority * progress.PRIORITY_WEIGHT), run.pk
