"""`workflows_schedules`: what each action prints, and that refusals are one line."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from ezgh_workflows_django import Cron
from ezgh_workflows_django.engine import tenancy
from ezgh_workflows_django.models import Run, Schedule, Trail
from tests.engine.conftest import Desk
from tests.engine.conftest import desk as desk
from tests.engine.graphs import job


def said(*arguments: str) -> str:
    """What the command prints."""
    out = StringIO()
    call_command("workflows_schedules", *arguments, stdout=out, stderr=out)
    return out.getvalue()


def facts(*arguments: str) -> Any:
    """The same as JSON."""
    return json.loads(said(*arguments, "--format", "json"))


@pytest.fixture
def nightly(desk: Desk) -> Schedule:
    """A schedule that has fired once."""
    desk.worker(job("nightly", cron=Cron("0 10 * * *")))
    desk.tick()
    desk.advance(hours=1)
    return Schedule.objects.get()


def test_a_list_says_how_each_stands(nightly: Schedule) -> None:
    tenancy.create_app("other")
    assert said("list").strip() == (f"{nightly.pk}  default/nightly  0 10 * * * UTC  next 2024-01-02 10:00:00+00:00  last 2024-01-01 10:00:00+00:00: started")
    [told] = facts("list", "--app", "default")
    assert (told["id"], told["overlap"], told["last"]["became"], told["last"]["run_id"]) == (nightly.pk, "skip", "started", str(Run.objects.get().pk))
    assert said("list", "--app", "other").strip() == "no schedules"


def test_one_is_paused_resumed_and_run(nightly: Schedule) -> None:
    name = f'schedule {nightly.pk} ("nightly", 0 10 * * * in UTC)'
    assert said("pause", str(nightly.pk), "--reason", "too loud").strip() == f"{name} is paused"
    assert "paused: too loud" in said("list")
    assert said("next", str(nightly.pk)).strip() == "it does not fire"
    assert said("resume", str(nightly.pk)).strip() == f"{name} is not paused any more and fires next at 2024-01-02T10:00:00+00:00"
    assert facts("run", str(nightly.pk))["run"] == str(Run.objects.order_by("pk").last().pk)  # type: ignore[union-attr]  # it is there
    assert "last by hand: started" in said("list")
    assert set(Trail.objects.filter(target_kind="schedule").values_list("actor_kind", "actor")) == {("command", "workflows_schedules")}


def test_the_next_times_are_as_many_as_are_asked_for(nightly: Schedule) -> None:
    assert len(said("next", str(nightly.pk)).split()) == 5
    assert facts("next", str(nightly.pk), "--count", "2") == [{"at": "2024-01-02T10:00:00+00:00"}, {"at": "2024-01-03T10:00:00+00:00"}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pause", "404"), "there is no schedule '404'"),
        (("run", "x"), "there is no schedule 'x'"),
        (("list", "--app", "nothing"), "has no app 'nothing'"),
        (("list", "--project", "nothing"), "there is no project 'nothing'"),
    ],
)
def test_a_refusal_is_one_line(nightly: Schedule, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        said(*arguments)


@pytest.mark.parametrize("count", ["0", "1001"])
def test_a_count_that_is_none_is_refused_by_its_flag(nightly: Schedule, count: str) -> None:
    with pytest.raises(CommandError, match="--count: 1 to 1,000"):
        said("next", str(nightly.pk), "--count", count)
