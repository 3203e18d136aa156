"""The backend that `TASKS` names. Asks the database nothing before a task is enqueued: tasks are made while modules are imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core import checks
from django.utils import timezone

from ...definitions.graph import Workflow
from ...errors import InvalidWorkflow
from . import definitions, policies, signals
from .compat import BaseTaskBackend, InvalidTaskBackend, TaskResult, TaskResultStatus, normalize_json

DEFAULT_QUEUE = "default"
"""The queue of tasks that name none. It is the app that starts without one go to (`DEFAULT_APP`)."""


class WorkflowsBackend(BaseTaskBackend):  # type: ignore[misc]
    """Runs tasks as durable runs: a task is a workflow of one step, its queue an app, its result's id that of its run.

    Enqueueing is an ordinary write on the caller's connection: inside `atomic()` the task exists if and only if the transaction commits.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that hold tasks besides every app's `tasks`."""
        return policies.modules_of(self.options)

    def validate_task(self, task: Any) -> None:
        """Whether the task can be run; from then on this process serves it. Raises `InvalidTask`, `InvalidTaskBackend` for bad `OPTIONS`."""
        super().validate_task(task)
        self._workflow(task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Start the task's run; gives its result as it is now.

        Raises `InvalidTask`, `TypeError` for arguments that are no JSON, `StartError`, `InvalidPayload`.
        """
        workflow, payload, options = self._order(task, args, kwargs)
        result = self._new_result(task, payload, workflow.start(payload, **options).id)
        signals.enqueued(result)
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """As `enqueue`."""
        workflow, payload, options = self._order(task, args, kwargs)
        result = self._new_result(task, payload, (await workflow.astart(payload, **options)).id)
        await signals.aenqueued(result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The result of a task of this backend as it is now. Raises `TaskResultDoesNotExist`; `SuspiciousOperation` where its path is no task."""
        from . import results

        return results.get(self, result_id)

    async def aget_result(self, result_id: str) -> Any:
        """As `get_result`."""
        return await sync_to_async(self.get_result)(result_id)

    def check(self, **_: Any) -> Iterator[checks.CheckMessage]:
        """What is wrong with the backend's settings."""
        if not apps.is_installed("ezgh_workflows_django"):
            yield self._error("needs the app", 'Put "ezgh_workflows_django" into INSTALLED_APPS.', "ezgh_workflows.E020")
            return
        for fault in list(policies.faults(self.options)) or policies.value_faults(self.options):
            yield self._error(f"has bad OPTIONS: {fault}", "See the page on django.tasks.", "ezgh_workflows.E021")
        from ...engine.apps import name_fault

        for queue in sorted(self.queues):
            refused = name_fault(queue)
            if refused is not None:
                yield self._error(f"can't have the queue {queue!r}, because a queue is an app: {refused}", "Rename it in QUEUES.", "ezgh_workflows.E022")

    def _error(self, text: str, hint: str, id_: str) -> checks.CheckMessage:
        return checks.Error(f"TASKS[{self.alias!r}] {text}.", hint=hint, id=id_)

    def _workflow(self, task: Any) -> Workflow:
        try:
            for fault in policies.faults(self.options):
                raise InvalidTaskBackend(f"TASKS[{self.alias!r}] has bad OPTIONS: {fault}")
            return definitions.register(self, task)
        except InvalidWorkflow as error:
            raise InvalidTaskBackend(f"task {task.module_path} can't be a workflow under TASKS[{self.alias!r}]: {error}") from error

    def _order(self, task: Any, args: Any, kwargs: Any) -> tuple[Workflow, dict[str, Any], dict[str, Any]]:
        super().validate_task(task)
        payload = {"task": task.module_path, "queue": task.queue_name, "args": normalize_json(list(args)), "kwargs": normalize_json(dict(kwargs))}
        app = None if task.queue_name == DEFAULT_QUEUE else task.queue_name
        return self._workflow(task), payload, {"at": task.run_after, "priority": task.priority, "app": app}

    def _new_result(self, task: Any, payload: Mapping[str, Any], run_id: str) -> Any:
        return TaskResult(
            task=task,
            id=run_id,
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=payload["args"],
            kwargs=payload["kwargs"],
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
