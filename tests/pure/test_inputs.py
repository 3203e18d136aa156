"""The one input rule and the templates (spec: authoring.md "A step's input")."""

from __future__ import annotations

from typing import Any

import pytest

from ezgh_workflows_django.definitions.inputs import expressions_in, render, step_input
from ezgh_workflows_django.errors import ExpressionError

NAMES = {"payload": {"count": 1, "tags": ["a"]}, "steps": {"reserve": {"email": "a@example.org"}}, "labels": {"order": "A-1"}}


@pytest.mark.parametrize(
    ("parents", "outputs", "value"),
    [
        ((), {}, {"order": "A-1"}),
        (("a",), {"a": [1]}, [1]),
        (("a",), {"a": None}, None),
        (("a",), {}, None),
        (("b", "a"), {"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (("a", "b"), {"a": 1}, {"a": 1, "b": None}),
    ],
)
def test_the_one_input_rule(parents: tuple[str, ...], outputs: dict[str, Any], value: Any) -> None:
    assert step_input(parents, {"order": "A-1"}, outputs) == value


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ({"to": "${steps.reserve.email}", "n": "${payload.count + 1}"}, {"to": "a@example.org", "n": 2}),
        ("${payload}", NAMES["payload"]),
        ("order ${labels.order}, ${payload.count} of ${payload.tags}", 'order A-1, 1 of ["a"]'),
        (["${payload.tags}", 1, None, True, "plain"], [["a"], 1, None, True, "plain"]),
        ("${'}'}", "}"),
        ('${{"a": {"b": 1}}.a.b}', 1),
        ("${payload.count}${payload.count}", "11"),
        ("$5 {x}", "$5 {x}"),
        ("", ""),
    ],
)
def test_a_template_is_rendered(template: Any, value: Any) -> None:
    assert render(template, NAMES) == value


def test_a_failing_template_says_which_expression() -> None:
    with pytest.raises(ExpressionError, match=r"`payload\.gone`"):
        render({"a": ["${payload.gone}"]}, NAMES)


def test_an_open_template_is_refused() -> None:
    with pytest.raises(ExpressionError, match="never closed"):
        list(expressions_in({"a": "${payload"}))


def test_every_expression_of_a_template_is_found() -> None:
    assert list(expressions_in({"a": ["${x}", "${y} and ${z}"], "b": {"c": "${w}"}})) == ["x", "y", "z", "w"]
