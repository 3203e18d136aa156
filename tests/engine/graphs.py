"""Small workflows and calls that several tests make. The bodies are never run: the desk's hands report for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import transaction

from ezgh_workflows_django import Step, Workflow
from ezgh_workflows_django.protocol.messages import Answer, Extension


def body(value: Any) -> Any:
    """A body."""
    return value


def job(name: str = "job", **options: Any) -> Any:
    """One step, `work`."""
    return Workflow(name, steps=[Step("work", run=body)], **options)


def chain(*names: str, **options: Any) -> Any:
    """Steps one after the other."""
    return Workflow("chain", steps=[Step(name, run=body, after=names[place - 1 : place] if place else ()) for place, name in enumerate(names)], **options)


class Undo(Exception):
    """Ends a transaction."""


def undone(call: Callable[[], Any]) -> None:
    """Make a call in a transaction that is then rolled back."""
    try:
        with transaction.atomic():
            call()
            raise Undo
    except Undo:
        return


def why(answer: Answer | Extension) -> str | None:
    """The reason a worker's call was refused for."""
    return None if answer.refused is None else answer.refused.reason
