"""A start reaches the engine through one slot; the registry knows the workflows of this process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, cast
from uuid import UUID

import pytest

import ezgh_workflows_django as words
from ezgh_workflows_django import InvalidWorkflow, Start, Step, Workflow, aemit, aget_run, astart_run, emit, get_run, runs_of, start_run
from ezgh_workflows_django.definitions import seam
from ezgh_workflows_django.definitions.registry import Registry
from ezgh_workflows_django.definitions.starts import MISSING
from ezgh_workflows_django.errors import NoServer, UnknownWorkflow


def body(input: Any) -> Any:
    return input


order = Workflow("order", steps=[Step("a", run=body)])
NOTHING_ELSE = {"labels": None, "idempotency_key": None, "correlation_id": None, "at": None, "delay": None, "priority": 0, "app": None, "subject": None}


class Recorder:
    """An engine that answers with the call it was given."""

    def __getattr__(self, verb: str) -> Any:
        def answer(*args: Any, **options: Any) -> Any:
            return verb, args, options

        async def aanswer(*args: Any, **options: Any) -> Any:
            return verb, args, options

        return aanswer if verb.startswith("a") else answer


@pytest.fixture
def engine() -> Iterator[None]:
    before = seam._engine
    seam.fill(cast(seam.Engine, Recorder()))
    yield
    seam.fill(before)


@pytest.fixture
def no_engine() -> Iterator[None]:
    before = seam._engine
    seam.fill(None)
    yield
    seam.fill(before)


@pytest.mark.parametrize(
    "call",
    [lambda: order.start(), lambda: start_run("order"), lambda: emit("paid"), lambda: get_run("x"), lambda: runs_of(order), lambda: order.start_many([1])],
)
def test_without_an_engine_a_start_says_what_to_do(no_engine: None, call: Any) -> None:
    with pytest.raises(NoServer, match="INSTALLED_APPS"):
        call()


def test_a_start_hands_over_what_it_was_given(engine: None) -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    options: dict[str, Any] = {
        "labels": {"a": "b"},
        "idempotency_key": "k",
        "correlation_id": "c",
        "at": at,
        "delay": None,
        "priority": 5,
        "app": "shop",
        "subject": 1,
    }
    assert cast(Any, order.start({"n": 1}, **options)) == ("start", (order, {"n": 1}), options)
    assert cast(Any, start_run("order", 1)) == ("start", ("order", 1), NOTHING_ELSE)


def test_no_payload_is_not_the_payload_none(engine: None) -> None:
    assert cast(Any, order.start())[1] == (order, MISSING)
    assert cast(Any, order.start(None))[1] == (order, None)
    assert not MISSING


def test_many_starts_may_each_have_their_own_labels(engine: None) -> None:
    start = Start(payload=2, labels={"a": "b"})
    assert cast(Any, order.start_many([1, start], app="shop")) == ("start_many", (order, [Start(payload=1), start]), {"app": "shop"})


def test_keys_of_events_are_text(engine: None) -> None:
    key = UUID(int=1)
    assert emit("paid", key, {"n": 1}, event_id="e") == ("emit", ("paid", str(key), {"n": 1}), {"event_id": "e", "app": None})
    assert emit("paid", key=7)[1] == ("paid", "7", None)


def test_every_verb_has_an_async_twin(engine: None) -> None:
    async def all_of_them() -> list[Any]:
        return [await order.astart(1), await astart_run("order"), await order.astart_many([1]), await aemit("paid", "k"), await aget_run("r")]

    assert [answer[0] for answer in asyncio.run(all_of_them())] == ["astart", "astart", "astart_many", "aemit", "aget_run"]


def module(name: str, **contents: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(contents)
    return made


def test_two_workflows_of_one_name_and_revision_are_refused_with_both_places() -> None:
    registry = Registry()
    registry.collect(module("shop.workflows", order=order, helper=body))
    other = Workflow("order", steps=[Step("b", run=body)])
    with pytest.raises(InvalidWorkflow, match=r"order revision 1 is defined twice, at shop\.workflows\.order and at bill\.workflows\.other"):
        registry.collect(module("bill.workflows", other=other))


def test_the_same_workflow_may_be_imported_elsewhere() -> None:
    registry = Registry()
    registry.collect(module("shop.workflows", order=order))
    registry.collect(module("bill.workflows", imported=order))
    assert list(registry) == [order]
    assert registry.place_of(order) == "shop.workflows.order"


def test_a_workflow_of_the_same_shape_at_another_line_is_another_one() -> None:
    registry = Registry()
    registry.add(order)
    with pytest.raises(InvalidWorkflow, match="defined twice"):
        registry.add(Workflow("order", steps=[Step("a", run=body)]))


def test_a_workflow_is_found_by_name_and_revision() -> None:
    registry = Registry()
    second = Workflow("order", steps=[Step("a", run=body)], revision="2")
    registry.add(order)
    registry.add(second)
    assert registry.get("order", "1") is order
    assert registry.get("order") is second
    with pytest.raises(UnknownWorkflow, match="no workflow bill is known to this process: it knows order"):
        registry.get("bill")


def test_the_authoring_words_need_no_django() -> None:
    code = (
        "import sys; sys.modules['django'] = None\n"
        "import ezgh_workflows_django as words\n"
        "[getattr(words, name) for name in words.__all__]\n"
        "words.Workflow('order', steps=[words.Step('a', run=print)])\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_word_has_a_home() -> None:
    assert sorted(words._HOMES) == sorted(words.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        words.nothing  # noqa: B018  (asking is the test)
