"""What a task is here: a workflow of one step, named by the task's module path, in the revision of its backend's alias.

A process serves the tasks that it has imported. One that it has not waits for a worker that has (spec: testing.md I14); nothing is ever
imported because a payload names it.
"""

from __future__ import annotations

import hashlib
import re
import threading
from dataclasses import fields
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final

from ...definitions.graph import Step, Workflow
from ...definitions.names import REVISION_PATTERN, WORKFLOW_PATTERN, matches
from ...definitions.registry import registry
from . import bodies
from .policies import policy_of

if TYPE_CHECKING:
    from .backend import WorkflowsBackend

STEP: Final = "task"

_lock = threading.Lock()
_held: dict[tuple[str, str], Any] = {}
_names: set[str] = set()


def workflow_name(module_path: str) -> str:
    """The workflow's name of a task: its module path, made legal where it is not; two paths never have one name."""
    return module_path if matches(WORKFLOW_PATTERN, module_path) else _legal(f"task-{module_path.lower()}", module_path, 128)


def revision_of(alias: str) -> str:
    """The revision of a backend's tasks: one task may be under several backends, each with policies of its own."""
    wanted = f"tasks.{alias}"
    return wanted if matches(REVISION_PATTERN, wanted) else _legal(wanted, alias, 63)


def register(backend: WorkflowsBackend, task: Any) -> Workflow:
    """The workflow of a task under a backend, made at the first call. Raises `InvalidWorkflow` where its policies can't be.

    The registry holds the one of the newest settings: tests change them.
    """
    policy = policy_of(task.func, backend.options)
    key = (workflow_name(task.module_path), revision_of(backend.alias))
    with _lock:
        held = _held.get(key)
        if held is not None and (held.task.func, held.policy) == (task.func, policy):
            workflow: Workflow = held.workflow
            return workflow
        body = bodies.async_body(backend.alias, task.module_path) if iscoroutinefunction(task.func) else bodies.sync_body(backend.alias, task.module_path)
        step = Step(STEP, run=body, retry=policy.retry, timeout=policy.timeout, delivery=policy.delivery)
        made = Workflow(key[0], [step], revision=key[1])
        registry.put(made, task.module_path)
        _names.add(made.name)
        _held[key] = _Held(task, policy, made)
        return made


def held_task(module_path: str, alias: str) -> Any:
    """The task of that path which this process has imported, or None."""
    held = _held.get((workflow_name(module_path), revision_of(alias)))
    return None if held is None else held.task


def is_task(workflow: str) -> bool:
    """Whether a workflow of that name is a task which this process has imported."""
    return workflow in _names


def restored(task: Any, **changes: Any) -> Any:
    """A task as it was when it was enqueued. Not validated anew: what settings say now is no matter of what is stored."""
    copy = object.__new__(type(task))
    for field in fields(task):
        object.__setattr__(copy, field.name, changes.get(field.name, getattr(task, field.name)))
    return copy


class _Held:
    __slots__ = ("policy", "task", "workflow")

    def __init__(self, task: Any, policy: Any, workflow: Workflow) -> None:
        self.task, self.policy, self.workflow = task, policy, workflow


def _legal(text: str, of: str, limit: int) -> str:
    digest = hashlib.sha256(of.encode()).hexdigest()[:12]
    return f"{re.sub(r'[^a-z0-9_.-]', '-', text.lower())[: limit - 13]}-{digest}"
