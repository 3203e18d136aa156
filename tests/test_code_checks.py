"""What is wrong with the code of workflows is told by `manage.py check`, every fault of every workflow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
from django.core.checks import run_checks

from ezgh_workflows_django import Permanent, Step, Workflow
from ezgh_workflows_django.checks import TAG, WORKER_TAG
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.errors import InvalidWorkflow
from ezgh_workflows_django.worker.serving import Serving

ID = "ezgh_workflows.E010"


def unresolved(input: Absent) -> None:  # type: ignore[name-defined]  # noqa: F821 - what the test is about
    """Its annotation names nothing."""


def undecodable(input: threading.Lock) -> None:
    """Its annotation is no shape of JSON."""


def unwritable(input: int) -> threading.Lock:
    """Its result can't be written as JSON."""
    raise NotImplementedError


def fine(input: int) -> None:
    """Nothing is wrong with it."""


def never(input: int) -> NoReturn:
    """Nothing is wrong with it: it always raises."""
    raise Permanent("never")


def two_faults(name: str) -> Workflow:
    return Workflow(name, steps=[Step("a", run=unresolved), Step("b", run=undecodable), Step("c", run=fine)])


@pytest.fixture
def own_registry() -> Iterator[None]:
    """The registry is empty, and as it was afterwards."""
    before = registry.swap()
    yield
    registry.swap(before)


def faults(tag: str = TAG) -> list[tuple[str, Any]]:
    return [(message.msg, message.obj) for message in run_checks(tags=[tag]) if message.id == ID]


@pytest.mark.parametrize("tag", [TAG, WORKER_TAG])
def test_e010_annotations_that_mean_nothing_are_told_with_their_places(own_registry: None, tag: str) -> None:
    registry.add(two_faults("one"), "shop.workflows.one")
    registry.add(two_faults("two"), "shop.workflows.two")
    told = faults(tag)
    assert [(text.partition(": ")[0], obj) for text, obj in told] == [
        ("workflow one, step a", "shop.workflows.one"),
        ("workflow one, step b", "shop.workflows.one"),
        ("workflow two, step a", "shop.workflows.two"),
        ("workflow two, step b", "shop.workflows.two"),
    ]
    assert "name 'Absent' is not defined" in told[0][0]


def test_what_can_be_decoded_is_no_fault(own_registry: None) -> None:
    registry.add(Workflow("fine", steps=[Step("c", run=fine), Step("d", run=never)]))
    assert faults() == []


def test_e010_a_result_that_can_not_be_written_is_told_before_any_body_is_run(own_registry: None) -> None:
    registry.add(Workflow("one", steps=[Step("a", run=fine)], on_failure=unwritable), "shop.workflows.one")
    [(text, place)] = faults()
    assert (text.partition(": the annotation ")[0], place) == ("workflow one, step on_failure: one/on_failure", "shop.workflows.one")


def test_a_worker_is_told_every_fault_of_every_workflow() -> None:
    with pytest.raises(InvalidWorkflow) as refused:
        Serving([two_faults("one"), two_faults("two")]).definitions()
    assert [fault.partition(": ")[0] for fault in refused.value.faults] == [f"workflow {name}, step {step}" for name in ("one", "two") for step in "ab"]
