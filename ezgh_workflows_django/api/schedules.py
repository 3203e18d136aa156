"""Schedules of an app: looking at them, pausing, resuming, running one now."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from ..engine import payloads
from ..engine import schedules as verbs
from ..models import Occurrence, Schedule
from . import reach, run_answers, run_told, schedule_shapes, worker_shapes
from .base import ApiView, caller
from .docs import TENANCY, call
from .pages import Page, page
from .plain_json import to_response


class SchedulesView(ApiView):
    """The schedules of an app."""

    needs = {"GET": (verbs.READ,)}

    @call(TENANCY, "List an app's schedules", None, schedule_shapes.SchedulesTold, query=Page)
    def get(self, request: Request, **where: str) -> HttpResponse:
        """The newest first: those that the newest stored definitions of its workflows have, each with its next times and what became of its last one."""
        asked = self.read_query(request, Page)
        app = reach.app(caller(request), where["app"], where)
        shown, following = page(verbs.of_apps([app]), asked)
        return to_response({"schedules": [_told(each) for each in verbs.facts_of(shown)], "next": following})


class SchedulePauseView(ApiView):
    """Let a schedule fire no more."""

    needs = {"POST": (verbs.UPDATE,)}

    @call(TENANCY, "Pause a schedule", schedule_shapes.PauseReason, schedule_shapes.ScheduleTold)
    def post(self, request: Request, schedule_id: str, **where: str) -> HttpResponse:
        """Until it is resumed; runs at work go on. What is paused already stays as it is."""
        asked = self.read(request, schedule_shapes.PauseReason)
        schedule = reach.schedule(caller(request), schedule_id, where)
        verbs.pause(schedule.pk, by=caller(request), reason=asked["reason"])
        return _answer(request, schedule_id, where)


class ScheduleResumeView(ApiView):
    """Let a schedule fire again."""

    needs = {"POST": (verbs.UPDATE,)}

    @call(TENANCY, "Resume a schedule", worker_shapes.Nothing, schedule_shapes.ScheduleTold)
    def post(self, request: Request, schedule_id: str, **where: str) -> HttpResponse:
        """At its first occurrence after now: it catches up with none of its pause. What is not paused stays as it is."""
        schedule = reach.schedule(caller(request), schedule_id, where)
        verbs.resume(schedule.pk, by=caller(request))
        return _answer(request, schedule_id, where)


class ScheduleRunView(ApiView):
    """Start what a schedule starts."""

    needs = {"POST": (verbs.UPDATE,)}

    @call(TENANCY, "Run a schedule now", worker_shapes.Nothing, run_told.RunTold, status=HTTPStatus.CREATED, conflicts="`concurrency_limit`")
    def post(self, request: Request, schedule_id: str, **where: str) -> HttpResponse:
        """Whether or not it is paused, and whatever is at work. Its own times stay as they are."""
        schedule = reach.schedule(caller(request), schedule_id, where)
        run = verbs.run(schedule.pk, by=caller(request))
        run.app = schedule.app
        return to_response(run_answers.brief(run), HTTPStatus.CREATED)


def _answer(request: Request, schedule_id: str, where: dict[str, str]) -> HttpResponse:
    """How it stands now."""
    return to_response(_told(verbs.facts_of([reach.schedule(caller(request), schedule_id, where)])[0]))


def _told(facts: verbs.Facts) -> dict[str, Any]:
    schedule = facts.schedule
    return {
        **{name: getattr(schedule, name) for name in ("id", "workflow", "number", "expression", "timezone", "overlap", "catch_up", "paused_reason")},
        "app": schedule.app.name,
        "version": schedule.definition.version,
        **_payload(schedule),
        "labels": payloads.from_text(schedule.labels),
        "paused_at": run_answers.moment(schedule.paused_at),
        "next": [run_answers.moment(at) for at in facts.ahead],
        "last": None if facts.last is None else _occurrence(facts.last),
    }


def _payload(schedule: Schedule) -> dict[str, Any]:
    return {} if schedule.payload is None else {"payload": payloads.from_text(schedule.payload)}


def _occurrence(row: Occurrence) -> dict[str, Any]:
    return {
        "at": run_answers.moment(row.at),
        **{name: getattr(row, name) for name in ("became", "reason", "by")},
        "run": None if row.run_id is None else str(row.run_id),
        "seen_at": run_answers.moment(row.seen_at),
    }
