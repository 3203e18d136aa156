"""Schedules over HTTP: an app's list, pause, resume, run now. Who may call is in the matrix of `test_security` and `test_strangers`."""

from __future__ import annotations

from typing import Any

import pytest

from ezgh_workflows_django import Cron
from ezgh_workflows_django.engine import following, tenancy
from ezgh_workflows_django.models import Run, Schedule, Trail
from tests.api.conftest import Caller
from tests.engine.graphs import job

HERE = "organizations/default/projects/default"


@pytest.fixture
def nightly(api: Caller) -> Schedule:
    """A schedule of the default app."""
    api.register(job("nightly", cron=[Cron("30 2 * * 7", timezone="Europe/Madrid", payload={"day": 1}, labels={"team": "blue"}, overlap="queue")]))
    following.run_once(tenancy.app_now(None)[1], 10)
    return Schedule.objects.get()


def shown(api: Caller) -> Any:
    """The one schedule of the list."""
    [told] = api.get(f"{HERE}/apps/default/schedules").body["schedules"]
    return told


def test_a_list_says_when_each_fires_and_what_became_of_the_last(api: Caller, nightly: Schedule) -> None:
    told = shown(api)
    assert {name: told[name] for name in ("id", "app", "workflow", "number", "expression", "timezone")} == {
        "id": nightly.pk,
        "app": "default",
        "workflow": "nightly",
        "number": 0,
        "expression": "30 2 * * 7",
        "timezone": "Europe/Madrid",
    }
    assert (told["payload"], told["labels"], told["overlap"], told["catch_up"]) == ({"day": 1}, {"team": "blue"}, "queue", "last")
    assert (len(told["next"]), told["next"], told["last"]) == (5, sorted(told["next"]), None)
    assert told["version"] == nightly.definition.version


def test_one_is_paused_and_resumed_with_a_reason_in_the_trail(api: Caller, nightly: Schedule) -> None:
    told = api.post(f"{HERE}/schedules/{nightly.pk}/pause", {"reason": "too loud"})
    assert (told.status, told.body["paused_reason"], told.body["next"]) == (200, "too loud", [])
    assert shown(api) == told.body
    again = api.post(f"{HERE}/schedules/{nightly.pk}/resume")
    assert (again.status, again.body["paused_at"], len(again.body["next"])) == (200, None, 5)
    actions = Trail.objects.filter(target_kind="schedule", target=str(nightly.pk)).order_by("pk")
    assert list(actions.values_list("action", "actor_kind")) == [("PauseSchedule", "key"), ("ResumeSchedule", "key")]


def test_one_is_run_now(api: Caller, nightly: Schedule) -> None:
    told = api.post(f"{HERE}/schedules/{nightly.pk}/run")
    assert (told.status, told.body["workflow"], told.body["labels"], told.body["status"]) == (201, "nightly", {"team": "blue"}, "running")
    last = shown(api)["last"]
    assert (last["at"], last["became"], last["run"], last["by"][:4]) == (None, "started", told.body["id"], "key:")
    assert Run.objects.count() == 1


@pytest.mark.parametrize("schedule_id", ["0", "404", "x", "9" * 40, "-1", "1.0", "é"])
@pytest.mark.parametrize("verb", ["pause", "resume", "run"])
def test_what_is_no_schedule_is_404(api: Caller, schedule_id: str, verb: str) -> None:
    assert api.post(f"{HERE}/schedules/{schedule_id}/{verb}").why == (404, "unknown_schedule")


def test_one_that_is_taken_out_of_its_workflow_is_gone(api: Caller, nightly: Schedule) -> None:
    api.register(job("nightly"))
    following.run_once(tenancy.app_now(None)[1], 10)
    assert api.get(f"{HERE}/apps/default/schedules").body == {"schedules": [], "next": None}
    assert api.post(f"{HERE}/schedules/{nightly.pk}/run").why == (404, "unknown_schedule")


def test_a_bad_reason_names_its_field(api: Caller, nightly: Schedule) -> None:
    told = api.post(f"{HERE}/schedules/{nightly.pk}/pause", {"reason": "x" * 501})
    assert (told.why, list(told.body["error"]["fields"])) == ((400, "invalid"), ["reason"])


def test_a_worker_of_a_developers_app_may_want_crons_over_http(api: Caller) -> None:
    api.post(f"{HERE}/apps", {"name": "dev-eva", "queue": "dev-eva"})
    body = {"worker": "w", "app": "dev-eva", "definitions": [job("nightly", cron=[Cron("0 3 * * *")]).to_spec()]}
    api.post("api/workers/register", body)
    following.run_once(tenancy.app_now(None)[1], 10)
    assert Schedule.objects.get().next_at is None
    assert api.post("api/workers/register", {**body, "cron": True}).status == 200
    following.run_once(tenancy.app_now(None)[1], 10)
    assert Schedule.objects.get().next_at is not None
