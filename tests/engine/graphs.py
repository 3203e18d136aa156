"""Small workflows and calls that several tests make. The bodies are never run: the desk's hands report for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import transaction

from ezgh_workflows_django import Step, Workflow
from ezgh_workflows_django.protocol.durable import Checkpoint, Started, Stored, WaitFor
from ezgh_workflows_django.protocol.messages import Extension, Lease
from ezgh_workflows_django.protocol.outcomes import Answer
from ezgh_workflows_django.protocol.states import WaitKind


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


def event(name: str, of: str = "", key: str = "", **rest: Any) -> WaitFor:
    """A body's wait for an event, which is called as the wait where nothing else is said."""
    return WaitFor(name=name, kind=WaitKind.EVENT, pos=rest.pop("pos", 1), event=of or name, key=key, **rest)


def sleep(name: str, seconds: float = 0, **rest: Any) -> WaitFor:
    """A body's sleep."""
    ms = None if "until" in rest else round(seconds * 1000)
    return WaitFor(name=name, kind=WaitKind.SLEEP, pos=rest.pop("pos", 1), ms=ms, **rest)


def retry_of(name: str) -> WaitFor:
    """A body's rest before the next try of an inner step."""
    return WaitFor(name=name, kind=WaitKind.RETRY)


def end_of(name: str) -> WaitFor:
    """A body's wait for the children of that name."""
    return WaitFor(name=name, kind=WaitKind.CHILD)


def brought(lease: Lease, name: str) -> Checkpoint:
    """The checkpoint of that name, as the lease carries it."""
    [found] = [each for each in lease.checkpoints if each.name == name]
    return found


def why(answer: Answer | Extension | Stored | Started) -> str | None:
    """The reason a worker's call was refused for."""
    return None if answer.refused is None else answer.refused.reason
