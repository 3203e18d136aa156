"""Events from outside, the waits that are open for them, and who took what.

As runs, they point at their app without a database constraint: an emit in a long transaction keeps nobody from writing the app.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from .fields import IdentifierField, JsonTextField
from .runs import Run, Step
from .tenancy import App, Project

SCOPE_LENGTH = 40


class Event(models.Model):
    """Something from outside, with a name and a key; with a `run`, a signal to that run alone.

    `scope` says how far it reaches: a project, one app, or one run. `due_at` is set until its receivers have been resumed.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="events")
    app = models.ForeignKey(App, on_delete=models.CASCADE, db_constraint=False, null=True, related_name="events")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_constraint=False, null=True, related_name="signals")
    scope = IdentifierField(max_length=SCOPE_LENGTH)
    name = IdentifierField()
    key = IdentifierField(blank=True, default="")
    payload = JsonTextField()
    event_id = IdentifierField(null=True)
    created_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["scope", "event_id"], name="ezw_event_id")]
        indexes: ClassVar = [
            models.Index(fields=["scope", "name", "key", "created_at"], name="ezw_event_match"),
            models.Index(fields=["due_at"], name="ezw_event_due"),
            models.Index(fields=["created_at"], name="ezw_event_created"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.key}".strip()


class Wait(models.Model):
    """A wait that is open: what it takes, since when, until when. The row goes when the wait is over.

    `project` is null in a developer's app, which project-wide events do not reach. `since` is the oldest event it takes.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_constraint=False, related_name="waits")
    step = models.ForeignKey(Step, on_delete=models.CASCADE, db_constraint=False, related_name="waits")
    app = models.ForeignKey(App, on_delete=models.CASCADE, db_constraint=False, related_name="+")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, related_name="+")
    name = IdentifierField()
    event = IdentifierField()
    key = IdentifierField(blank=True, default="")
    since = models.DateTimeField()
    opened_at = models.DateTimeField()
    timeout_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["step", "name"], name="ezw_wait")]
        indexes: ClassVar = [
            models.Index(fields=["event", "key", "id"], name="ezw_wait_match"),
            models.Index(fields=["run"], name="ezw_wait_run"),
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.key}".strip()


class Receipt(models.Model):
    """An event taken by a wait of a run: once per run."""

    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="receipts")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_constraint=False, related_name="receipts")
    step = models.ForeignKey(Step, on_delete=models.CASCADE, db_constraint=False, related_name="receipts")
    taken_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["event", "run"], name="ezw_receipt")]
        indexes: ClassVar = [models.Index(fields=["run"], name="ezw_receipt_run")]

    def __str__(self) -> str:
        return f"event {self.event_id} by run {self.run_id}"
