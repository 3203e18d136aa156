"""The wire form: read back as it was written, hashed, described by its schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from ezgh_workflows_django import Concurrency, Cron, InvalidWorkflow, RateLimit, Retry, Sleep, Step, Wait, Workflow
from ezgh_workflows_django.definitions.shape import MAX_FAULTS, shape_faults
from ezgh_workflows_django.definitions.wire import SPEC_SCHEMA, version_of
from ezgh_workflows_django.errors import UnknownStep


@dataclass
class Item:
    name: str


def body(input: Any) -> Any:
    return input


def typed_body(input: Item) -> None:
    del input


def full(**changes: Any) -> Workflow:
    options: dict[str, Any] = {
        "steps": [
            Step("reserve", run=body, retry=Retry(max_attempts=5, on={"timeout", "retryable"}, exhausted="pause", factor=3.0), timeout=30),
            Step("await_payment", after=["reserve"], wait=Wait("paid", key=lambda run: run.labels["order"], timeout=timedelta(days=3), on_timeout="continue")),
            Step("await-sign", after=["reserve"], wait=Wait("signed", key_expr="labels.order", lookback=None)),
            Step("await-seal", after=["reserve"], wait=Wait("sealed", key=7, lookback=timedelta(hours=1))),
            Step("cool_off", after=["await_payment", "await-sign", "await-seal"], sleep=Sleep(timedelta(hours=24))),
            Step("ship", after=["cool_off"], run=body, delivery="at_most_once", input={"to": "${steps.reserve.email}"}, transactional=True),
        ],
        "revision": "2",
        "timeout": timedelta(minutes=5),
        "deadline": timedelta(days=30),
        "retry": Retry(max_attempts=3, initial=0.5, maximum=timedelta(hours=1), jitter=0.2),
        "on_failure": body,
        "concurrency": Concurrency(10, key=lambda run: run.id, on_limit="reject"),
        "cron": [Cron("0 9 * * 1-5", timezone="Europe/Madrid", payload=None, labels={"a": "1"}, overlap="queue", catch_up="all"), Cron("5 0 * * *")],
        "rate": RateLimit(100, per=timedelta(minutes=1)),
    }
    return Workflow("order", **(options | changes))


def test_the_wire_form_is_read_back_as_it_was_written() -> None:
    spec = full().to_spec()
    again = Workflow.from_spec(json.loads(json.dumps(spec)))
    assert again.to_spec() == spec
    assert again.version == full().version == version_of(spec)


def test_the_wire_form_leaves_defaults_out() -> None:
    workflow = Workflow("order", steps=[Step("a", run=body), Step("b", wait=Wait("x"), after=["a"])])
    assert workflow.to_spec() == {
        "name": "order",
        "revision": "1",
        "steps": [{"name": "a", "kind": "run"}, {"name": "b", "kind": "wait", "after": ["a"], "wait": {"event": "x"}}],
    }


def test_the_wire_form_marks_what_only_code_can_say() -> None:
    steps = {entry["name"]: entry for entry in full().to_spec()["steps"]}
    assert steps["await_payment"]["wait"] == {"event": "paid", "key_callable": True, "timeout_ms": 259_200_000, "on_timeout": "continue"}
    assert steps["await-sign"]["wait"] == {"event": "signed", "key_expr": "labels.order", "lookback_ms": None}
    assert steps["await-seal"]["wait"] == {"event": "sealed", "key": "7", "lookback_ms": 3_600_000}


def test_a_payload_of_none_is_not_no_payload() -> None:
    with_none, without = full().to_spec()["cron"]
    assert with_none["payload"] is None
    assert "payload" not in without


def test_a_version_is_16_hex_digits_and_stays() -> None:
    assert Workflow("order", steps=[Step("a", run=body)]).version == "863f7fb23c146e7d"


@pytest.mark.parametrize(
    "changes",
    [
        {"revision": "3"},
        {"timeout": None},
        {"deadline": 5},
        {"retry": None},
        {"on_failure": None},
        {"concurrency": None},
        {"cron": None},
        {"rate": None},
        {"steps": [Step("a", run=body)]},
    ],
)
def test_any_change_of_graph_or_policy_makes_another_version(changes: dict[str, Any]) -> None:
    assert full(**changes).version != full().version


def test_numbers_that_are_equal_make_the_same_version() -> None:
    assert full(retry=Retry(factor=3)).version == full(retry=Retry(factor=3.0)).version


def test_input_schemas_travel_outside_the_hash() -> None:
    typed, untyped = (Workflow("order", steps=[Step("a", run=run)]) for run in (typed_body, body))
    assert typed.to_spec()["input_schemas"]["a"]["required"] == ["name"]
    assert "input_schemas" not in untyped.to_spec()
    assert typed.version == untyped.version == version_of(typed.to_spec())


def test_unknown_keys_are_ignored() -> None:
    assert Workflow.from_spec({"name": "a", "revision": "1", "colour": "red", "steps": [{"name": "s", "kind": "run", "size": 1}]}).to_spec() == {
        "name": "a",
        "revision": "1",
        "steps": [{"name": "s", "kind": "run"}],
    }


def test_bodies_of_a_wire_form_are_elsewhere() -> None:
    workflow = Workflow.from_spec(full().to_spec())
    with pytest.raises(UnknownStep, match="holds no body"):
        workflow.body("reserve")
    with pytest.raises(TypeError, match="its code is in another process"):
        workflow.step("reserve").run()  # type: ignore[misc]  # it is there, and says where it is not


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (None, "workflow: None is no object"),
        ([], "is no object"),
        ({}, "workflow: name is missing"),
        ({"name": "a", "revision": "1", "steps": []}, "workflow a.steps: has fewer than 1 items"),
        ({"name": "a", "revision": 1, "steps": [{"name": "s", "kind": "run"}]}, "revision: 1 is no string"),
        ({"name": "a", "revision": "1", "steps": [{"name": "s", "kind": "task"}]}, "steps[0].kind: 'task' is none of"),
        ({"name": "a", "revision": "1", "steps": [{"name": "S", "kind": "run"}]}, "does not match"),
        ({"name": "a", "revision": "1", "steps": [{"name": "s\n", "kind": "run"}]}, "does not match"),
        ({"name": "a", "revision": "1", "steps": [{"name": "s", "kind": "run", "timeout_ms": -1}]}, "-1 is below 0"),
        ({"name": "a", "revision": "1", "steps": [{"name": "s", "kind": "run", "timeout_ms": True}]}, "True is no integer"),
        ({"name": "a", "revision": "1", "steps": [{"name": "s", "kind": "sleep", "sleep_ms": 10**30}]}, "out of range"),
        ({"name": "a", "revision": "1", "steps": [{"name": "s", "kind": "wait", "wait": {}}]}, "event is missing"),
        ({"name": "a", "revision": "1", "steps": [{"name": "s", "kind": "wait"}]}, "its kind is wait, and it has no wait"),
        ({"name": "a", "revision": "1", "steps": [{"name": "s", "kind": "run", "retry": {"factor": 1e308}}]}, "factor: 1e+308"),
        ({"name": "a", "revision": "1", "steps": [{"name": "s", "kind": "run", "after": ["s"]}]}, "cycle: s -> s"),
    ],
)
def test_a_hostile_wire_form_is_refused_with_its_faults(spec: Any, fault: str) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        Workflow.from_spec(spec)
    assert any(fault in text for text in caught.value.faults), caught.value.faults


def test_every_wire_form_has_the_shape_of_its_schema() -> None:
    assert shape_faults(full().to_spec(), SPEC_SCHEMA, "spec") == []
    json.dumps(SPEC_SCHEMA)


def test_faults_of_a_hostile_shape_are_bounded() -> None:
    spec = {"name": "a", "revision": "1", "steps": [5] * 100_000}
    assert len(shape_faults(spec, SPEC_SCHEMA, "spec")) == MAX_FAULTS
