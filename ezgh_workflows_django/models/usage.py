"""What bodies used, the spans they used it in, and the book of prices. Costs stay as they were recorded, whatever a price becomes."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from ..protocol.notes import MAX_MODEL, MAX_SPAN_NAME, MAX_UNIT
from .fields import ExactDecimalField, IdentifierField, JsonTextField, WordsField
from .runs import Run
from .tenancy import Project

SPAN_ID_LENGTH = 16


class Price(models.Model):
    """What `per` units cost from a day on (UTC), in the installation's one currency (`CURRENCY`), until a later row of that model and unit.

    An empty `model` is the price of usage without one. Rows are added and put right, never deleted: they are the history.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="prices")
    model = IdentifierField(max_length=MAX_MODEL, blank=True, default="")
    unit = IdentifierField(max_length=MAX_UNIT)
    amount = ExactDecimalField()
    per = models.PositiveBigIntegerField(default=1)
    effective_from = models.DateField()
    changed_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["project", "model", "unit", "effective_from"], name="ezw_price")]

    def __str__(self) -> str:
        return f"{self.model or '–'} {self.unit} from {self.effective_from}"


class UsageRecord(models.Model):
    """An amount that one report of a lease brought: with the checkpoint of that name, or with how the pass ended (empty).

    `step` is a name, as in the journal: it outlives the step's row. `cost` is null where no price was known on the day it came in.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="usage_records")
    step = IdentifierField(max_length=63)
    attempt = models.PositiveIntegerField()
    lease = models.UUIDField()
    checkpoint = IdentifierField(blank=True, default="")
    at = models.DateTimeField()
    model = IdentifierField(max_length=MAX_MODEL, blank=True, default="")
    unit = IdentifierField(max_length=MAX_UNIT)
    amount = ExactDecimalField()
    cost = ExactDecimalField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["run", "id"], name="ezw_usage_run")]

    def __str__(self) -> str:
        return f"{self.amount} {self.unit}"


class SpanRecord(models.Model):
    """A named stretch of a body's time, as its worker told it. `parent` is another span, or the step's own.

    `usage` (JSON) and `cost` are those of this span alone; what counts for the step are its usage records.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="span_records")
    step = IdentifierField(max_length=63)
    attempt = models.PositiveIntegerField()
    lease = models.UUIDField()
    checkpoint = IdentifierField(blank=True, default="")
    span_id = models.CharField(max_length=SPAN_ID_LENGTH)
    parent = models.CharField(max_length=SPAN_ID_LENGTH, null=True)
    name = WordsField(max_length=MAX_SPAN_NAME)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    attributes = JsonTextField(default="{}")
    usage = JsonTextField(null=True)
    cost = ExactDecimalField(null=True)

    class Meta:
        verbose_name = "span"
        indexes: ClassVar = [models.Index(fields=["run", "id"], name="ezw_span_run")]

    def __str__(self) -> str:
        return self.name
