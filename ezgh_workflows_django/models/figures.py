"""Figures: what each minute came to, and what all minutes so far came to. Made by maintenance from the rows of runs and leases; never by a hot verb."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from django.db import models

from .fields import NAME_LENGTH, IdentifierField, JsonTextField
from .tenancy import App


class FigureKind(StrEnum):
    """What a figure counts. Those that are times also have their sum and how they spread."""

    RUN_ENDED = "run_ended"  # `outcome`: the run's status
    RUN_TIME = "run_time"  # a time: from begun to ended
    ADMISSION_WAIT = "admission_wait"  # a time: from when it was due to when it began
    LEASE_ENDED = "lease_ended"  # `outcome`: the lease's status
    CLAIM_WAIT = "claim_wait"  # a time: from ready to claimed
    REFUSED = "refused"  # `outcome`: the reason


class _Sum(models.Model):
    """How many of one kind there were, of one workflow. `buckets` (JSON) is how times spread: the upper bound of each bucket, and how many fell in it."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="+")
    workflow = IdentifierField(max_length=NAME_LENGTH)
    kind = models.CharField(max_length=16, choices=[(each.value, each.value) for each in FigureKind])
    outcome = models.CharField(max_length=16, blank=True, default="")
    count = models.PositiveBigIntegerField()
    total_ms = models.PositiveBigIntegerField(default=0)
    buckets = JsonTextField(default="{}")

    class Meta:
        abstract = True


class Figure(_Sum):
    """What one whole minute came to, known by its beginning. A minute in which nothing ended has none."""

    minute = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["minute", "app", "workflow", "kind", "outcome"], name="ezw_figure")]

    def __str__(self) -> str:
        return f"{self.count} × {self.kind} {self.outcome} of {self.workflow} in {self.minute:%Y-%m-%d %H:%M}"


class RunningTotal(_Sum):
    """What all minutes so far came to, those too whose own figures are gone: it only rises."""

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["app", "workflow", "kind", "outcome"], name="ezw_running_total")]

    def __str__(self) -> str:
        return f"{self.count} × {self.kind} {self.outcome} of {self.workflow}"


class RefusedCall(models.Model):
    """A worker's call that was refused, once for a lease and a reason, until its minute is summed: no other row tells when that was."""

    app = models.ForeignKey(App, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="+")
    workflow = IdentifierField(max_length=NAME_LENGTH)
    reason = models.CharField(max_length=16)
    at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["at"], name="ezw_refused_at")]

    def __str__(self) -> str:
        return f"{self.reason} at {self.at}"
