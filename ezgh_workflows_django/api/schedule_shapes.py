"""The bodies and answers of schedules (spec: engine.md "Cron, concurrency")."""

from __future__ import annotations

from rest_framework import serializers

from ..engine.schedules import MAX_REASON, SHOWN_AHEAD
from ..models import Became
from .fields import JsonField, MomentField, NumberField, ObjectField, SaidField, Shape, TextField


class PauseReason(Shape):
    """Why."""

    reason = TextField(max_length=MAX_REASON, required=False, allow_blank=True, default="")


class OccurrenceTold(Shape):
    """What became of one moment of a schedule. `at` is null where somebody ran it by hand: `by` says who."""

    at = MomentField(allow_null=True)
    became = serializers.ChoiceField(choices=[each.value for each in Became])
    reason = SaidField(help_text="Why no run was started.")
    run = SaidField(allow_null=True, help_text="Retention may have deleted it.")
    by = SaidField()
    seen_at = MomentField()


class ScheduleTold(Shape):
    """A cron of a workflow, and how it stands."""

    id = NumberField()
    app = SaidField()
    workflow = SaidField()
    version = SaidField(help_text="The definition that it follows: the newest stored one.")
    number = NumberField(help_text="Its place among the workflow's crons, from 0.")
    expression = SaidField()
    timezone = SaidField()
    payload = JsonField(required=False)
    labels = ObjectField()
    overlap = SaidField()
    catch_up = SaidField()
    paused_at = MomentField(allow_null=True)
    paused_reason = SaidField()
    next = serializers.ListField(child=MomentField(), help_text=f"When it fires, the next {SHOWN_AHEAD} times; empty while it rests.")
    last = OccurrenceTold(allow_null=True)


class SchedulesTold(Shape):
    """A page of schedules, the newest first. `next` is the cursor of the page after it, or null."""

    schedules = serializers.ListField(child=ScheduleTold())
    next = SaidField(allow_null=True)
