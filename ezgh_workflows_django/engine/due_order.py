"""What was due in a run before its deadline is done before that ends it: where two things are due, the earlier due time wins (spec: engine.md "Time").

Usually each is seen as it comes due. Where both are seen late, by whichever duty comes first, this puts them in order. It stands on the duties of
timers and leases, and looks for no runs by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

from ..conf import app_settings
from ..models import Lease, Step
from . import pulse, reclaim, runs, timers, waits
from .locking import Held
from .transactions import database

AT_ONCE: Final = 100
"""How many things of one kind are done in one transaction; what is left, and the deadline, are the next one's."""

_Due = tuple[datetime, Callable[[Held], object]]


def meet_deadline(held: Held) -> None:
    """The run is past its deadline: first do what was due before, in due order; then it ends, if it is still at work."""
    deadline = held.run.deadline_at
    if deadline is None:
        return
    kinds = [kind(held, deadline) for kind in (_timers, _leases, _events)]
    for _, act in sorted((due for kind in kinds for due in kind), key=lambda due: due[0]):
        if not _is_bound(held):
            return
        act(held)
        held.work.flush()  # what comes next reads it
    if _is_bound(held) and all(len(kind) < AT_ONCE for kind in kinds):
        runs.expire(held)


def _is_bound(held: Held) -> bool:
    return not held.run.is_terminal and runs.deadline_binds(held)


def _timers(held: Held, before: datetime) -> list[_Due]:
    """Sleeps that end, waits that time out or look once more."""
    rows = Step.objects.using(database()).timers_due(before).filter(run=held.run, timer_at__lt=before)
    return [(timer_at, partial(timers.fire, name=name)) for timer_at, name in rows.values_list("timer_at", "name")[:AT_ONCE] if timer_at is not None]


def _leases(held: Held, before: datetime) -> list[_Due]:
    """Bodies that their workers did not time out, offers and orphans whose time is over; none after a gap in maintenance (`pulse.is_lenient`).

    Silence that nobody saw has no moment: it is marked, no more.
    """
    if pulse.is_lenient(held.now):
        return []
    rows = Lease.objects.using(database()).filter(run=held.run, live_step__isnull=False, due_at__lt=before).order_by("due_at")
    due: list[_Due] = []
    for lease in rows[:AT_ONCE]:
        moments = [lease.due_at, lease.timeout_at if _is_timed_out_before_it_is_given_up(lease) else None]
        due += [(moment, partial(reclaim.see_to, lease_id=lease.pk)) for moment in moments if moment is not None and moment < before]
    return due


def _is_timed_out_before_it_is_given_up(lease: Lease) -> bool:
    """Whether a lease that will be marked for its silence would have come to its timeout within the window that begins with the mark."""
    return lease.timeout_at is not None and lease.timeout_at <= lease.expires_at + app_settings.RECOVERY_WINDOW


def _events(held: Held, before: datetime) -> list[_Due]:
    """Events that are stored, and whose emitter was lost before they were delivered."""
    return [(came_at, partial(timers.look_again, name=name)) for came_at, name in waits.undelivered(held.run, before)[:AT_ONCE]]
