"""What a project with this backend gets when it starts, and when it migrates: its tasks found, its signals sent, its queues made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.module_loading import import_string

from ...engine import discovery

if TYPE_CHECKING:
    from .backend import WorkflowsBackend

MODULE = "tasks"


def connect() -> None:
    """Import every app's `tasks` module and those of `MODULES`, so that this process serves them; hear of runs that end. No query.

    Raises `ImproperlyConfigured` where a module calls `sys.exit`.
    """
    if not is_used():
        return
    from . import signals

    signals.connect()
    for _ in discovery.modules(MODULE):
        pass  # importing them is all
    for backend in backends():
        for name in backend.modules:
            discovery.imported(name)


def provision(using: str) -> None:
    """Make the apps that queues are, where `using` is the workflows' database and they are missing; idempotent."""
    from ...engine import tenancy
    from ...engine.transactions import database

    if using != database() or not is_used():
        return
    from .backend import DEFAULT_QUEUE

    for backend in backends():
        for queue in sorted(backend.queues - {DEFAULT_QUEUE}):
            tenancy.create_app(queue)


def is_used() -> bool:
    """Whether any backend in `TASKS` is one of ours."""
    return any(_is_ours(params.get("BACKEND")) for params in getattr(settings, "TASKS", {}).values())


def backends() -> Iterator[WorkflowsBackend]:
    """Those of this process."""
    from .backend import WorkflowsBackend
    from .compat import task_backends

    yield from (backend for backend in task_backends.all() if isinstance(backend, WorkflowsBackend))


def _is_ours(path: Any) -> bool:
    if not isinstance(path, str):
        return False
    if path.startswith(f"{__package__}."):
        return True
    try:
        found = import_string(path)
    except ImportError:
        return False
    from .backend import WorkflowsBackend

    return isinstance(found, type) and issubclass(found, WorkflowsBackend)
