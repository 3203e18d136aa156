"""Two workflows of one name and revision are one only where their code is, too (spec: authoring.md, cases of registration)."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ezgh_workflows_django import Concurrency, InvalidWorkflow, Retry, Step, Wait, Workflow, workflow
from ezgh_workflows_django.definitions.registry import Registry
from ezgh_workflows_django.definitions.wire import from_spec
from ezgh_workflows_django.worker.serving import Serving

SOURCE = """
import enum
import functools

from ezgh_workflows_django import Concurrency, Step, Wait, Workflow, workflow


class Kind(enum.StrEnum):
    A = "a"


class Told:
    def __init__(self, text):
        self.text = text

    def __call__(self, input):
        return self.text

    def method(self, input):
        return self.text


def body(input):
    return input


def trace(function):
    @functools.wraps(function)
    def traced(input):
        return function(input)

    return traced


def made(text, told):
    def inner(input):
        return text, told

    return inner


@workflow("durable")
def durable(ctx):
    return 1


order = Workflow(
    "order",
    steps=[
        Step("plain", run=body),
        Step("traced", run=trace(body)),
        Step("partial", run=functools.partial(body, input=Told("b"))),
        Step("inner", run=made("a", Told("b"))),
        Step("kind", run=made(Kind.A, float("nan"))),
        Step("told", run=Told("a")),
        Step("method", run=Told("a").method),
        Step("lambda", run=lambda input: input + 1),
        Step("len", run=len),
        Step("durable", run=durable),
        Step("wait", wait=Wait("paid", key=lambda run: run.id)),
    ],
    concurrency=Concurrency(1, key=lambda run, text="a": text),
    on_failure=body,
)
"""


def one(input: Any) -> str:
    return "one"


def two(input: Any) -> str:
    return "two"


class Body:
    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, input: Any) -> str:
        return self.text

    def method(self, input: Any) -> str:
        return self.text


class Slotted:
    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def method(self, input: Any) -> str:
        return self.text


def make(run: Any) -> Workflow:
    return Workflow("order", steps=[Step("a", run=run)])


def closed(value: Any) -> Callable[[Any], Any]:
    def body(input: Any) -> Any:
        return value

    return body


def entangled() -> Callable[[Any], Any]:
    def a(input: Any) -> Any:
        return a, b, c

    def b(input: Any) -> Any:
        return a, b, c

    def c(input: Any) -> Any:
        return a, b, c

    return a


def defaulted(text: str) -> Callable[[Any], str]:
    def body(input: Any, text: str = text) -> str:
        return text

    return body


def keyed(value: Any) -> Workflow:
    return Workflow("order", steps=[Step("a", wait=Wait("paid", key=lambda run: value))])


def limited(value: Any) -> Workflow:
    return Workflow("order", steps=[Step("a", run=one)], concurrency=Concurrency(1, key=lambda run: value))


def compensated(run: Any) -> Workflow:
    return Workflow("order", steps=[Step("a", run=one)], on_failure=run)


def durable(run: Any) -> Workflow:
    made: Workflow = workflow("order")(run)
    made.place = "here:1"
    return made


LAMBDAS: tuple[Callable[[Any], int], ...] = (lambda input: 1, lambda input: 2)

TWO: dict[str, tuple[Workflow, Workflow]] = {
    "functions": (make(one), make(two)),
    "closures": (make(closed("one")), make(closed("two"))),
    "functions in closures": (make(closed(one)), make(closed(two))),
    "lists in closures": (make(closed([1, {"a": one}])), make(closed([1, {"a": two}]))),
    "sets in closures": (make(closed({"one", 1})), make(closed({"two", 1}))),
    "dataclasses in closures": (make(closed(Retry(max_attempts=1))), make(closed(Retry(max_attempts=2)))),
    "methods of builtins": (make(str.upper), make(str.lower)),
    "defaults": (make(defaulted("one")), make(defaulted("two"))),
    "lambdas of one line": (make(LAMBDAS[0]), make(LAMBDAS[1])),
    "partials": (make(functools.partial(one, 1)), make(functools.partial(two, 1))),
    "a partial's arguments": (make(functools.partial(closed(1), 1)), make(functools.partial(closed(1), 2))),
    "objects": (make(Body("one")), make(Body("two"))),
    "methods": (make(Body("one").method), make(Body("two").method)),
    "keys of waits": (keyed("one"), keyed("two")),
    "keys of slots": (limited("one"), limited("two")),
    "compensations": (compensated(one), compensated(two)),
    "durable functions": (durable(one), durable(two)),
    "durable functions in steps": (make(durable(one)), make(durable(two))),
}

ONE: dict[str, tuple[Workflow, Workflow]] = {
    "functions": (make(one), make(one)),
    "closures": (make(closed("one")), make(closed("one"))),
    "opaque objects in closures": (make(closed(object())), make(closed(object()))),
    "slotted objects": (make(Slotted("one").method), make(Slotted("one").method)),
    "partials": (make(functools.partial(one, 1)), make(functools.partial(one, 1))),
    "functions that call each other": (make(entangled()), make(entangled())),
    "sets in closures": (make(closed({"one", 1})), make(closed({1, "one"}))),
    "builtins": (make(len), make(len)),
    "code elsewhere": (from_spec(make(one).to_spec()), from_spec(make(one).to_spec())),
}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that can be imported, again and again."""
    (tmp_path / "again_and_again.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "again_and_again"
    sys.modules.pop("again_and_again", None)


@pytest.mark.parametrize(("first", "second"), TWO.values(), ids=TWO)
def test_another_body_in_the_same_place_is_another_workflow(first: Workflow, second: Workflow) -> None:
    first.place = second.place = "shop.workflows:7"
    assert first.version == second.version
    registry = Registry()
    registry.add(first, "shop.workflows.one")
    with pytest.raises(InvalidWorkflow, match=r"order revision 1 is defined twice, at shop\.workflows\.one and at shop\.workflows\.two"):
        registry.add(second, "shop.workflows.two")
    assert registry.get("order") is first


@pytest.mark.parametrize(("first", "second"), TWO.values(), ids=TWO)
def test_a_worker_holds_no_two_of_one_name_and_revision(first: Workflow, second: Workflow) -> None:
    with pytest.raises(InvalidWorkflow, match=r"order revision 1 is defined twice, at .* and at .*"):
        Serving([first, second])


@pytest.mark.parametrize(("first", "second"), ONE.values(), ids=ONE)
def test_the_same_code_in_the_same_place_is_the_same_workflow(first: Workflow, second: Workflow) -> None:
    first.place = second.place = "shop.workflows:7"
    registry = Registry()
    registry.add(first)
    registry.add(second)
    Serving([first, second])
    assert list(registry) == [second]


def test_a_module_that_is_reloaded_gives_no_alarm(source: str) -> None:
    registry = Registry()
    module = importlib.import_module(source)
    registry.collect(module)
    registry.collect(importlib.reload(module))
    assert list(registry) == [module.durable, module.order]


def test_a_module_that_is_imported_anew_gives_no_alarm(source: str) -> None:
    registry = Registry()
    registry.collect(importlib.import_module(source))
    del sys.modules[source]
    registry.collect(module := importlib.import_module(source))
    assert list(registry) == [module.durable, module.order]


def test_a_body_that_was_edited_and_reloaded_gives_no_alarm(source: str, tmp_path: Path) -> None:
    registry = Registry()
    module = importlib.import_module(source)
    registry.collect(module)
    (tmp_path / "again_and_again.py").write_text(SOURCE.replace("def body(input):\n    return input", "def body(input):\n    return [input, input]"))
    importlib.invalidate_caches()
    registry.collect(module := importlib.reload(module))
    assert module.body(1) == [1, 1]
    assert list(registry) == [module.durable, module.order]
