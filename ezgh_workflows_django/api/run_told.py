"""The answers of the run endpoints, as the OpenAPI document shows them; `run_answers` writes them."""

from __future__ import annotations

from typing import Any, Final

from rest_framework import serializers

from .fields import JsonField, MomentField, NumberField, ObjectField, SaidField, Shape, shape
from .run_shapes import STATUSES
from .usage_shapes import UsageTold

_RUN: Final[dict[str, Any]] = {
    "id": SaidField(),
    "app": SaidField(),
    "workflow": SaidField(),
    "version": SaidField(),
    "status": serializers.ChoiceField(choices=STATUSES),
    "attention": serializers.BooleanField(help_text="It needs somebody: paused with a failed step."),
    "labels": serializers.DictField(child=serializers.CharField()),
    "correlation_id": SaidField(),
    "idempotency_key": SaidField(allow_null=True),
    "priority": serializers.IntegerField(),
    "episode": NumberField(),
    "parent": SaidField(allow_null=True),
    "created_at": MomentField(),
    "start_at": MomentField(),
    "started_at": MomentField(allow_null=True),
    "ended_at": MomentField(allow_null=True),
    "deadline_at": MomentField(allow_null=True),
    "failure": ObjectField(allow_null=True),
    "reason": SaidField(),
    "cost": SaidField(allow_null=True, help_text="Of what had a price when it came in, as a decimal; null where nothing had one."),
}

RunTold = shape("RunTold", "A run, without its payload and result.", **_RUN)


class StepTold(Shape):
    """A step of a run."""

    name = SaidField()
    kind = SaidField()
    status = SaidField()
    attempts = NumberField()
    failures = NumberField()
    available_at = MomentField(allow_null=True)
    started_at = MomentField(allow_null=True)
    ended_at = MomentField(allow_null=True)
    output = JsonField()
    failure = ObjectField(allow_null=True)
    usage = serializers.ListField(child=UsageTold())
    cost = SaidField(allow_null=True)


class AttemptTold(Shape):
    """One attempt of a step."""

    step = SaidField()
    attempt = NumberField()
    worker = SaidField()
    status = SaidField()
    offered_at = MomentField()
    started_at = MomentField(allow_null=True)
    ended_at = MomentField(allow_null=True)
    progress = JsonField()


class WaitTold(Shape):
    """What a run waits for."""

    step = SaidField()
    event = SaidField()
    key = SaidField()
    until = MomentField(allow_null=True)


RunInFull = shape(
    "RunInFull",
    "A run with all that is told of it.",
    **_RUN,
    phase=SaidField(),
    waiting_for=serializers.ListField(child=WaitTold()),
    payload=JsonField(),
    state=ObjectField(),
    output=JsonField(),
    trace_id=SaidField(),
    usage=serializers.ListField(child=UsageTold()),
    currency=SaidField(help_text="Of every cost here."),
    steps=serializers.ListField(child=StepTold()),
    attempts=serializers.ListField(child=AttemptTold()),
)


class RunsTold(Shape):
    """A page of runs, the newest first. `next` is the cursor of the page after it, or null."""

    runs = serializers.ListField(child=RunTold())
    next = SaidField(allow_null=True)


EntryTold = shape(
    "EntryTold",
    "One entry of a run's journal.",
    seq=NumberField(),
    kind=SaidField(),
    at=MomentField(),
    step=SaidField(),
    attempt=NumberField(allow_null=True),
    worker=SaidField(),
    data=ObjectField(),
)


StreamedEvent = shape(
    "StreamedEvent",
    "One event of a run's stream.",
    id=SaidField(required=False, help_text="`seq` of the entry."),
    event=SaidField(required=False, help_text="`end` for the last one, once the run is over."),
    data=SaidField(help_text="The entry, as JSON; with `end`, the run's id and status."),
)


class JournalTold(Shape):
    """Entries in order. `next` is the `after` of those that follow, or null."""

    entries = serializers.ListField(child=EntryTold())
    next = NumberField(allow_null=True)


class NodeTold(Shape):
    """A step as its definition has it, and how it stands in this run."""

    name = SaidField()
    kind = SaidField()
    after = serializers.ListField(child=serializers.CharField())
    status = SaidField(allow_null=True)


class GraphTold(Shape):
    """The graph of the version the run is pinned to."""

    workflow = SaidField()
    version = SaidField()
    steps = serializers.ListField(child=NodeTold())
    on_failure = NodeTold(allow_null=True)


class Stands(Shape):
    """How the run stands now."""

    id = SaidField()
    status = serializers.ChoiceField(choices=STATUSES)


class Delivery(Shape):
    """Whether a wait took the signal at once."""

    delivery = serializers.ChoiceField(choices=["delivered", "buffered"])


class Migration(Shape):
    """What the move means. With `faults` it can't be made."""

    run = SaidField()
    before = SaidField()
    after = SaidField()
    added = serializers.ListField(child=serializers.CharField())
    removed = serializers.ListField(child=serializers.CharField())
    faults = serializers.ListField(child=serializers.CharField())
    notes = serializers.ListField(child=serializers.CharField())
    done = serializers.BooleanField()


class RefusedRun(Shape):
    """A run that the verb was refused for."""

    id = SaidField()
    code = SaidField()
    message = SaidField()


class BulkTold(Shape):
    """`count` runs were meant (at most 10,000 are counted); of these `done` were dealt with now. With `more`, the same call again deals with the next."""

    count = NumberField()
    done = serializers.ListField(child=SaidField())
    refused = serializers.ListField(child=RefusedRun())
    more = serializers.BooleanField()


class EventTold(Shape):
    """The stored event. `known`: one with that `event_id` was there already, and nothing changed."""

    id = NumberField()
    known = serializers.BooleanField()
