"""`@workflow`: a durable function as a workflow."""

from __future__ import annotations

import asyncio
import functools
import inspect
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import ezgh_workflows_django
from ezgh_workflows_django import Retry, Step, Workflow, workflow
from ezgh_workflows_django.definitions.registry import Registry
from ezgh_workflows_django.definitions.results import Result
from ezgh_workflows_django.errors import InvalidWorkflow


@workflow("resize", timeout=timedelta(hours=1), retry=Retry(max_attempts=3), delivery="at_most_once")
def resize(size: int) -> int:
    """Twice the size."""
    return size * 2


def test_a_durable_function_is_a_workflow_of_one_step_named_as_itself() -> None:
    [step] = resize.steps
    assert (isinstance(resize, Workflow), resize.name, step.name, step.delivery) == (True, "resize", "resize", "at_most_once")
    assert resize.version == Workflow("resize", [step], timeout=timedelta(hours=1), retry=Retry(max_attempts=3)).version


def test_calling_it_calls_the_function() -> None:
    assert (resize(4), resize.__doc__, str(inspect.signature(resize))) == (8, "Twice the size.", "(size: 'int') -> 'int'")


def test_its_place_is_that_of_the_function() -> None:
    assert resize.place == f"{__name__}:{resize.function.__code__.co_firstlineno}"


def test_milliseconds_are_taken_too() -> None:
    made = workflow("a", timeout_ms=1_500, deadline_ms=60_000)(lambda: None)
    assert (made.timeout, made.deadline) == (timedelta(seconds=1.5), timedelta(minutes=1))


@pytest.mark.parametrize("ms", ["x", float("nan"), float("inf"), 10**400], ids=lambda ms: repr(ms)[:5])
def test_what_is_no_number_of_milliseconds_is_refused(ms: Any) -> None:
    with pytest.raises(InvalidWorkflow, match="is no number of milliseconds"):
        workflow("a", timeout_ms=ms)


def test_a_duration_given_twice_is_refused() -> None:
    with pytest.raises(InvalidWorkflow, match="it has timeout and timeout_ms: give one"):
        workflow("a", timeout=1, timeout_ms=1)


def test_a_name_that_is_no_steps_name_says_so_with_the_other_faults() -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        workflow("my.resize", timeout=-1)(lambda: None)
    assert [fault.partition(": ")[2][:20] for fault in caught.value.faults] == ["timeout: -1 is out o", "a durable function's"]


def test_an_async_transactional_body_is_a_fault() -> None:
    async def body() -> None: ...

    with pytest.raises(InvalidWorkflow, match="transactional: an async def can't run in a database transaction"):
        workflow("a", transactional=True)(body)


@workflow("fetch")
async def fetch(size: int) -> Size:
    return Size(size)


@dataclass
class Size:
    size: int


@pytest.mark.parametrize("run", [fetch, functools.partial(fetch)], ids=["itself", "partial"])
def test_as_a_steps_body_it_is_what_its_function_is(run: Any) -> None:
    body = Workflow("order", steps=[Step("fetch", run=run)]).body("fetch")
    assert (body.is_async, body.input_schema()) == (True, {"type": "integer"})
    assert body.encode(asyncio.run(body.call(None, body.decode("4")))) == {"size": 4}
    assert not Workflow("order", steps=[Step("resize", run=resize)]).body("resize").is_async


def test_an_async_one_is_no_body_of_a_transaction() -> None:
    with pytest.raises(InvalidWorkflow, match="transactional: an async def can't run in a database transaction"):
        Workflow("order", steps=[Step("fetch", run=fetch, transactional=True)])


def test_what_another_step_gives_is_decoded_by_its_return_annotation() -> None:
    assert Result(fetch, "step fetch").decode({"size": 4}) == Size(4)


def test_it_is_found_like_any_workflow() -> None:
    registry = Registry()
    registry.add(resize)
    assert registry.get("resize") is resize


@pytest.mark.parametrize("name", ["workflow", "StepFailed", "TIMED_OUT", "Arrived"])
def test_the_words_are_exported(name: str) -> None:
    assert name in ezgh_workflows_django.__all__
    assert getattr(ezgh_workflows_django, name) is not None
