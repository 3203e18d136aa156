"""Every object of the worker protocol has one schema and one sample, and the code reads and writes just that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jsonschema
import pytest

from ezgh_workflows_django import Workflow
from ezgh_workflows_django.api import worker_shapes
from ezgh_workflows_django.api.fields import Shape
from ezgh_workflows_django.api.samples import SAMPLES
from ezgh_workflows_django.definitions.wire import read_retry
from ezgh_workflows_django.protocol import answers_json, calls_json, leases_json, notes
from tests.conftest import ROOT

DOCUMENT: dict[str, Any] = json.loads((ROOT / "docs" / "openapi.json").read_text())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
LEASE = SAMPLES["Extended"]["id"]


def referred(value: Any) -> Iterator[str]:
    """The names of the shapes that a part of the document refers to."""
    if isinstance(value, Mapping):
        if "$ref" in value:
            yield value["$ref"].rsplit("/", 1)[-1]
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str):
        for each in value:
            yield from referred(each)


def objects_of_the_protocol() -> set[str]:
    """The objects that the calls of workers carry, and those within them."""
    calls = [each for methods in DOCUMENT["paths"].values() for each in methods.values() if "worker" in each["tags"]]
    found: set[str] = set()
    ahead = set(referred(calls))
    while ahead:
        found |= ahead
        ahead = set(referred([SCHEMAS[name] for name in ahead])) - found
    return {name for name in found if "enum" not in SCHEMAS[name]}


def test_every_object_of_the_protocol_has_one_sample_and_nothing_else_has() -> None:
    assert set(SAMPLES) == objects_of_the_protocol()
    assert {name: schema["examples"] for name, schema in SCHEMAS.items() if "examples" in schema} == {name: [sample] for name, sample in SAMPLES.items()}


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_sample_fits_its_schema_and_has_no_field_that_the_schema_has_not(name: str) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    jsonschema.validate(SAMPLES[name], schema, cls=jsonschema.Draft202012Validator, format_checker=jsonschema.FormatChecker())
    assert set(SAMPLES[name]) <= set(SCHEMAS[name]["properties"])


@pytest.mark.parametrize("name", sorted(name for name in SAMPLES if issubclass(getattr(worker_shapes, name, object), Shape)))
def test_a_request_is_taken_as_it_stands(name: str) -> None:
    shape = getattr(worker_shapes, name)(data=SAMPLES[name])
    assert shape.is_valid(), shape.errors


def test_a_definition_is_one() -> None:
    read = Workflow.from_spec(SAMPLES["Definition"])
    assert read.to_spec() == SAMPLES["Definition"]
    assert read_retry(SAMPLES["RetryPolicy"]).max_attempts == 5


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("Registration", lambda told: calls_json.registration_to_json(calls_json.registration_from_json(told))),
        ("Claim", lambda told: calls_json.claim_to_json(calls_json.claim_from_json(told))),
        ("BeatOfMany", lambda told: calls_json.beat_to_json(calls_json.beat_from_json(told))),
        ("Complete", lambda told: calls_json.outcome_to_json(calls_json.outcome_from_json("complete", told))[1]),
        ("Fail", lambda told: calls_json.outcome_to_json(calls_json.outcome_from_json("fail", told))[1]),
        ("Suspend", lambda told: calls_json.outcome_to_json(calls_json.outcome_from_json("suspend", told))[1]),
        ("WaitFor", lambda told: calls_json.wait_to_json(calls_json.wait_from_json(told))),
        ("Checkpoint", lambda told: calls_json.record_to_json(calls_json.record_from_json(LEASE, told))),
        ("Children", lambda told: calls_json.children_to_json(calls_json.children_from_json(LEASE, told))),
        ("RegisteredShape", lambda told: answers_json.registered_to_json(answers_json.registered_from_json(told))),
        ("LeasesGiven", lambda told: answers_json.claimed_to_json(answers_json.claimed_from_json(told))),
        ("LeaseTold", lambda told: leases_json.to_json(leases_json.from_json(told))),
        ("ExtendedOrNot", lambda told: answers_json.extension_to_json(answers_json.extension_from_json(told["id"], told))),
        ("EndedOrNot", lambda told: answers_json.answer_to_json(answers_json.answer_from_json(told["id"], told))),
        ("Ended", lambda told: answers_json.answer_to_json(answers_json.answer_from_json(told["id"], told))),
        ("StoredTold", lambda told: answers_json.stored_to_json(answers_json.stored_from_json(LEASE, told["name"], told))),
        ("ChildrenTold", lambda told: answers_json.started_to_json(answers_json.started_from_json(LEASE, told))),
    ],
)
def test_what_is_read_and_written_again_is_the_sample(name: str, read: Any) -> None:
    assert read(SAMPLES[name]) == SAMPLES[name]


def test_the_notes_of_a_report_are_good_ones() -> None:
    read = notes.read(calls_json.usage_from_json(SAMPLES["Complete"]["usage"]), SAMPLES["Complete"]["spans"])
    assert [span.name for span in read.spans] == [SAMPLES["Span"]["name"]]
    assert list(read.used) == [(SAMPLES["Usage"]["model"], SAMPLES["Usage"]["unit"])]
