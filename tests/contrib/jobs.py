"""Tasks as a stock project writes them; and what they saw, for the tests."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from django.contrib.auth.models import Group

from ezgh_workflows_django import Retry, Retryable
from ezgh_workflows_django.contrib.tasks import policy
from ezgh_workflows_django.contrib.tasks.compat import PACKAGE

F = TypeVar("F", bound=Callable[..., Any])


def task(**options: Any) -> Callable[[F], Any]:
    """The project's own `@task`, whichever package it has."""
    mark: Callable[[F], Any] = importlib.import_module(PACKAGE).task(**options)
    return mark


SEEN: list[Any] = []


@task()
def add(first: int, second: int = 1) -> int:
    """A plain one."""
    SEEN.append(("add", first, second))
    return first + second


@task(priority=7, queue_name="emails")
def send(to: str) -> str:
    """One with a queue and a priority of its own."""
    SEEN.append(to)
    return f"sent to {to}"


@task()
async def fetch(url: str) -> dict[str, str]:
    """A coroutine function that uses the database."""
    await Group.objects.acreate(name=url)
    return {"url": url}


@task(takes_context=True)
@policy(retry=Retry(max_attempts=3, initial=60, jitter=0))
def third_time(context: Any, say: str) -> list[Any]:
    """Succeeds at its third attempt."""
    SEEN.append((context.attempt, context.task_result.status, context.task_result.id))
    if context.attempt < 3:
        raise Retryable(f"{say} {context.attempt}")
    return [context.attempt, say]


@task()
def fail(how: str) -> None:
    """Raises."""
    raise ValueError(f"no {how}")


@task()
def no_json() -> Any:
    """Returns what is no JSON."""
    SEEN.append("no_json")
    return datetime(2024, 1, 1, tzinfo=UTC)


@task()
@policy(timeout=30)
def stuck() -> None:
    """Times out, in a lab."""


@task()
def writes(name: str) -> None:
    """Leaves a row."""
    Group.objects.create(name=name)


def no_task() -> None:
    """What is no task."""
