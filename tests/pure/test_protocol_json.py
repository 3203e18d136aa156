"""Every message goes through JSON text and comes back as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ezgh_workflows_django.protocol import answers_json, calls_json, leases_json
from ezgh_workflows_django.protocol.durable import Checkpoint, Children, Record, Started, Stored, WaitFor
from ezgh_workflows_django.protocol.failures import Failure, Refused
from ezgh_workflows_django.protocol.messages import Beat, Claimed, ClaimRequest, Extension, Lease, Registered, Registration, Serve
from ezgh_workflows_django.protocol.notes import Usage
from ezgh_workflows_django.protocol.outcomes import Answer, Outcome
from ezgh_workflows_django.protocol.states import CheckpointKind, LeaseStatus, Mode, WaitKind

text = some.text(some.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
numbers = some.integers(0, 2**53)
values = some.recursive(
    some.none() | some.booleans() | numbers | text, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(text, inner, max_size=3), max_leaves=6
)
moments = some.datetimes(timezones=some.just(UTC), min_value=datetime(1970, 1, 1))  # noqa: DTZ001 - the strategy adds the zone
objects = some.dictionaries(text, values, max_size=3)
labels = some.dictionaries(text, text, max_size=3)
failures = some.builds(
    Failure, class_=text, message=text, type=some.none() | text, step=some.none() | text, attempt=some.none() | numbers, attempts=some.none() | numbers
)
usages = some.lists(some.builds(Usage, unit=text, amount=text, model=some.none() | text), max_size=2).map(tuple)
spans = some.lists(objects, max_size=2).map(tuple)
notes: dict[str, Any] = {"state": some.none() | objects, "usage": usages, "spans": spans}
waits = some.one_of(
    some.builds(WaitFor, name=text, kind=some.just(WaitKind.SLEEP), pos=some.none() | numbers, ms=numbers),
    some.builds(WaitFor, name=text, kind=some.just(WaitKind.SLEEP), until=moments),
    some.builds(WaitFor, name=text, kind=some.just(WaitKind.RETRY), pos=some.none() | numbers),
    some.builds(WaitFor, name=text, kind=some.just(WaitKind.CHILD), runs=some.lists(text, max_size=2).map(tuple)),
    some.builds(
        WaitFor,
        name=text,
        kind=some.just(WaitKind.EVENT),
        event=text,
        key=text,
        timeout_ms=some.none() | numbers,
        on_timeout=some.sampled_from(["fail", "continue"]),
        lookback_ms=some.none() | numbers,
    ),
)
outcomes = some.one_of(
    some.builds(Outcome.completed, values, **notes),
    some.builds(
        Outcome.failed, text, text, type=some.none() | text, retry_after_ms=some.none() | numbers, body_ended=some.booleans(), usage=usages, spans=spans
    ),
    some.builds(
        Outcome.suspended,
        some.lists(waits, min_size=1, max_size=3).map(tuple),
        some.sampled_from(Mode),
        noted=some.lists(text, max_size=3).map(tuple),
        **notes,
    ),
)
checkpoints = some.one_of(
    some.builds(Checkpoint, name=text, pos=numbers, kind=some.sampled_from(CheckpointKind), output=values, at=moments, children=numbers),
    some.builds(Checkpoint, name=text, pos=numbers, kind=some.just(CheckpointKind.STEP), failure=failures, at=moments, failures=numbers),
    some.builds(Checkpoint, name=text, pos=numbers, kind=some.just(CheckpointKind.EVENT), timed_out=some.just(True), at=moments),
    some.builds(
        Checkpoint, name=text, pos=numbers, kind=some.just(CheckpointKind.STEP), failure=failures, is_open=some.just(True), retry_at=moments, failures=numbers
    ),
)
leases = some.builds(
    Lease,
    id=text,
    token=numbers,
    run_id=text,
    workflow=text,
    version=text,
    revision=text,
    step=text,
    attempt=numbers,
    expires_at=moments,
    expires_in_ms=numbers,
    input=values,
    has_input=some.booleans(),
    steps=objects,
    state=objects,
    labels=labels,
    correlation_id=text,
    idempotency_key=text,
    trace_id=text,
    span_id=text,
    timeout_ms=some.none() | numbers,
    deadline=some.none() | moments,
    run_started_at=some.none() | moments,
    checkpoints=some.lists(checkpoints, max_size=3).map(tuple),
    noted=some.lists(text, max_size=3).map(tuple),
    failure=some.none() | failures,
    last=some.booleans(),
    retries=some.booleans(),
)
refusals = some.builds(Refused, text, text, some.none() | objects)
registrations = some.builds(
    Registration,
    worker=text,
    app=text,
    concurrency=numbers,
    definitions=some.lists(objects, max_size=2).map(tuple),
    sdk=text,
    host=text,
    organization=some.none() | text,
    project=some.none() | text,
)
claims = some.builds(
    ClaimRequest,
    worker_id=text,
    claim_id=text,
    max=numbers,
    wait_ms=numbers,
    serves=some.lists(some.builds(Serve, text, text, some.none() | some.frozensets(text, max_size=3)), max_size=2).map(tuple),
    run=some.none() | text,
)
records = some.one_of(
    some.builds(Record, lease_id=some.just("L"), name=text, pos=numbers, output=values, **notes),
    some.builds(
        Record,
        lease_id=some.just("L"),
        name=text,
        pos=numbers,
        failure=failures,
        retry=some.none() | objects,
        retry_after_ms=some.none() | numbers,
        failures=some.none() | numbers,
        **notes,
    ),
)
children = some.builds(
    Children,
    lease_id=some.just("L"),
    name=text,
    pos=numbers,
    workflow=text,
    payloads=some.lists(values, max_size=3).map(tuple),
    first=numbers,
    kind=some.sampled_from([CheckpointKind.CHILD, CheckpointKind.BATCH]),
    has_payload=some.booleans(),
)
registered = some.builds(Registered, definitions=some.lists(some.tuples(text, text), max_size=2).map(tuple))
extensions = some.one_of(
    some.builds(Extension, lease_id=some.just("L"), expires_at=moments, expires_in_ms=numbers),
    some.builds(Extension, lease_id=some.just("L"), refused=refusals),
)
answers = some.one_of(
    some.builds(Answer, lease_id=some.just("L"), step=text, run=text, retry_at=some.none() | moments),
    some.builds(Answer, lease_id=some.just("L"), refused=refusals),
)
stored = some.one_of(
    some.builds(Stored, lease_id=some.just("L"), name=some.just("n"), output=values, at=moments, repeated=some.booleans()),
    some.builds(Stored, lease_id=some.just("L"), name=some.just("n"), failure=failures, retry_at=moments),
    some.builds(Stored, lease_id=some.just("L"), name=some.just("n"), refused=refusals),
)

ROUND_TRIPS: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "lease": (leases, leases_json.to_json, leases_json.from_json),
    "registration": (registrations, calls_json.registration_to_json, calls_json.registration_from_json),
    "claim": (claims, calls_json.claim_to_json, calls_json.claim_from_json),
    "beat": (some.builds(Beat, text, values), calls_json.beat_to_json, calls_json.beat_from_json),
    "outcome": (outcomes, calls_json.outcome_to_json, lambda told: calls_json.outcome_from_json(*told)),
    "record": (records, calls_json.record_to_json, lambda told: calls_json.record_from_json("L", told)),
    "children": (children, calls_json.children_to_json, lambda told: calls_json.children_from_json("L", told)),
    "registered": (registered, answers_json.registered_to_json, answers_json.registered_from_json),
    "claimed": (
        some.builds(Claimed, leases=some.lists(leases, max_size=2).map(tuple), retry_after_ms=some.none() | numbers),
        answers_json.claimed_to_json,
        answers_json.claimed_from_json,
    ),
    "extension": (extensions, answers_json.extension_to_json, lambda told: answers_json.extension_from_json("L", told)),
    "answer": (answers, answers_json.answer_to_json, lambda told: answers_json.answer_from_json("L", told)),
    "stored": (stored, answers_json.stored_to_json, lambda told: answers_json.stored_from_json("L", "n", told)),
    "started": (
        some.builds(Started, lease_id=some.just("L"), name=text, runs=some.lists(text, max_size=3).map(tuple)),
        answers_json.started_to_json,
        lambda told: answers_json.started_from_json("L", told),
    ),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_a_message_comes_back_as_it_was(name: str) -> None:
    strategy, to_json, from_json = ROUND_TRIPS[name]

    @given(strategy)
    def check(message: Any) -> None:
        assert from_json(json.loads(json.dumps(to_json(message)))) == message

    check()


def test_unknown_fields_are_ignored_and_unknown_enum_values_refused() -> None:
    assert calls_json.outcome_from_json("complete", {"output": 1, "colour": "red"}).output == 1
    assert calls_json.outcome_from_json("fail", {"class": "error", "message": "x"}).ends_as is LeaseStatus.FAILED
    with pytest.raises(ValueError, match="sometimes"):
        calls_json.outcome_from_json("suspend", {"waits": [{"name": "a", "kind": "sleep", "ms": 1}], "mode": "sometimes"})
    with pytest.raises(ValueError, match="hope"):
        calls_json.wait_from_json({"name": "a", "kind": "hope"})
    with pytest.raises(ValueError, match="does not say how a pass ended"):
        calls_json.outcome_from_json("surrender", {})
