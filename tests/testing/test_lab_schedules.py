"""A lab's clock stops at each occurrence of a schedule, and what it starts runs there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ezgh_workflows_django import Context, Cron, Sleep, Step, Workflow
from ezgh_workflows_django.engine import clock, schedules
from ezgh_workflows_django.models import Occurrence, Run, Schedule
from ezgh_workflows_django.testing import Lab, lab

ran: list[str] = []


def note(value: Any) -> Any:
    """A body that notes when it ran."""
    ran.append(f"{lab.Lab._open.now:%a %H:%M}" if lab.Lab._open else "never")
    return value


def linger(ctx: Context) -> None:
    """A body that takes 25 minutes."""
    ctx.cancelled.wait(timedelta(minutes=25).total_seconds())


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@pytest.mark.django_db
@pytest.mark.parametrize("zone", ["UTC", "Europe/Madrid"])
def test_each_occurrence_is_visited_at_its_moment(zone: str) -> None:
    report = Workflow("report", steps=[Step("note", run=note)], cron=[Cron("30 9 * * 1-5", timezone=zone, payload=1), Cron("0 12 * * 6")])
    with Lab(workflows=[report]) as bench:  # a Monday
        bench.advance(days=7)
        early = {"UTC": "09:30", "Europe/Madrid": "08:30"}[zone]
        mondays = ["Mon"] if zone == "UTC" else []
        expected = [f"{day} {early}" for day in (*mondays, "Tue", "Wed", "Thu", "Fri")] + ["Sat 12:00"] + ([f"Mon {early}"] if zone != "UTC" else [])
        assert ran == expected
        assert set(Run.objects.values_list("status", flat=True)) == {"succeeded"}
        assert bench.invariants() == []
        assert clock._frozen is not None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("overlap", "expected"),
    [("skip", {"started": 2, "skipped": 4}), ("queue", {"started": 3, "waiting": 3}), ("cancel_running", {"started": 6}), ("allow", {"started": 6})],
)
def test_runs_that_overlap_in_a_lab(overlap: str, expected: dict[str, int]) -> None:
    """Every ten minutes, each taking 25."""
    often = Workflow("often", steps=[Step("linger", run=linger, timeout=3600)], cron=Cron("*/10 * * * *", overlap=overlap))
    with Lab(workflows=[often]) as bench:
        bench.advance(minutes=60)
        found = list(Occurrence.objects.values_list("became", flat=True))
        assert {name: found.count(name) for name in set(found)} == expected
        assert Run.objects.filter(ended_at=None).count() == {"allow": 3}.get(overlap, 1)
        assert bench.invariants() == []


@pytest.mark.django_db
def test_a_paused_schedule_and_one_run_by_hand() -> None:
    report = Workflow("report", steps=[Step("rest", sleep=Sleep(60)), Step("note", run=note, after=["rest"])], cron=Cron("0 10 * * *"))
    with Lab(workflows=[report]) as bench:
        bench.run_until_idle()
        schedule = Schedule.objects.get()
        schedules.pause(schedule.pk, by=("user", "eva"))
        bench.advance(days=2)
        assert ran == []
        schedules.run(schedule.pk, by=("user", "eva"))
        bench.advance(minutes=1)
        assert ran == ["Wed 09:01"]
        schedules.resume(schedule.pk, by=("user", "eva"))
        bench.advance(hours=2)
        assert ran == ["Wed 09:01", "Wed 10:01"]
