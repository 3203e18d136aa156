"""What admissions take turns by, and what a rate remembers. Who holds a slot is said by the runs' own rows alone, never by a counter."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from .fields import NAME_LENGTH, IdentifierField
from .tenancy import App


class Gate(models.Model):
    """Who holds its row decides alone who is let into the buckets that fall to it. There is a fixed number of them, made by `migrate`."""

    number = models.PositiveSmallIntegerField(primary_key=True)

    def __str__(self) -> str:
        return f"gate {self.number}"


class Rate(models.Model):
    """The one gate of a workflow whose admissions are spaced. `due_at` is when the next run may be admitted, where one waits only for that."""

    id = models.UUIDField(primary_key=True)
    app = models.ForeignKey(App, on_delete=models.CASCADE, db_constraint=False, related_name="rates")
    workflow = IdentifierField(max_length=NAME_LENGTH)
    due_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["due_at"], name="ezw_rate_due")]

    def __str__(self) -> str:
        return f"rate of {self.workflow}"


class Admission(models.Model):
    """One admission under a rate, kept for as long as it counts."""

    rate = models.ForeignKey(Rate, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="admissions")
    at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["rate", "at"], name="ezw_admission_at")]

    def __str__(self) -> str:
        return f"admission at {self.at}"
