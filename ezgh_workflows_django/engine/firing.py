"""The duty of schedules: each occurrence that is due becomes a run, or it is written down why not; once, however many processes look.

An occurrence and its run are one transaction, under the schedule's lock (case B86). Runs that are in the way of one (`cancel_running`) are
cancelled before it, each in a transaction of its own: no verb holds a schedule and waits for a run.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from ..errors import StartBusy
from ..models import Became, Schedule
from . import duty, occurrences, progress
from .clock import Now, read_at
from .locking import Held, locked
from .transactions import database, verb

ON_TIME: Final = timedelta(seconds=60)
"""An occurrence that is dealt with sooner than this was not missed: a restart takes seconds, and no schedule fires twice in a minute."""

MOST_CAUGHT_UP: Final = 100
"""How many occurrences `catch_up="all"` fires after downtime: the last ones."""

_CATCHES_UP_WITH: Final = {"none": 0, "last": 1, "all": MOST_CAUGHT_UP}

MOST_WAITING: Final = 100
"""How many occurrences of a schedule wait for their turn."""

AGAIN: Final = timedelta(seconds=1)
"""When a schedule is looked at again whose run could not be cancelled, because somebody held it."""

_CANCELLED: Final = "the next occurrence of its schedule is due"
_BUSY: Final = "a run of an earlier occurrence was still at work"
_SUPERSEDED: Final = "a later occurrence was due as well, and would have cancelled its run at once"
_NOT_CAUGHT_UP: Final = {
    "none": "maintenance did not run when it was due, and the schedule does not catch up",
    "last": "maintenance did not run when it was due, and the schedule catches up with the last occurrence only",
    "all": f"maintenance did not run when it was due, and the schedule catches up with the last {MOST_CAUGHT_UP} only",
}
_AND_BEFORE: Final = "; those before this one have no rows"


@dataclass(frozen=True, slots=True)
class InTheWay:
    """Runs that an occurrence which is due has to see cancelled first, and when that was found."""

    runs: list[uuid.UUID]
    now: datetime


def run_once(now: datetime, limit: int) -> int:
    """See to up to `limit` schedules that are due, the earliest first; returns how many were looked at."""
    due = Schedule.objects.using(database()).due(now).values_list("pk", flat=True)
    return see_to_each(due[:limit], now)


def see_to_each(schedule_ids: Iterable[int], now: datetime) -> int:
    """`see_to` these; one that fails is left alone for a while, and loses no occurrence by it. Returns how many were looked at."""
    return duty.one_by_one(list(schedule_ids), see_to, lambda pk: _put_off(pk, duty.later(now)), lambda pk: f"schedule {pk}")


def see_to(schedule_id: int) -> None:
    """Let what waits of a schedule have its turn, and fire what is due. One that somebody holds is passed over: the next tick comes to it."""
    with suppress(StartBusy):  # somebody holds what its start needs
        found = _fire(schedule_id)
        if found is None:
            return
        duty.each([(run_id, run_id) for run_id in found.runs], _cancel, lambda _: None)
        found = _fire(schedule_id)
        if found is not None:
            _put_off(schedule_id, found.now + AGAIN)


def caught_up(due: Sequence[datetime], catch_up: str, now: datetime) -> tuple[Sequence[datetime], Sequence[datetime]]:
    """Of occurrences that are due, in order: those that are missed, and those that fire."""
    on_time = sum(not _is_late(at, now) for at in due)
    first = max(0, len(due) - max(on_time, _CATCHES_UP_WITH[catch_up]))
    return due[:first], due[first:]


def decide(schedule: Schedule, at: datetime, now: datetime, *, is_busy: bool, count_waiting: int) -> tuple[Became, str]:
    """What an occurrence that fires becomes by the schedule's overlap, and why. `is_busy`: a run of the schedule is at work.

    What is caught up with because `catch_up` is "all" waits even where overlaps are skipped: else nothing but the first would be caught up with.
    """
    if not is_busy or schedule.overlap == "allow":
        return Became.STARTED, ""
    if schedule.overlap != "queue" and not (schedule.catch_up == "all" and _is_late(at, now)):
        return Became.SKIPPED, _BUSY
    if count_waiting >= MOST_WAITING:
        return Became.SKIPPED, f"{MOST_WAITING} occurrences waited already"
    return Became.WAITING, ""


@verb
def _fire(schedule_id: int) -> InTheWay | None:
    """One look at a schedule, under its lock. Where runs are in the way of it, nothing is done but to name them."""
    schedule = locked(Schedule.objects.using(database()).annotate(now=Now()).filter(pk=schedule_id), skip_locked=True).first()
    if schedule is None or schedule.next_at is None:
        return None
    now = read_at(schedule)
    due, is_cut = occurrences.due(schedule, now)
    missed, fire = caught_up(due, schedule.catch_up, now)
    live = [] if schedule.overlap == "allow" else occurrences.live_runs(schedule)
    if schedule.overlap == "cancel_running" and fire:
        if live:
            return InTheWay(live, now)
        fire = _supersede(schedule, fire, now)
    _write_missed(schedule, missed, is_cut, now)
    _take_turns(schedule, fire, live, now)
    if schedule.next_at <= now:
        occurrences.fire_after(schedule, now)
        occurrences.prune(schedule, now)
    schedule.due_at = schedule.next_at
    schedule.save(using=database(), update_fields=["next_at", "due_at", "waits_for"])
    return None


def _supersede(schedule: Schedule, fire: Sequence[datetime], now: datetime) -> Sequence[datetime]:
    """Of occurrences that would cancel each other's runs, and what waits, only the last one fires."""
    occurrences.drop_waiting(schedule, _SUPERSEDED)
    occurrences.record(schedule, Became.SKIPPED, fire[:-1], now, _SUPERSEDED)
    return fire[-1:]


def _write_missed(schedule: Schedule, missed: Sequence[datetime], is_cut: bool, now: datetime) -> None:
    reason = _NOT_CAUGHT_UP[schedule.catch_up]
    first = 1 if is_cut else 0
    occurrences.record(schedule, Became.MISSED, missed[:first], now, reason + _AND_BEFORE)
    occurrences.record(schedule, Became.MISSED, missed[first:], now, reason)


def _take_turns(schedule: Schedule, fire: Sequence[datetime], live: Sequence[uuid.UUID], now: datetime) -> None:
    """What waits first, as soon as nothing is at work; then what is due."""
    queue, at_work = occurrences.waiting(schedule), list(live)
    while queue and not at_work:
        at_work += _if_it_counts(schedule, occurrences.start_waiting(schedule, queue.pop(0), now))
    count_waiting = len(queue)
    for at in fire:
        became, reason = decide(schedule, at, now, is_busy=bool(at_work), count_waiting=count_waiting)
        if became is Became.STARTED:
            at_work += _if_it_counts(schedule, occurrences.start(schedule, at, now))
        else:
            occurrences.record(schedule, became, [at], now, reason)
            count_waiting += became is Became.WAITING
    schedule.waits_for = at_work[0] if count_waiting else None


def _if_it_counts(schedule: Schedule, run_id: uuid.UUID | None) -> list[uuid.UUID]:
    return [] if run_id is None or schedule.overlap == "allow" else [run_id]


def _is_late(at: datetime, now: datetime) -> bool:
    return now - at >= ON_TIME


def _cancel(held: Held, _: uuid.UUID) -> None:
    if not held.run.is_terminal:
        held.work.record(held.run, "run.cancel_requested", by="schedule", reason=_CANCELLED)
        progress.cancel(held, _CANCELLED)


def _put_off(schedule_id: int, until: datetime) -> None:
    Schedule.objects.using(database()).filter(pk=schedule_id, due_at__isnull=False).update(due_at=until)
