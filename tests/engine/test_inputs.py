"""What a step is given: one rule for every kind of step, or a template; made once, when the step becomes ready."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from ezgh_workflows_django import Retry, Sleep, Step, Wait, Workflow
from ezgh_workflows_django.conf import DICT
from ezgh_workflows_django.models import Lease
from tests.engine.conftest import Desk
from tests.engine.graphs import body, chain
from tests.invariant_guard import broken

PAYLOADS = [None, 0, "", [], {}, {"a": 1}, "text", [1, {"b": None}], 1e22, 12345678901234567890, "\u2028😀"]


@pytest.mark.parametrize("payload", PAYLOADS, ids=ascii)
def test_a_step_without_parents_is_given_the_payload(desk: Desk, payload: Any) -> None:
    workflow = chain("one")
    hand = desk.worker(workflow)
    workflow.start(payload)
    lease = hand.take()
    assert (lease.input, lease.has_input, lease.steps) == (payload, True, {})


def test_a_run_without_payload_gives_its_first_step_no_input(desk: Desk) -> None:
    workflow = chain("one")
    hand = desk.worker(workflow)
    workflow.start()
    lease = hand.take()
    assert (lease.input, lease.has_input) == (None, False)


@pytest.mark.parametrize("output", PAYLOADS, ids=ascii)
def test_a_step_with_one_parent_is_given_its_output_unchanged(desk: Desk, output: Any) -> None:
    workflow = chain("one", "two")
    hand = desk.worker(workflow)
    workflow.start("payload")
    hand.complete(hand.take(), output)
    lease = hand.take()
    assert (lease.input, lease.has_input, lease.steps) == (output, True, {"one": output})


def test_a_step_with_several_parents_is_given_an_object_in_the_order_it_names_them(desk: Desk) -> None:
    steps = [Step("a", run=body), Step("b", run=body), Step("await-c", wait=Wait("c", timeout=60, on_timeout="continue"))]
    workflow: Any = Workflow("join", steps=[*steps, Step("end", after=["b", "await-c", "a"], run=body)])
    hand = desk.worker(workflow)
    workflow.start(1)
    first, second = hand.claim()
    hand.complete(first, {"of": first.step})
    hand.complete(second)
    desk.advance(60)
    joined = hand.take().input
    assert list(joined) == ["b", "await-c", "a"]
    assert (joined[first.step], joined[second.step], joined["await-c"]) == ({"of": first.step}, None, None)


def test_a_sleep_passes_its_input_on(desk: Desk) -> None:
    steps = [Step("a", run=body), Step("nap", after=["a"], sleep=Sleep(60)), Step("end", after=["nap"], run=body)]
    workflow: Any = Workflow("nap", steps=steps)
    hand = desk.worker(workflow)
    run = workflow.start("payload")
    hand.complete(hand.take(), {"n": 1})
    desk.advance(60)
    assert (hand.take().input, desk.step(run, "nap").output) == ({"n": 1}, '{"n":1}')


def test_a_sleep_without_parents_passes_the_payload_on(desk: Desk) -> None:
    workflow: Any = Workflow("nap", steps=[Step("nap", sleep=Sleep(0)), Step("end", after=["nap"], run=body)])
    hand = desk.worker(workflow)
    workflow.start({"n": 1})
    desk.tick()
    assert hand.take().input == {"n": 1}


def test_a_sleep_of_a_run_without_payload_passes_nothing_on(desk: Desk) -> None:
    workflow: Any = Workflow("nap", steps=[Step("nap", sleep=Sleep(0)), Step("end", after=["nap"], run=body)])
    hand = desk.worker(workflow)
    run = workflow.start()
    desk.tick()
    assert (hand.take().input, desk.step(run, "nap").status) == (None, "succeeded")


def test_a_sleep_with_several_parents_passes_their_object_on(desk: Desk) -> None:
    steps = [Step("a", run=body), Step("b", run=body), Step("nap", after=["a", "b"], sleep=Sleep(0)), Step("end", after=["nap"], run=body)]
    workflow: Any = Workflow("nap", steps=steps)
    hand = desk.worker(workflow)
    workflow.start(7)
    hand.work_off()
    desk.tick()
    assert hand.take().input == {"a": 7, "b": 7}


@pytest.mark.parametrize("payload", [None, {"paid": 40}, "x"], ids=ascii)
def test_the_output_of_a_wait_is_the_payload_of_its_event(desk: Desk, payload: Any) -> None:
    workflow: Any = Workflow("wait", steps=[Step("wait", wait=Wait("paid")), Step("end", after=["wait"], run=body)])
    hand = desk.worker(workflow)
    run = workflow.start(1)
    run.signal("paid", payload)
    lease = hand.take()
    assert (lease.input, lease.has_input, lease.steps) == (payload, True, {"wait": payload})


def test_a_lease_carries_the_outputs_of_all_ancestors_and_of_nobody_else(desk: Desk) -> None:
    steps = [Step("a", run=body), Step("b", after=["a"], run=body), Step("c", after=["b"], run=body), Step("stranger", run=body)]
    workflow: Any = Workflow("deep", steps=steps)
    hand = desk.worker(workflow)
    workflow.start(0)
    leases = {lease.step: lease for lease in hand.claim()}
    hand.complete(leases["stranger"], "s")
    hand.complete(leases["a"], "a")
    hand.complete(hand.take(), "b")
    assert hand.take().steps == {"a": "a", "b": "b"}


# Templates


def templated(template: Any, **options: Any) -> Any:
    """A step, and one behind it whose input is rendered."""
    return Workflow("templated", steps=[Step("reserve", run=body), Step("end", after=["reserve"], run=body, input=template, **options)])


@pytest.mark.parametrize(
    ("template", "rendered"),
    [
        ({"to": "${steps.reserve.email}", "n": "${payload.count + 1}"}, {"to": "a@b.c", "n": 4}),
        ("${steps.reserve}", {"email": "a@b.c", "ok": True}),
        ("${steps.reserve.ok}", True),
        ("order ${labels.order}: ${payload.count}", "order A-1: 3"),
        ([1, {"deep": ["${run_id == '' ? 1 : 2}"]}], [1, {"deep": [2]}]),
        ({"plain": "no expression", "none": None}, {"plain": "no expression", "none": None}),
        ("${state.seen}", "yes"),
        ("", ""),
        (0, 0),
    ],
    ids=ascii,
)
def test_a_template_is_rendered_with_the_values_types(desk: Desk, template: Any, rendered: Any) -> None:
    workflow = templated(template)
    hand = desk.worker(workflow)
    workflow.start({"count": 3}, labels={"order": "A-1"})
    hand.complete(hand.take(), {"email": "a@b.c", "ok": True}, state={"seen": "yes"})
    assert hand.take().input == rendered


@pytest.mark.parametrize("template", ["${steps.reserve.absent}", "${1 / payload.zero}", {"deep": ["${labels.absent}"]}], ids=ascii)
def test_a_template_that_fails_fails_its_step_for_good_and_needs_no_lease(desk: Desk, template: Any) -> None:
    workflow = templated(template, retry=Retry(5))
    hand = desk.worker(workflow)
    run = workflow.start({"zero": 0})
    answer = hand.complete(hand.take(), {})
    assert (answer.refused, answer.run, desk.step(run, "reserve").status) == (None, "failed", "succeeded")
    assert (run.failure.class_, run.failure.step, run.failure.attempts) == ("permanent", "end", 0)
    assert (Lease.objects.count(), hand.claim(), broken()) == (1, (), [])


def test_a_template_that_fails_at_the_start_fails_the_run_and_not_the_start(desk: Desk) -> None:
    workflow: Any = Workflow("broken", steps=[Step("work", run=body, input="${payload.absent}"), Step("other", run=body)])
    run = workflow.start({})
    assert (run.phase, [step.status for step in run.steps], run.failure.class_, broken()) == ("failed", ["failed", "cancelled"], "permanent", [])


@override_settings(**{DICT: {"MAX_PAYLOAD_BYTES": 2000}})
def test_a_rendered_input_over_the_size_fails_its_step_for_good(desk: Desk) -> None:
    workflow = templated({"a": "${payload}", "b": "${payload}"})
    hand = desk.worker(workflow)
    run = workflow.start("x" * 1500)
    hand.complete(hand.take(), 1)
    assert (run.phase, run.failure.class_, run.failure.step) == ("failed", "permanent", "end")


@override_settings(**{DICT: {"MAX_PAYLOAD_BYTES": 2000}})
def test_parents_that_are_together_over_the_size_are_joined_all_the_same(desk: Desk) -> None:
    workflow: Any = Workflow("join", steps=[Step("a", run=body), Step("b", run=body), Step("end", after=["a", "b"], run=body)])
    hand = desk.worker(workflow)
    workflow.start("x" * 1500)
    for_both = [hand.complete(lease, "x" * 1500) for lease in hand.claim()]
    assert [answer.refused for answer in for_both] == [None, None]
    assert hand.take().input == {"a": "x" * 1500, "b": "x" * 1500}


def test_the_input_is_made_once_and_is_the_same_for_every_attempt(desk: Desk) -> None:
    steps = [Step("slow", run=body), Step("end", run=body, input="${has(state.seen) ? 'late' : 'early'}", retry=Retry(2, initial=1))]
    workflow: Any = Workflow("once", steps=steps)
    hand = desk.worker(workflow)
    workflow.start(1)
    leases = {lease.step: lease for lease in hand.claim()}
    hand.start(leases["end"])
    hand.fail(leases["end"])
    hand.complete(leases["slow"], state={"seen": True})
    desk.advance(60)
    assert (leases["end"].input, hand.take().input) == ("early", "early")


def test_waits_and_sleeps_may_have_templates_too(desk: Desk) -> None:
    workflow: Any = Workflow("nap", steps=[Step("nap", sleep=Sleep(0), input={"n": "${payload + 1}"}), Step("end", after=["nap"], run=body)])
    hand = desk.worker(workflow)
    workflow.start(1)
    desk.tick()
    assert hand.take().input == {"n": 2}


def test_the_compensation_is_given_the_input_of_the_step_that_failed(desk: Desk) -> None:
    workflow: Any = Workflow("comp", steps=[Step("a", run=body), Step("b", after=["a"], run=body, input={"x": "${steps.a}"})], on_failure=body)
    hand = desk.worker(workflow)
    workflow.start(1)
    hand.complete(hand.take(), 2)
    hand.fail(hand.take(), "permanent", "boom")
    lease: Any = hand.take()
    assert (lease.step, lease.input, lease.failure.message, lease.steps) == ("on_failure", {"x": 2}, "boom", {"a": 2})


def test_the_compensation_of_a_failed_template_is_given_what_the_rule_would_give(desk: Desk) -> None:
    workflow: Any = Workflow("comp", steps=[Step("a", run=body), Step("b", after=["a"], run=body, input="${steps.a.absent}")], on_failure=body)
    hand = desk.worker(workflow)
    workflow.start(1)
    hand.complete(hand.take(), {"n": 2})
    assert hand.take().input == {"n": 2}
