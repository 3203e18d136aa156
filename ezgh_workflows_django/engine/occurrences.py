"""What becomes of the occurrences of a schedule: started, waiting, skipped, missed. One row for each, in the transaction that starts its run.

Every function here works on a schedule whose row is locked; none opens a transaction (`definitions.occurrences`: when they are).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ..definitions.occurrences import between, next_after
from ..definitions.starts import MISSING, Start
from ..errors import ExpressionError, InvalidArgument, InvalidPayload, StartBusy, StartError
from ..models import Became, Definition, Occurrence, Run, Schedule
from ..protocol import codec
from . import ids, payloads, starts
from .start_requests import Origin
from .transactions import database

KEEP: Final = timedelta(days=400)
"""How long it is known what became of an occurrence: a yearly one is there when the next one comes."""

MOST_SEEN: Final = 1_000
"""How many occurrences that were due together get a row each; of those before them, none does."""

LOOK_BACK: Final = 100
"""How many of the runs that a schedule started last are looked at for one that is still at work."""

MAX_REASON: Final = 500

_REFUSED: Final = (StartError, InvalidArgument, InvalidPayload, ExpressionError)


def due(schedule: Schedule, until: datetime) -> tuple[list[datetime], bool]:
    """The occurrences that are due by `until` and have no row, in order: the last `MOST_SEEN`, and whether there are more before them."""
    if schedule.next_at is None or schedule.next_at > until:
        return [], False
    found = between(schedule.expression, schedule.timezone, schedule.next_at, until, MOST_SEEN + 1)
    seen = set(_rows(schedule).filter(at__gte=schedule.next_at, at__lte=until).values_list("at", flat=True))
    return [at for at in found[-MOST_SEEN:] if at not in seen], len(found) > MOST_SEEN


def fire_after(schedule: Schedule, moment: datetime) -> None:
    """Let the schedule fire at its first occurrence after that moment."""
    schedule.next_at = schedule.due_at = next_after(schedule.expression, schedule.timezone, moment)


def wake(schedule: Schedule, moment: datetime) -> None:
    """Let a schedule that has rested fire again, after that moment; where occurrences wait, their turn is looked at now."""
    fire_after(schedule, moment)
    if schedule.pk is not None and waiting(schedule):
        schedule.due_at = moment


def rest(schedule: Schedule) -> None:
    """Let the schedule fire no more until it is woken; occurrences that wait go on waiting."""
    schedule.next_at = schedule.due_at = schedule.waits_for = None


def waiting(schedule: Schedule) -> list[Occurrence]:
    """The occurrences that wait for their turn, in order."""
    return list(_rows(schedule).filter(became=Became.WAITING).order_by("at"))


def live_runs(schedule: Schedule) -> list[uuid.UUID]:
    """The runs of the schedule that are not over, the oldest first; one that was retried is among them."""
    started = _rows(schedule).filter(became=Became.STARTED).order_by("-pk").values_list("run_id", flat=True)
    return list(Run.objects.using(database()).filter(pk__in=list(started[:LOOK_BACK]), ended_at=None).order_by("pk").values_list("pk", flat=True))


def start(schedule: Schedule, at: datetime, now: datetime) -> uuid.UUID | None:
    """Start the run of an occurrence; the id of the run, or None where the start was refused or the run is over already. Raises `StartBusy`."""
    occurrence = Occurrence(schedule=schedule, at=at, became=Became.STARTED, run_id=ids.run_id(), seen_at=now)
    return _start_or_skip(schedule, occurrence)


def start_waiting(schedule: Schedule, occurrence: Occurrence, now: datetime) -> uuid.UUID | None:
    """Start the run of an occurrence that has waited. As `start`."""
    occurrence.became, occurrence.run_id, occurrence.seen_at = Became.STARTED, ids.run_id(), now
    return _start_or_skip(schedule, occurrence)


def start_by_hand(schedule: Schedule, by: str, now: datetime) -> Run:
    """Start a run that no occurrence asks for. Raises what the start raises."""
    occurrence = Occurrence(schedule=schedule, became=Became.STARTED, run_id=ids.run_id(), by=by, seen_at=now)
    occurrence.save(using=database())
    return _start(schedule, occurrence, now, by=by)


def record(schedule: Schedule, became: Became, at: Sequence[datetime], now: datetime, reason: str) -> None:
    """Write down occurrences that start no run, or not yet."""
    rows = [Occurrence(schedule=schedule, at=each, became=became, reason=reason[:MAX_REASON], seen_at=now) for each in at]
    Occurrence.objects.using(database()).bulk_create(rows)


def miss_due(schedule: Schedule, until: datetime, now: datetime, reason: str) -> None:
    """What is due by `until` is missed."""
    record(schedule, Became.MISSED, due(schedule, until)[0], now, reason)


def drop_waiting(schedule: Schedule, reason: str) -> None:
    """What waits is skipped."""
    _rows(schedule).filter(became=Became.WAITING).update(became=Became.SKIPPED, reason=reason[:MAX_REASON])


def prune(schedule: Schedule, now: datetime) -> None:
    """Forget what is older than `KEEP`."""
    _rows(schedule).filter(at__lt=now - KEEP)._raw_delete(database())


def _rows(schedule: Schedule) -> Any:
    return Occurrence.objects.using(database()).filter(schedule=schedule)


def _start_or_skip(schedule: Schedule, occurrence: Occurrence) -> uuid.UUID | None:
    occurrence.save(using=database())
    try:
        run = _start(schedule, occurrence, occurrence.at or occurrence.seen_at)
    except StartBusy:  # not the last word on it: the whole look is undone, and the next tick looks again
        raise
    except _REFUSED as error:
        occurrence.became, occurrence.run_id = Became.SKIPPED, None
        occurrence.reason = codec.clean_text(f"the start was refused: {error}", MAX_REASON)
        occurrence.save(using=database())
        return None
    return None if run.is_terminal else run.pk


def _start(schedule: Schedule, occurrence: Occurrence, moment: datetime, **told: str) -> Run:
    assert occurrence.run_id is not None
    definition = Definition.objects.using(database()).select_related("app").defer("spec", "input_schemas").get(pk=schedule.definition_id)
    wanted = Start(
        payload=MISSING if schedule.payload is None else payloads.from_text(schedule.payload),
        labels=codec.loads(schedule.labels),
        correlation_id=f"cron:{schedule.workflow}:{schedule.number}:{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )
    occasion = {} if occurrence.at is None else {"occurrence": occurrence.at}
    return starts.start_occurrence(definition, wanted, occurrence.run_id, Origin(occurrence.pk, {"schedule": schedule.pk, **occasion, **told}))
