"""Organization › project › app, and what an app knows to run: revisions and definitions."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from .fields import NAME_LENGTH, IdentifierField, JsonTextField, WordsField


class Organization(models.Model):
    """The outermost tenant."""

    slug = IdentifierField(max_length=63)
    name = WordsField(max_length=200)
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["slug"], name="ezw_org_slug")]

    def __str__(self) -> str:
        return self.slug


class Project(models.Model):
    """What keys are scoped to, and how far an event reaches."""

    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="projects")
    slug = IdentifierField(max_length=63)
    name = WordsField(max_length=200)
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["organization", "slug"], name="ezw_project_slug")]

    def __str__(self) -> str:
        return self.slug


class App(models.Model):
    """One queue over some partitions, and the workers that serve it.

    `invocation_ms` is the longest time a lease may run where its step sets no timeout:
    kept by the engine from what live workers announce (spec: engine.md "Leases").
    """

    DEV_PREFIX = "dev-"

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="apps")
    name = IdentifierField(max_length=63)
    kind = models.CharField(max_length=16, default="pull")
    queue = IdentifierField(max_length=63, default="default")
    partitions = models.PositiveSmallIntegerField(default=4)
    invocation_ms = models.PositiveBigIntegerField(default=15 * 60 * 1000)
    paused_at = models.DateTimeField(null=True, blank=True)
    paused_reason = WordsField(max_length=500, blank=True, default="")
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "name"], name="ezw_app_name"),
            models.CheckConstraint(condition=Q(partitions__gte=1, partitions__lte=32), name="ezw_app_partitions"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_dev(self) -> bool:
        """A developer's own app is a world of its own: project-wide events do not reach it."""
        return self.name.startswith(self.DEV_PREFIX)


class Revision(models.Model):
    """One revision of a workflow in one app: what a worker says it serves, and what a claim looks for."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="revisions")
    workflow = IdentifierField(max_length=NAME_LENGTH)
    revision = IdentifierField(max_length=NAME_LENGTH)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["app", "workflow", "revision"], name="ezw_revision")]

    def __str__(self) -> str:
        return f"{self.workflow} revision {self.revision}"


class Definition(models.Model):
    """One immutable version of a workflow: its wire form, known by its content hash.

    `due_at` is set until the runs that wait for a slot have been told that the limits may be others now; `marked_until` is the last that was.
    """

    revision = models.ForeignKey(Revision, on_delete=models.CASCADE, related_name="definitions")
    app = models.ForeignKey(App, on_delete=models.CASCADE, related_name="definitions")
    workflow = IdentifierField(max_length=NAME_LENGTH)
    version = IdentifierField(max_length=16)
    spec = JsonTextField()
    input_schemas = JsonTextField(default="{}")
    longest_timeout_ms = models.PositiveBigIntegerField(null=True)
    created_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True)
    marked_until = models.UUIDField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["app", "workflow", "version"], name="ezw_definition")]
        indexes: ClassVar = [models.Index(fields=["due_at"], name="ezw_definition_due")]

    def __str__(self) -> str:
        return f"{self.workflow}@{self.version}"
