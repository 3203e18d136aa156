"""The answers to a worker's calls, as the OpenAPI document shows them; `protocol.answers_json` writes them."""

from __future__ import annotations

from rest_framework import serializers

from ..protocol.states import CheckpointKind, Delivery, RunStatus, StepStatus
from .docs import ErrorTold
from .fields import JsonField, MomentField, NumberField, ObjectField, SaidField, Shape, shape


class NamedVersion(Shape):
    """A stored definition."""

    name = SaidField()
    version = SaidField()


class RegisteredShape(Shape):
    """A worker session, and the numbers it works with."""

    worker_id = SaidField()
    lease_ttl_ms = NumberField()
    recovery_ms = NumberField()
    offer_ttl_ms = NumberField()
    heartbeat_ms = NumberField()
    max_wait_ms = NumberField()
    max_claim = NumberField(help_text="The most leases that one claim may ask for.")
    definitions = serializers.ListField(child=NamedVersion())


FailureTold = shape(
    "FailureTold",
    "Why something failed, and where: the step and the attempt, where there is one.",
    **{"class": SaidField()},
    message=SaidField(),
    type=SaidField(required=False),
    step=SaidField(required=False),
    attempt=NumberField(required=False),
    attempts=NumberField(required=False),
)


class CheckpointTold(Shape):
    """One thing that a body asked for, and what it came to: `output`, `error` or `timed_out`, or none of them while it is `open`."""

    name = SaidField()
    pos = NumberField()
    kind = serializers.ChoiceField(choices=[kind.value for kind in CheckpointKind])
    output = JsonField(required=False)
    error = FailureTold(required=False)
    timed_out = serializers.BooleanField(required=False)
    open = serializers.BooleanField(required=False)
    at = MomentField(required=False)
    failures = NumberField(required=False)
    retry_at = MomentField(required=False)
    children = NumberField(required=False)


class LeaseTold(Shape):
    """One attempt of a step. `parts` names what was too large for the answer: the place, and the reference to fetch it by."""

    id = SaidField()
    token = NumberField()
    run_id = SaidField()
    workflow = SaidField()
    version = SaidField()
    revision = SaidField()
    step = SaidField()
    attempt = NumberField()
    input = JsonField(required=False)
    has_input = serializers.BooleanField()
    steps = ObjectField()
    state = ObjectField(required=False)
    labels = serializers.DictField(child=serializers.CharField())
    correlation_id = SaidField()
    idempotency_key = SaidField()
    delivery = serializers.ChoiceField(choices=[delivery.value for delivery in Delivery])
    traceparent = SaidField()
    trace_id = SaidField()
    span_id = SaidField()
    expires_at = MomentField()
    expires_in_ms = NumberField()
    timeout_ms = NumberField(allow_null=True)
    deadline = MomentField(allow_null=True)
    run_started_at = MomentField(allow_null=True)
    checkpoints = serializers.ListField(child=CheckpointTold())
    noted = serializers.ListField(child=serializers.CharField(), help_text="What the step's suspends gave as `noted`, so far.")
    failure = FailureTold(allow_null=True)
    last = serializers.BooleanField()
    retries = serializers.BooleanField()
    parts = serializers.DictField(child=serializers.CharField(), required=False)


class LeasesGiven(Shape):
    """The answer to a claim. `retry_after_ms` is the least rest before the next one."""

    leases = serializers.ListField(child=LeaseTold())
    retry_after_ms = NumberField(required=False)


class Extended(Shape):
    """How long the lease lives now."""

    id = SaidField()
    expires_at = MomentField()
    expires_in_ms = NumberField()


class ExtendedOrNot(Shape):
    """How long one lease lives now, or why it does not."""

    id = SaidField()
    expires_at = MomentField(required=False)
    expires_in_ms = NumberField(required=False)
    error = ErrorTold(required=False)


class ManyExtended(Shape):
    """One answer for each lease."""

    leases = serializers.ListField(child=ExtendedOrNot())


class Ended(Shape):
    """What the outcome left the step and its run in."""

    id = SaidField()
    step = serializers.ChoiceField(choices=[status.value for status in StepStatus])
    run = serializers.ChoiceField(choices=[status.value for status in RunStatus])
    retry_at = MomentField(required=False)


class EndedOrNot(Shape):
    """What one outcome left, or why it was refused."""

    id = SaidField()
    step = serializers.ChoiceField(choices=[status.value for status in StepStatus], required=False)
    run = serializers.ChoiceField(choices=[status.value for status in RunStatus], required=False)
    retry_at = MomentField(required=False)
    error = ErrorTold(required=False)


class ManyEnded(Shape):
    """One answer for each outcome."""

    outcomes = serializers.ListField(child=EndedOrNot())


class StoredTold(Shape):
    """What is stored under that name now. With `retry_at` it is tried again then; `final` says that nothing more will come of it."""

    name = SaidField()
    final = serializers.BooleanField()
    output = JsonField(required=False)
    failure = FailureTold(required=False)
    at = MomentField(required=False)
    retry_at = MomentField(required=False)
    repeated = serializers.BooleanField(required=False)


class ChildrenTold(Shape):
    """The child runs, in the order of their payloads."""

    name = SaidField()
    runs = serializers.ListField(child=serializers.CharField())
