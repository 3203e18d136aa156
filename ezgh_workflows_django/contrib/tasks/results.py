"""From a run to the `TaskResult` of its task: what is stored decides, in two statements. Moves nothing.

A run that waits, sleeps or is between two attempts is READY, one with a body at work RUNNING; cancelled and timed out are FAILED.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import SuspiciousOperation
from django.utils import timezone
from django.utils.module_loading import import_string

from ...engine import payloads, reading
from ...engine.transactions import database
from ...models import Lease, Run
from ...protocol.states import LIVE_LEASE, TERMINAL_RUN, FailureClass, LeaseStatus, RunStatus
from . import definitions
from .compat import Task, TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus, task_backends

if TYPE_CHECKING:
    from .backend import WorkflowsBackend

_ERRORS: Final = "ezgh_workflows_django.errors"
_ENDED: Final = {RunStatus.FAILED: "RunFailed", RunStatus.CANCELLED: "RunCancelled", RunStatus.TIMED_OUT: "RunTimedOut"}


def get(backend: WorkflowsBackend, result_id: str) -> Any:
    """The result of a task of that backend. Raises `TaskResultDoesNotExist`, `SuspiciousOperation`."""
    run = _run(result_id)
    if run is None or run.definition.revision.revision != definitions.revision_of(backend.alias):
        raise TaskResultDoesNotExist(result_id)
    return _result(run, backend.alias, _task(run, backend.alias))


def ended(run_id: str) -> Any:
    """The result of a run that is over, or None where it is no task's of a backend of this process."""
    run = _run(run_id)
    if run is None:
        return None
    for alias in task_backends:
        if run.definition.revision.revision == definitions.revision_of(alias):
            return _result(run, alias, _task(run, alias))
    return None


def running(alias: str, module_path: str, run_id: str, attempt: int, payload: Mapping[str, Any]) -> Any:
    """The result of a task whose body is about to run: as it is stored, or, where the run is in another project's database, as its lease tells it."""
    run = _run(run_id)
    if run is not None:
        return _result(run, alias, _task(run, alias))
    now = timezone.now()
    return TaskResult(
        task=definitions.restored(_imported(module_path, alias), backend=alias, queue_name=payload["queue"]),
        id=run_id,
        status=TaskResultStatus.RUNNING,
        enqueued_at=None,
        started_at=now,
        finished_at=None,
        last_attempted_at=now,
        args=payload["args"],
        kwargs=payload["kwargs"],
        backend=alias,
        errors=[],
        worker_ids=["elsewhere"] * attempt,
    )


def _run(run_id: str) -> Run | None:
    try:
        key = uuid.UUID(str(run_id))
    except ValueError:
        return None
    return Run.objects.using(database()).select_related("definition__revision").filter(pk=key).first()


def _task(run: Run, alias: str) -> Any:
    payload = payloads.from_text(run.payload)
    run_after = run.start_at if run.start_at > run.created_at else None
    task = _imported(payload["task"], alias)
    return definitions.restored(task, backend=alias, queue_name=payload["queue"], priority=run.priority, run_after=run_after)


def _imported(module_path: str, alias: str) -> Any:
    """The task of that path. Only a task is ever given, whatever a payload names."""
    held = definitions.held_task(module_path, alias)
    if held is not None:
        return held
    try:
        found = import_string(module_path)
    except ImportError as error:
        raise SuspiciousOperation(f"task {module_path} can't be found: it was moved, renamed or removed since it was enqueued") from error
    if not isinstance(found, Task):
        raise SuspiciousOperation(f"{module_path} is no task any more")
    return found


def _result(run: Run, alias: str, task: Any) -> Any:
    payload = payloads.from_text(run.payload)
    leases = list(Lease.objects.using(database()).filter(run=run, started_at__isnull=False).order_by("token").defer("progress"))
    result = TaskResult(
        task=task,
        id=str(run.pk),
        status=_status(run, leases),
        enqueued_at=run.created_at,
        started_at=leases[0].started_at if leases else None,
        finished_at=run.ended_at,
        last_attempted_at=leases[-1].started_at if leases else None,
        args=payload["args"],
        kwargs=payload["kwargs"],
        backend=alias,
        errors=list(_errors(run, leases)),
        worker_ids=[lease.worker_name for lease in leases],
    )
    if run.status == RunStatus.SUCCEEDED:
        object.__setattr__(result, "_return_value", reading.output(run))
    return result


def _status(run: Run, leases: Sequence[Lease]) -> Any:
    if run.status == RunStatus.SUCCEEDED:
        return TaskResultStatus.SUCCESSFUL
    if run.status in TERMINAL_RUN:
        return TaskResultStatus.FAILED
    return TaskResultStatus.RUNNING if leases and leases[-1].status in LIVE_LEASE else TaskResultStatus.READY


def _errors(run: Run, leases: Sequence[Lease]) -> Iterator[Any]:
    """One error for each attempt that failed, and one for an end that no attempt brought about."""
    told = False
    for lease in leases:
        failure: Mapping[str, Any] | None = (payloads.from_text(lease.outcome) or {}).get("failure")
        told = failure is not None and lease.status in (LeaseStatus.FAILED, LeaseStatus.TIMED_OUT)
        if failure is not None and told:
            yield _error(_path(failure), failure["message"], lease.traceback)
    if run.status in _ENDED and not (told and run.status == RunStatus.FAILED):
        why = payloads.from_text(run.failure) or {}
        yield _error(f"{_ERRORS}.{_ENDED[RunStatus(run.status)]}", why.get("message") or run.reason or f"the run {run.status}", None)


def _error(path: str, message: str, traceback: str | None) -> Any:
    return TaskError(exception_class_path=path, traceback=traceback or f"{path}: {message}\n")


def _path(failure: Mapping[str, Any]) -> str:
    name = failure.get("type")
    if not name:
        return "builtins.TimeoutError" if failure["class"] == FailureClass.TIMEOUT else f"{_ERRORS}.RunFailed"
    return str(name) if "." in name else f"builtins.{name}"
