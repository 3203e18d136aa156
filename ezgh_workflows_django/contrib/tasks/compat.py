"""The one place that knows where tasks come from: Django 6 has them, Django 5.2 has them from the package `django-tasks`."""

from __future__ import annotations

import importlib
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured


def _found() -> str:
    for name in ("django.tasks", "django_tasks"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
        else:
            return name
    raise ImproperlyConfigured("this Django has no tasks: install django-tasks 0.12 or newer, or Django 6.0 or newer")


PACKAGE: Final = _found()
"""`django.tasks` or `django_tasks`."""

IS_CORE: Final = PACKAGE == "django.tasks"

_base: Any = importlib.import_module(f"{PACKAGE}.base")
_exceptions: Any = importlib.import_module(f"{PACKAGE}.exceptions")
_signals: Any = importlib.import_module(f"{PACKAGE}.signals")
_json: Any = importlib.import_module("django.utils.json" if IS_CORE else "django_tasks.utils")

BaseTaskBackend: Any = importlib.import_module(f"{PACKAGE}.backends.base").BaseTaskBackend
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
InvalidTask: Any = _exceptions.InvalidTask if IS_CORE else _exceptions.InvalidTaskError
InvalidTaskBackend: Any = _exceptions.InvalidTaskBackend if IS_CORE else _exceptions.InvalidTaskBackendError
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
task_enqueued: Any = _signals.task_enqueued
task_started: Any = _signals.task_started
task_finished: Any = _signals.task_finished
normalize_json: Any = _json.normalize_json
task_backends: Any = importlib.import_module(PACKAGE).task_backends
