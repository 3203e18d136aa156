"""Schedules in real processes: maintenance in three of them on clocks that differ, and a developer's worker that wants them fired."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import Count

from ezgh_workflows_django import Cron, Step, Workflow
from ezgh_workflows_django.engine import clock, following, maintenance, workers
from ezgh_workflows_django.models import Occurrence, Run, Schedule, Timetable
from ezgh_workflows_django.protocol.messages import Registration

from .conftest import Fleet, Folder, until

BEGIN = datetime(2024, 1, 1, 5, 0, tzinfo=UTC)
TICKS, STEP = 200, 30


def body(value: object) -> object:
    """Never run here."""
    return value


@pytest.mark.long
@pytest.mark.process
def test_three_processes_of_maintenance_fire_each_occurrence_once_and_none_is_left_out(fleet: Fleet, folder: Folder) -> None:
    """B22: every minute, and Mondays at six; one clock is half a second ahead; 200 ticks each.

    They catch up with all: a tick is half a minute here, and what somebody holds for two of them is late by the clock of another.
    """
    crons = [Cron("* * * * *", overlap="allow", catch_up="all"), Cron("0 6 * * 1"), Cron("*/7 * * * *", overlap="queue", catch_up="all")]
    flow = Workflow("often", steps=[Step("work", run=body)], cron=crons)
    clock.freeze(lambda: BEGIN)
    try:
        workers.register(Registration(worker="w", app="default", definitions=(flow.to_spec(),)))
        maintenance.ensure_row()
        following.follow(Timetable.objects.get().pk)
    finally:
        clock.freeze(None)
    tickers = [fleet.program("-m", "tests.process.ticker", str(folder), BEGIN.isoformat(), skew, str(TICKS), str(STEP)) for skew in ("0", "0", "500")]
    until(lambda: len(folder.heard("ready")) == 3)
    folder.say("go")
    assert [ticker.ends(100) for ticker in tickers] == [0, 0, 0], [ticker.output for ticker in tickers]

    minutes = TICKS * STEP // 60
    every_minute = [BEGIN + timedelta(minutes=minute) for minute in range(1, minutes)]
    often, weekly, seventh = Schedule.objects.order_by("number")
    found = {schedule: list(schedule.occurrences.order_by("at").values_list("at", flat=True)) for schedule in (often, weekly, seventh)}
    assert found == {often: every_minute, weekly: [BEGIN + timedelta(hours=1)], seventh: [at for at in every_minute if at.minute % 7 == 0]}
    assert Counter(Occurrence.objects.exclude(schedule=seventh).values_list("became", flat=True)) == {"started": minutes}
    assert Counter(Occurrence.objects.filter(schedule=seventh).values_list("became", flat=True)) == {"started": 1, "waiting": len(found[seventh]) - 1}
    assert not Run.objects.values("occurrence").annotate(n=Count("pk")).filter(n__gt=1)
    assert set(Run.objects.values_list("pk", flat=True)) == set(Occurrence.objects.filter(became="started").values_list("run_id", flat=True))
    assert often.next_at == BEGIN + timedelta(minutes=minutes)
