"""Tasks of `django.tasks`, and of the `django-tasks` backport on Django 5.2, as durable runs.

`TASKS = {"default": {"BACKEND": "ezgh_workflows_django.contrib.tasks.WorkflowsBackend"}}`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .policies import policy

if TYPE_CHECKING:
    from .backend import WorkflowsBackend

__all__ = ["WorkflowsBackend", "policy"]


def __getattr__(name: str) -> Any:
    # A project without tasks has this package too, and neither Django 6 nor the backport.
    if name == "WorkflowsBackend":
        from .backend import WorkflowsBackend

        return WorkflowsBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
