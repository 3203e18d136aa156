"""Who may come in from outside, and which workflows are held back."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from .fields import NAME_LENGTH, IdentifierField, JsonTextField
from .tenancy import App, Project


class ApiKey(models.Model):
    """A key of a project, or of one of its apps. Its secret is not here: only a hash of it is.

    `grants` are the permissions and policies it was given, by name; `used_at` is written at most once a minute.
    """

    prefix = IdentifierField(max_length=16)
    name = IdentifierField(max_length=100)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="keys")
    app = models.ForeignKey(App, on_delete=models.CASCADE, null=True, related_name="keys")
    secret_hash = models.CharField(max_length=64)
    grants = JsonTextField()
    created_at = models.DateTimeField()
    created_by = IdentifierField(blank=True, default="")
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    used_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["prefix"], name="ezw_key_prefix")]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"


class WorkflowPause(models.Model):
    """Steps of this workflow are not offered to workers of this app until it is resumed."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="workflow_pauses")
    workflow = IdentifierField(max_length=NAME_LENGTH)
    paused_at = models.DateTimeField()
    reason = IdentifierField(max_length=500, blank=True, default="")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["app", "workflow"], name="ezw_workflow_pause")]

    def __str__(self) -> str:
        return f"{self.workflow} is paused"
