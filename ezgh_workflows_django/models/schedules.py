"""Schedules: the crons of workflows, and what became of each of their occurrences."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from django.db import models

from .fields import NAME_LENGTH, IdentifierField, JsonTextField, WordsField
from .tenancy import App, Definition


class Timetable(models.Model):
    """The crons of one workflow in one app: its schedules follow the newest stored definition, and `due_at` is set until they do."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="timetables")
    workflow = IdentifierField(max_length=NAME_LENGTH)
    due_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["app", "workflow"], name="ezw_timetable")]
        indexes: ClassVar = [models.Index(fields=["due_at"], name="ezw_timetable_due")]

    def __str__(self) -> str:
        return self.workflow


class ScheduleQuerySet(models.QuerySet["Schedule"]):
    """Questions about schedules."""

    def current(self) -> ScheduleQuerySet:
        """Schedules that the newest definition has."""
        return self.filter(removed_at=None)

    def due(self, now: datetime) -> ScheduleQuerySet:
        """Schedules that maintenance must look at, the earliest first."""
        return self.filter(due_at__lte=now).order_by("due_at")


class Schedule(models.Model):
    """One cron of a workflow: when it fires, what it starts. `number` is its place among the workflow's crons.

    `next_at` is its next occurrence; null where it does not fire: paused, removed, or in a developer's app that no worker fires.
    `due_at` is the next moment maintenance must look at it: that occurrence, or later after an error. `waits_for` is the run that the
    oldest waiting occurrence waits for. It is never deleted: a cron that its workflow no longer has is `removed_at`, and keeps its occurrences.
    """

    timetable = models.ForeignKey(Timetable, on_delete=models.CASCADE, related_name="schedules")
    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="schedules")
    workflow = IdentifierField(max_length=NAME_LENGTH)
    number = models.PositiveSmallIntegerField()
    definition = models.ForeignKey(Definition, on_delete=models.CASCADE, related_name="+")
    expression = IdentifierField()
    timezone = IdentifierField(max_length=63)
    payload = JsonTextField(null=True)
    labels = JsonTextField(default="{}")
    overlap = models.CharField(max_length=16)
    catch_up = models.CharField(max_length=8)
    next_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True)
    waits_for = models.UUIDField(null=True)
    paused_at = models.DateTimeField(null=True)
    paused_reason = WordsField(max_length=500, blank=True, default="")
    removed_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()

    objects = ScheduleQuerySet.as_manager()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["app", "workflow", "number"], name="ezw_schedule_number"),
            models.Index(fields=["due_at"], name="ezw_schedule_due"),
            models.Index(fields=["waits_for"], name="ezw_schedule_waits"),
        ]
        permissions: ClassVar = [
            ("pause_schedule", "Can pause schedules"),
            ("resume_schedule", "Can resume schedules"),
            ("run_schedule", "Can run schedules now"),
        ]

    def __str__(self) -> str:
        return f"{self.workflow} at {self.expression}"

    @property
    def is_paused(self) -> bool:
        """Whether somebody has paused it."""
        return self.paused_at is not None


class Became(StrEnum):
    """What became of an occurrence."""

    WAITING = "waiting"
    STARTED = "started"
    SKIPPED = "skipped"
    MISSED = "missed"


class Occurrence(models.Model):
    """One moment of a schedule, and what became of it; there is one row at most for each. `reason` says why no run was started.

    `at` is null where somebody ran the schedule by hand: `by` names them. `run_id` points nowhere once retention has deleted the run.
    """

    schedule = models.ForeignKey(Schedule, on_delete=models.CASCADE, related_name="occurrences")
    at = models.DateTimeField(null=True)
    became = models.CharField(max_length=16, choices=[(each.value, each.value) for each in Became])
    reason = WordsField(max_length=500, blank=True, default="")
    run_id = models.UUIDField(null=True)
    by = IdentifierField(blank=True, default="")
    seen_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["schedule", "at"], name="ezw_occurrence")]
        indexes: ClassVar = [models.Index(fields=["schedule", "became", "id"], name="ezw_occurrence_became")]

    def __str__(self) -> str:
        return f"{self.at or 'by hand'}: {self.became}"
