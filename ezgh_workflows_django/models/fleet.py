"""Worker sessions, what they announce, the trail, and the row that lets one process tick of those that come at one moment."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from .fields import IdentifierField, JsonTextField
from .tenancy import App, Definition, Project


class Worker(models.Model):
    """One worker session. A reused name is another session. `cron`: it wants the schedules of its app fired, if that is a developer's own."""

    id = models.UUIDField(primary_key=True)
    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="workers")
    name = IdentifierField()
    host = IdentifierField(blank=True, default="")
    sdk = IdentifierField(blank=True, default="")
    concurrency = models.PositiveIntegerField()
    unservable = JsonTextField(default="[]")
    cron = models.BooleanField(default=False)
    registered_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    left_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["app", "seen_at"], name="ezw_worker_seen")]

    def __str__(self) -> str:
        return self.name


class Announcement(models.Model):
    """A worker session serves this definition, for as long as the session is heard of."""

    worker = models.ForeignKey(Worker, on_delete=models.CASCADE, related_name="announcements")
    definition = models.ForeignKey(Definition, on_delete=models.CASCADE, related_name="announcements")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["worker", "definition"], name="ezw_announcement")]

    def __str__(self) -> str:
        return f"{self.worker_id} serves {self.definition_id}"


class Trail(models.Model):
    """The audit log: who did what to which thing. Append-only. `once` is what a row is the only one of, where it may come only once."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="trails")
    at = models.DateTimeField()
    action = IdentifierField(max_length=63)
    actor_kind = models.CharField(max_length=16)
    actor = IdentifierField()
    target_kind = models.CharField(max_length=32)
    target = IdentifierField()
    data = JsonTextField(default="{}")
    once = IdentifierField(max_length=64, null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["once"], name="ezw_trail_once")]
        indexes: ClassVar = [
            models.Index(fields=["project", "at"], name="ezw_trail_at"),
            models.Index(fields=["project", "action", "at"], name="ezw_trail_action"),
            models.Index(fields=["project", "actor", "at"], name="ezw_trail_actor"),
            models.Index(fields=["target_kind", "target"], name="ezw_trail_target"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.target}"


class Tick(models.Model):
    """The one row that says when maintenance last ran, until when it is lenient after a gap, and how far the figures have been summed."""

    ticked_at = models.DateTimeField()
    summed_until = models.DateTimeField()
    lenient_until = models.DateTimeField(null=True)
    lateness_ms = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return f"tick at {self.ticked_at}"
