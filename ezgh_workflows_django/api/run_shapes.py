"""The bodies and queries of the run endpoints (spec: api.md)."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from ..engine.start_requests import MAX_LABELS, MAX_PRIORITY
from ..protocol.states import RunStatus
from .fields import MAX_INT, MAX_MS, CountField, JsonField, MomentField, ObjectField, Shape, SwitchField, TextField
from .pages import Page

STATUSES: Final = [status.value for status in RunStatus]
MAX_REASON: Final = 500


class Start(Shape):
    """A run to start. `at` or `delay_ms`, not both."""

    workflow = TextField()
    payload = JsonField(required=False)
    labels = ObjectField(required=False, help_text=f"Texts by name, at most {MAX_LABELS}.")
    idempotency_key = TextField(required=False, allow_null=True)
    correlation_id = TextField(required=False, allow_null=True, allow_blank=True)
    at = MomentField(required=False, allow_null=True)
    delay_ms = CountField(0, MAX_MS, required=False, allow_null=True)
    priority = CountField(-MAX_PRIORITY, MAX_PRIORITY, required=False, default=0)
    app = TextField(max_length=63, required=False, allow_null=True)


class RunsQuery(Page):
    """Which runs. `label.NAME=VALUE`, any number of times, as well."""

    status = serializers.ChoiceField(choices=STATUSES, required=False)
    workflow = TextField(required=False)
    app = TextField(max_length=63, required=False)
    correlation_id = TextField(required=False)
    idempotency_key = TextField(required=False)
    since = MomentField(required=False, help_text="Created then or later.")
    until = MomentField(required=False, help_text="Created before.")


@extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1, "maxProperties": MAX_LABELS})
class WantedLabelsField(ObjectField):
    """Labels to choose runs by. No label at all would choose every run: whoever means that, says so by another field."""

    default_error_messages = {"no_label": "Name a label at least."}

    def to_internal_value(self, data: Any) -> Any:
        """The labels."""
        labels = super().to_internal_value(data)
        if not labels:
            self.fail("no_label")
        return labels


class Filter(Shape):
    """Which runs a bulk call is for: at least one of these. It never reaches a run that the verb is not for."""

    status = serializers.ChoiceField(choices=STATUSES, required=False)
    workflow = TextField(required=False)
    app = TextField(max_length=63, required=False)
    correlation_id = TextField(required=False)
    since = MomentField(required=False)
    until = MomentField(required=False)
    labels = WantedLabelsField(required=False)

    def validate(self, attrs: Any) -> Any:
        """Nothing chosen is nothing meant."""
        if not attrs:
            raise serializers.ValidationError("name at least one of status, workflow, app, correlation_id, since, until, labels")
        return attrs


class Bulk(Shape):
    """A verb for many runs. With `preview` nothing is done."""

    filter = Filter()
    preview = SwitchField(required=False, default=False)
    reason = TextField(max_length=MAX_REASON, required=False, allow_blank=True, default="")


class Wait(Shape):
    """How long to hold the answer until the run is over."""

    wait_ms = serializers.IntegerField(min_value=0, max_value=2**31 - 1, required=False, default=0)


class StreamQuery(Shape):
    """Where a stream of a journal begins."""

    after = serializers.IntegerField(min_value=0, max_value=MAX_INT, required=False, default=0, help_text="`seq` of the last entry that is known.")


class JournalQuery(StreamQuery):
    """Which entries of a journal, in its order."""

    limit = serializers.IntegerField(min_value=1, max_value=1_000, required=False, default=200)


class Reason(Shape):
    """Why."""

    reason = TextField(max_length=MAX_REASON, required=False, allow_blank=True, default="")


class Retry(Shape):
    """Where to begin again: a step, or the failed ones."""

    from_step = TextField(max_length=63, required=False, allow_null=True)


class Resolve(Reason):
    """The step to end by hand, with its output."""

    step = TextField(max_length=63)
    output = JsonField(required=False, default=None)


class Migrate(Shape):
    """The version to move to. With `dry_run` nothing is done."""

    version = TextField(max_length=16)
    dry_run = SwitchField(required=False, default=False)


class Signal(Shape):
    """An event for this run alone."""

    name = TextField()
    payload = JsonField(required=False, default=None)


class Emit(Shape):
    """An event. `event_id` makes it count once, however often it is sent."""

    name = TextField()
    key = TextField(required=False, allow_blank=True, default="")
    payload = JsonField(required=False, default=None)
    event_id = TextField(required=False, allow_null=True)
    app = TextField(max_length=63, required=False, allow_null=True)
