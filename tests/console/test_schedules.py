"""Schedules in the console: when they fire next, what became of it, and pausing, resuming, running one, each by its own permission."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.test import Client

from ezgh_workflows_django import Cron
from ezgh_workflows_django.engine import schedules
from ezgh_workflows_django.models import Run, Schedule, Trail
from tests.console.conftest import VIEW, Shop, list_of, page_of, staff, text

VERBS = ("pause", "resume", "run")


def act(client: Client, verb: str, *rows: Schedule) -> list[str]:
    """Choose schedules in the list and an action for them; the messages that come of it."""
    client.cookies.pop("messages", None)  # those of before
    chosen = [str(row.pk) for row in rows]
    response: Any = client.post(list_of("schedule"), {"action": f"{verb}_selected", "_selected_action": chosen, "index": "0"})
    return [str(message) for message in get_messages(response.wsgi_request)]


def test_a_page_shows_the_next_five_times_and_what_became_of_the_last(shop: Shop, viewer: Client) -> None:
    shop.scheduled(Cron("*/10 * * * *"))
    shop.desk.advance(minutes=10)
    page = text(viewer, page_of(Schedule.objects.get()))
    assert all(f"2024-01-01 {time}" in page for time in ("09:30:00", "09:40:00", "09:50:00", "10:00:00", "10:10:00"))
    assert "10:20:00" not in page
    assert "a run of an earlier occurrence was still at work" in page
    assert str(Run.objects.get(workflow="report").pk) in page


def test_each_verb_is_done_in_the_users_name(shop: Shop) -> None:
    shop.scheduled(Cron("0 12 * * *"), Cron("0 13 * * *"))
    rows = list(Schedule.objects.order_by("number"))
    client = staff("eva", *VIEW, "pause_schedule", "resume_schedule", "run_schedule")
    assert act(client, "pause", *rows) == ["2 schedules are paused."]
    assert Schedule.objects.filter(next_at=None).count() == 2
    assert act(client, "run", rows[0]) == ["1 run is started."]
    assert act(client, "resume", *rows) == ["2 schedules are resumed."]
    assert Schedule.objects.filter(next_at=None).count() == 0
    told = Trail.objects.filter(target_kind="schedule").order_by("pk").values_list("action", "actor_kind", "actor")
    assert list(told) == [(action, "user", "eva") for action in ("PauseSchedule", "PauseSchedule", "RunSchedule", "ResumeSchedule", "ResumeSchedule")]
    assert LogEntry.objects.filter(object_id=str(rows[0].pk)).count() == 3


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_takes_its_own_permission(shop: Shop, verb: str) -> None:
    shop.scheduled()
    before = Schedule.objects.values().get()
    client = staff("eva", *VIEW, *(f"{other}_schedule" for other in VERBS if other != verb))
    assert f"{verb}_selected" not in text(client, list_of("schedule"))
    act(client, verb, Schedule.objects.get())
    assert (Schedule.objects.values().get(), Trail.objects.filter(target_kind="schedule").count()) == (before, 0)


def test_a_refusal_is_told_in_the_engines_words_and_stops_no_other(shop: Shop, root: Client) -> None:
    shop.scheduled(Cron("0 12 * * *"), Cron("0 13 * * *"))
    first, second = Schedule.objects.order_by("number")
    Schedule.objects.filter(pk=first.pk).update(removed_at=shop.desk.now)
    assert act(root, "pause", first, second) == ["1 schedule is paused.", f"report at 0 12 * * *: there is no schedule {first.pk}"]


def test_a_paused_and_a_removed_one_have_no_next_times(shop: Shop, viewer: Client) -> None:
    shop.scheduled(Cron("0 12 * * *"))
    schedules.pause(Schedule.objects.get().pk, by=("user", "eva"), reason="<b>too loud</b>")
    page = text(viewer, page_of(Schedule.objects.get()))
    assert "&lt;b&gt;too loud&lt;/b&gt;" in page
    assert "12:00:00" not in page
