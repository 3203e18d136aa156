"""The three signals of tasks, which monitors live on. The sender is the backend's class; each transition is told once, best effort.

`task_enqueued`: after the commit of the transaction that the task was enqueued in. `task_started`: before each attempt, in the process that
runs it. `task_finished`: after the commit of the run's end, in the process that made it (a worker, or the server of a worker elsewhere).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import transaction

from ... import dispatch
from . import definitions
from .compat import task_backends, task_enqueued, task_finished, task_started


def enqueued(result: Any) -> None:
    """Tell it once the caller's transaction has committed, or now where there is none."""
    from ...engine import outbox
    from ...engine.transactions import database

    transaction.on_commit(partial(task_enqueued.send, _sender(result), task_result=result), using=outbox.callers_transaction() or database())


async def aenqueued(result: Any) -> None:
    """As `enqueued`, on the event loop: there no transaction of the caller's is open."""
    await task_enqueued.asend(_sender(result), task_result=result)


def started(result: Any) -> None:
    """Tell that an attempt begins."""
    task_started.send(_sender(result), task_result=result)


def connect() -> None:
    """Hear of every run that ends."""
    dispatch.run_finished.connect(_run_finished, dispatch_uid="ezgh_workflows.tasks")


def _run_finished(sender: Any, *, run_id: str, workflow: str, **_: Any) -> None:
    if not definitions.is_task(workflow):
        return
    from . import results

    result = results.ended(run_id)
    if result is not None:
        task_finished.send(_sender(result), task_result=result)


def _sender(result: Any) -> Any:
    return type(task_backends[result.backend])
