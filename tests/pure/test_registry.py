"""By name it is the newest revision: the highest, wherever it is written (spec: authoring.md "Versions")."""

from __future__ import annotations

from typing import Any

import pytest

from ezgh_workflows_django import Step, Workflow
from ezgh_workflows_django.definitions.registry import Registry
from ezgh_workflows_django.definitions.revisions import revision_order
from ezgh_workflows_django.worker.serving import Serving


def body(input: Any) -> Any:
    return input


def order(revision: str) -> Workflow:
    return Workflow("order", steps=[Step("a", run=body)], revision=revision)


def registry_of(*workflows: Workflow) -> Registry:
    registry = Registry()
    for workflow in workflows:
        registry.add(workflow)
    return registry


def test_by_name_it_is_the_highest_revision_even_where_the_old_one_is_written_below() -> None:
    newest, old = order("2"), order("1")
    registry = registry_of(newest, old)
    assert (registry.get("order"), registry.get("order", "1")) == (newest, old)


@pytest.mark.parametrize(
    "ascending",
    [["1", "2", "10"], ["1.9", "1.10"], ["1", "1.1", "1.1.1"], ["v1", "v2"], ["2024-01-09", "2024-01-10"], ["1-rc", "2"], ["1", "1a", "1b"], ["7", "next"]],
    ids=" ".join,
)
def test_revisions_are_compared_number_by_number(ascending: list[str]) -> None:
    mixed = [*ascending[1::2], *reversed(ascending[::2])]
    assert sorted(mixed, key=revision_order) == ascending


def test_the_same_numbers_in_two_spellings_have_an_order_too() -> None:
    assert revision_order("1") != revision_order("01")


def test_old_revisions_are_registered_before_new_ones() -> None:
    """What is stored last is what is newest on the server, where both are new there."""
    newest, old = order("2"), order("1")
    assert [spec["revision"] for spec in Serving([newest, old]).definitions()] == ["1", "2"]
    assert [workflow.revision for workflow in registry_of(newest, old)] == ["1", "2"]


def test_other_workflows_stay_in_the_order_they_came() -> None:
    a, newest, b, old = Workflow("b", steps=[Step("a", run=body)]), order("2"), Workflow("a", steps=[Step("a", run=body)]), order("1")
    assert [(each.name, each.revision) for each in registry_of(a, newest, b, old)] == [("b", "1"), ("order", "1"), ("a", "1"), ("order", "2")]
