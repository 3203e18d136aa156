"""The bodies of a worker's calls (spec: protocol.md), checked before `protocol.calls_json` reads them."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from ..protocol.durable import MAX_NOTED, MAX_NOTED_EACH, MAX_WAITS
from ..protocol.notes import MAX_MODEL, MAX_SPAN_NAME, MAX_SPANS, MAX_UNIT, SPAN_ID
from ..protocol.states import CheckpointKind, Mode, WaitKind
from .fields import MAX_MS, CountField, FreeTextField, IdField, JsonField, MomentField, ObjectField, PatternField, Shape, SwitchField, TextField, listed, shape

MAX_ITEMS: Final = 1_000
"""How many leases, notes or payloads one call carries."""

MAX_DEFINITIONS: Final = 1_000


class Definition(Shape):
    """A workflow in its wire form: `Workflow.to_spec()`. The document has its schema from `definitions.wire`, which judges it, too."""


class RetryPolicy(Shape):
    """A retry policy in its wire form; from `definitions.wire`, too."""


@extend_schema_field(Definition)
class DefinitionField(ObjectField):
    """A definition. Read by the engine, which tells every fault of all of them at once."""


@extend_schema_field(RetryPolicy)
class RetryField(ObjectField):
    """A retry policy. Read by the engine."""


class Registration(Shape):
    """`POST workers/register`."""

    worker = TextField(help_text="The worker's name, shown with every attempt.")
    app = TextField(max_length=63, help_text="The app whose queue it serves.")
    organization = TextField(max_length=63, required=False, allow_null=True)
    project = TextField(max_length=63, required=False, allow_null=True)
    concurrency = CountField(1, 100_000, required=False, default=10)
    definitions = listed(DefinitionField(), MAX_DEFINITIONS, help_text="`Workflow.to_spec()` of what it serves.")
    sdk = TextField(required=False, allow_blank=True, default="")
    host = TextField(required=False, allow_blank=True, default="")
    cron = SwitchField(required=False, default=False, help_text="Fire the schedules of a developer's own app (`dev-…`) while this session lives.")


class Serve(Shape):
    """One workflow revision that the worker serves, whole or only some steps of it."""

    name = TextField()
    revision = TextField()
    steps = serializers.ListField(child=TextField(max_length=63), max_length=MAX_ITEMS, required=False, allow_null=True)


class Claim(Shape):
    """`POST steps/claim`."""

    worker_id = IdField()
    claim_id = TextField(max_length=64, help_text="Chosen by the client: the same again gives the same leases again.")
    max = CountField(1, 10_000, required=False, default=1)
    wait_ms = CountField(required=False, default=0, help_text="How long to hold the call while there is nothing.")
    serves = serializers.ListField(child=Serve(), max_length=MAX_DEFINITIONS, required=False, default=list)
    announce = listed(TextField(max_length=300), MAX_DEFINITIONS, help_text="`name@version` of definitions that the session serves as well.")
    run = IdField(required=False, allow_null=True, help_text="Only steps of this run.")


class Usage(Shape):
    """How much of something a body used."""

    unit = TextField(max_length=MAX_UNIT)
    amount = PatternField(r"^-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?$", help_text="A decimal of zero or more, as text.")
    model = TextField(max_length=MAX_MODEL, required=False, allow_null=True)


Span = shape(
    "Span",
    "A stretch of a body's time, and what was used in it.",
    id=PatternField(f"^{SPAN_ID}$", help_text="16 hex digits, not zeros alone."),
    parent=PatternField(f"^{SPAN_ID}$", required=False, allow_null=True, help_text="The span that it is a part of."),
    name=TextField(max_length=MAX_SPAN_NAME),
    start=MomentField(),
    end=MomentField(),
    attributes=ObjectField(required=False, allow_null=True),
    usage=serializers.ListField(child=Usage(), max_length=MAX_ITEMS, required=False, allow_null=True),
)


@extend_schema_field(Span)
class SpanField(ObjectField):
    """A span. Read by `protocol.notes`, which names the place of a fault."""


_NOTES: Final[dict[str, Any]] = {
    "usage": serializers.ListField(
        child=Usage(), max_length=MAX_ITEMS, required=False, default=list, help_text="What counts. Left out, it is what the spans add up to."
    ),
    "spans": listed(SpanField(), MAX_SPANS),
}

_STATE: Final[dict[str, Any]] = {"state": ObjectField(required=False, allow_null=True, help_text="A patch of top-level keys of the run's state.")}

Complete = shape("Complete", "`POST steps/{lease}/complete`.", output=JsonField(required=False, default=None), **_STATE, **_NOTES)

Fail = shape(
    "Fail",
    "`POST steps/{lease}/fail`.",
    **{"class": TextField(max_length=64)},
    message=FreeTextField(required=False, default=""),
    type=FreeTextField(required=False, allow_null=True),
    retry_after_ms=CountField(0, MAX_MS, required=False, allow_null=True),
    body_ended=SwitchField(required=False, default=True, help_text="False where the body may still be at work."),
    **_NOTES,
)

WaitFor = shape(
    "WaitFor",
    "One thing to wait for: `ms` or `until` of a sleep, `event` and `key` of an event, `runs` of children.",
    name=TextField(),
    kind=serializers.ChoiceField(choices=[kind.value for kind in WaitKind]),
    pos=CountField(required=False, allow_null=True),
    ms=CountField(0, MAX_MS, required=False, allow_null=True),
    until=MomentField(required=False, allow_null=True),
    event=TextField(required=False, allow_blank=True, default=""),
    key=TextField(required=False, allow_blank=True, default=""),
    timeout_ms=CountField(0, MAX_MS, required=False, allow_null=True),
    on_timeout=serializers.ChoiceField(choices=["fail", "continue"], required=False, default="fail"),
    lookback_ms=CountField(0, MAX_MS, required=False, allow_null=True, default=0),
    runs=listed(IdField(), 100_000),
)

Suspend = shape(
    "Suspend",
    "`POST steps/{lease}/suspend`.",
    waits=serializers.ListField(child=WaitFor(), min_length=1, max_length=MAX_WAITS),
    mode=serializers.ChoiceField(choices=[mode.value for mode in Mode], required=False, default=Mode.ALL.value),
    noted=listed(
        TextField(max_length=MAX_NOTED_EACH),
        MAX_NOTED,
        help_text="What stands for the notes of this suspend, in the worker's words. Each later lease of the step gives it back, with that of those before.",
    ),
    **_STATE,
    **_NOTES,
)

Failure = shape(
    "Failure",
    "Why an inner step failed.",
    **{"class": TextField(max_length=64)},
    message=FreeTextField(),
    type=FreeTextField(required=False, allow_null=True),
)

Checkpoint = shape(
    "Checkpoint",
    "`POST steps/{lease}/checkpoint`: the output of an inner step, or its `error` and the policy by which it is tried again.",
    name=TextField(),
    pos=CountField(),
    kind=serializers.ChoiceField(choices=[kind.value for kind in CheckpointKind], required=False, default=CheckpointKind.STEP.value),
    output=JsonField(required=False, default=None),
    error=Failure(required=False, allow_null=True),
    retry=RetryField(required=False, allow_null=True, help_text="The policy, in its wire form."),
    retry_after_ms=CountField(0, MAX_MS, required=False, allow_null=True),
    failures=CountField(required=False, allow_null=True, help_text="How often it had failed before, so that a failure which comes again is known."),
    **_STATE,
    **_NOTES,
)


class Children(Shape):
    """`POST steps/{lease}/children`."""

    name = TextField()
    pos = CountField()
    workflow = TextField()
    payloads = serializers.ListField(child=JsonField(), max_length=MAX_ITEMS)
    first = CountField(required=False, default=0)
    kind = serializers.ChoiceField(choices=[CheckpointKind.CHILD.value, CheckpointKind.BATCH.value], required=False)
    has_payload = SwitchField(required=False, default=True)


class Beat(Shape):
    """`POST steps/{lease}/heartbeat`."""

    progress = JsonField(required=False, default=None)


class BeatOfMany(Beat):
    """One lease of a grouped heartbeat."""

    id = IdField()


class Beats(Shape):
    """`POST steps/heartbeat`."""

    leases = serializers.ListField(child=BeatOfMany(), max_length=MAX_ITEMS)


class Nothing(Shape):
    """An empty object."""


class LeaseIds(Shape):
    """`POST steps/started`."""

    leases = serializers.ListField(child=IdField(), max_length=MAX_ITEMS)


Outcome = shape(
    "Outcome",
    "How one lease ends: `complete`, `fail` or `suspend`.",
    id=IdField(),
    complete=Complete(required=False),
    fail=Fail(required=False),
    suspend=Suspend(required=False),
)


@extend_schema_field(Outcome)
class OutcomeField(ObjectField):
    """An outcome, with one of `complete`, `fail` and `suspend`."""


class Outcomes(Shape):
    """`POST steps/outcomes`. Each is read by itself: one that is malformed is answered alone."""

    outcomes = serializers.ListField(child=OutcomeField(), max_length=MAX_ITEMS)
