"""The duty of figures: each whole minute is summed once, from the rows of what ended in it, and added to the running totals.

It costs no verb a statement. A minute is read outside any transaction, by indexed ranges, and kept in a short one that is guarded by how far
the sums have come: of the processes that summed it one keeps it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.db.models import Min, QuerySet

from ..models import Figure, FigureKind, Lease, RefusedCall, Run, RunningTotal, Tick
from ..protocol.states import LIVE_LEASE, LeaseStatus
from . import distributions
from .distributions import Sum
from .transactions import QUERY_KEYS, batched, database, verb

MINUTE: Final = timedelta(minutes=1)
SETTLES: Final = timedelta(seconds=30)
"""How long after its end a minute is summed: what ended in it has been committed by then, but for what a caller's long transaction keeps back."""

KEEP: Final = timedelta(days=7)
"""How long the figures of a minute are kept. The running totals stay."""

AT_ONCE: Final = 10
"""How many minutes one look sums at most, so that the leases are not kept waiting after a gap."""

MOST_PRUNED: Final = 5_000

_ENDED: Final = [status for status in LeaseStatus if status not in LIVE_LEASE]


class Key(NamedTuple):
    """Which sum."""

    app_id: int
    workflow: str
    kind: str
    outcome: str = ""


@dataclass(slots=True)
class _Sums:
    """The sums of a minute, and the refused calls that are in them."""

    of: dict[Key, Sum] = field(default_factory=lambda: defaultdict(Sum))
    refused: list[int] = field(default_factory=list)


def earliest() -> QuerySet[Any]:
    """How far the sums have come: `MINUTE` and `SETTLES` later there is a minute to sum."""
    return Tick.objects.values("summed_until")[:1]


def run_once(now: datetime, limit: int) -> int:
    """Sum up to `limit` minutes that are over and in which something ended; returns how many that were."""
    count = 0
    while count < min(limit, AT_ONCE) and _sum_next(now):
        count += 1
    _prune(now)
    return count


def totals(app_ids: Collection[int]) -> dict[Key, Sum]:
    """What all minutes so far came to, of these apps: one statement."""
    return _read(RunningTotal.objects.using(database()).filter(app__in=app_ids))


def per_minute(app_ids: Collection[int], begin: datetime, end: datetime) -> dict[datetime, dict[Key, Sum]]:
    """The figures of the minutes from `begin` until before `end`, of these apps: one statement. A minute in which nothing ended is not in it."""
    minutes: dict[datetime, list[Figure]] = defaultdict(list)
    for row in Figure.objects.using(database()).filter(minute__gte=begin, minute__lt=end, app__in=app_ids).order_by("minute"):
        minutes[row.minute].append(row)
    return {minute: _read(rows) for minute, rows in minutes.items()}


def _sum_next(now: datetime) -> bool:
    """Sum the next minute in which something ended, if one has settled; false too where another process was first."""
    done: datetime | None = Tick.objects.using(database()).values_list("summed_until", flat=True).first()
    settled = _floor(now - SETTLES)
    if done is None or done >= settled:
        return False
    begin = done
    sums = _sums(begin, _floor(begin) + MINUTE)
    if not sums.of:
        first = _first(begin, settled)
        begin = settled if first is None else max(begin, _floor(first))
        sums = _sums(begin, _floor(begin) + MINUTE) if first is not None else sums
    until = _floor(begin) + MINUTE if sums.of else settled
    return _keep(done, until, _floor(begin), sums) and bool(sums.of)


def _sums(begin: datetime, end: datetime) -> _Sums:
    """What ended from `begin` until before `end`: three statements."""
    sums = _Sums()
    _add_runs(sums, begin, end)
    _add_leases(sums, begin, end)
    for pk, app_id, workflow, reason in _refused(end).values_list("pk", "app_id", "workflow", "reason"):
        sums.of[Key(app_id, workflow, FigureKind.REFUSED, reason)].tally()
        sums.refused.append(pk)
    return sums


def _add_runs(sums: _Sums, begin: datetime, end: datetime) -> None:
    fields = ("app_id", "workflow", "status", "episode", "start_at", "started_at", "ended_at")
    for app_id, workflow, status, episode, start_at, started_at, ended_at in _runs(begin, end).values_list(*fields):
        sums.of[Key(app_id, workflow, FigureKind.RUN_ENDED, status)].tally()
        if started_at is None or ended_at is None:
            continue
        sums.of[Key(app_id, workflow, FigureKind.RUN_TIME)].observe(ended_at - started_at)
        if episode == 1:  # a later one begins when somebody says so
            sums.of[Key(app_id, workflow, FigureKind.ADMISSION_WAIT)].observe(started_at - start_at)


def _add_leases(sums: _Sums, begin: datetime, end: datetime) -> None:
    fields = ("run__app_id", "run__workflow", "status", "ready_at", "offered_at")
    for app_id, workflow, status, ready_at, offered_at in _leases(begin, end).values_list(*fields):
        sums.of[Key(app_id, workflow, FigureKind.LEASE_ENDED, status)].tally()
        if ready_at is not None:
            sums.of[Key(app_id, workflow, FigureKind.CLAIM_WAIT)].observe(offered_at - ready_at)


def _first(begin: datetime, end: datetime) -> datetime | None:
    """When the first thing ended from `begin` until before `end`, so that empty minutes are passed over at once."""
    moments = [
        _runs(begin, end).aggregate(first=Min("ended_at"))["first"],
        _leases(begin, end).aggregate(first=Min("ended_at"))["first"],
        _refused(end).aggregate(first=Min("at"))["first"],
    ]
    return min((moment for moment in moments if moment is not None), default=None)


def _runs(begin: datetime, end: datetime) -> QuerySet[Run]:
    return Run.objects.using(database()).filter(ended_at__gte=begin, ended_at__lt=end)


def _leases(begin: datetime, end: datetime) -> QuerySet[Lease]:
    return Lease.objects.using(database()).filter(status__in=_ENDED, ended_at__gte=begin, ended_at__lt=end)


def _refused(end: datetime) -> QuerySet[RefusedCall]:
    """Those that nobody has summed: they go with the sum, so that one which was committed late is in the next."""
    return RefusedCall.objects.using(database()).filter(at__lt=end)


@verb
def _keep(done: datetime, until: datetime, minute: datetime, sums: _Sums) -> bool:
    """Keep a minute's sums and go on to `until`, if the sums have come as far as `done` still. Locks the tick's row."""
    if not Tick.objects.using(database()).filter(summed_until=done).update(summed_until=until):
        return False
    if sums.of:
        Figure.objects.using(database()).bulk_create([Figure(minute=minute, **_columns(key, each)) for key, each in sums.of.items()])
        _add_to_totals(sums.of)
    for keys in batched(sums.refused, QUERY_KEYS):
        RefusedCall.objects.using(database()).filter(pk__in=keys).delete()
    return True


def _add_to_totals(sums: dict[Key, Sum]) -> None:
    """Nobody else is at them: the tick's row is locked."""
    rows = RunningTotal.objects.using(database()).filter(app__in={key.app_id for key in sums}, workflow__in={key.workflow for key in sums})
    known = {_key(row): row for row in rows}
    for key, row in known.items():
        if key in sums:
            total = distributions.read(row.count, row.total_ms, row.buckets)
            total.add(sums[key])
            row.count, row.total_ms, row.buckets = total.count, total.total_ms, total.buckets_text()
    changed = [row for key, row in known.items() if key in sums]
    RunningTotal.objects.using(database()).bulk_update(changed, ["count", "total_ms", "buckets"], batch_size=100)
    RunningTotal.objects.using(database()).bulk_create([RunningTotal(**_columns(key, each)) for key, each in sums.items() if key not in known])


def _prune(now: datetime) -> None:
    old = Figure.objects.using(database()).filter(minute__lt=now - KEEP).order_by("minute").values_list("pk", flat=True)[:MOST_PRUNED]
    keys = list(old)
    if keys:
        Figure.objects.using(database()).filter(pk__in=keys).delete()


def _read(rows: Iterable[Figure | RunningTotal]) -> dict[Key, Sum]:
    return {_key(row): distributions.read(row.count, row.total_ms, row.buckets) for row in rows}


def _key(row: Figure | RunningTotal) -> Key:
    return Key(row.app_id, row.workflow, row.kind, row.outcome)


def _columns(key: Key, each: Sum) -> dict[str, Any]:
    return {**key._asdict(), "count": each.count, "total_ms": each.total_ms, "buckets": each.buckets_text()}


def _floor(moment: datetime) -> datetime:
    """The beginning of its minute."""
    return moment.replace(second=0, microsecond=0)
