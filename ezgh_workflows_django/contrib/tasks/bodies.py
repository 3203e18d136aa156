"""The body of a task's step: the function is called with what was enqueued, and what it returns must be JSON.

`task_started` is sent here, by the process that runs the task, once for each attempt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import sync_to_async

from ...errors import Permanent
from ...worker.context import Context
from . import results, signals
from .compat import TaskContext, normalize_json


def sync_body(alias: str, module_path: str) -> Callable[..., Any]:
    """The body of a plain function."""

    def run(ctx: Context, payload: Any) -> Any:
        ctx.keep_traceback()
        task, arguments = _begin(alias, module_path, ctx, payload)
        return _json(module_path, task.func(*arguments, **payload["kwargs"]))

    return run


def async_body(alias: str, module_path: str) -> Callable[..., Awaitable[Any]]:
    """The body of a coroutine function, which runs on the worker's event loop."""

    async def run(ctx: Context, payload: Any) -> Any:
        ctx.keep_traceback()
        task, arguments = await sync_to_async(_begin)(alias, module_path, ctx, payload)
        return _json(module_path, await task.func(*arguments, **payload["kwargs"]))

    return run


def _begin(alias: str, module_path: str, ctx: Context, payload: Any) -> tuple[Any, list[Any]]:
    """Say that it begins; gives the task and its positional arguments."""
    result = results.running(alias, module_path, ctx.info.run_id, ctx.attempt, payload)
    signals.started(result)
    task = result.task
    return task, [TaskContext(task_result=result), *payload["args"]] if task.takes_context else list(payload["args"])


def _json(module_path: str, value: Any) -> Any:
    try:
        return normalize_json(value)
    except (TypeError, ValueError) as error:
        raise Permanent(f"task {module_path} returned what is no JSON: {error}") from error
