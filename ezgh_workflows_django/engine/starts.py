"""Starting runs: an ordinary write on the caller's connection. Inside `atomic()` the run exists if and only if it commits."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import DatabaseError, models

from ..conf import app_settings
from ..definitions.durations import MAX_SPAN_MS, milliseconds
from ..definitions.graph import Workflow
from ..definitions.plan import Plan, PlanStep
from ..definitions.policies import RunView
from ..definitions.registry import registry
from ..definitions.starts import MISSING, Start
from ..errors import IdempotencyConflict, InvalidArgument, NotAvailable, StartBusy, UnknownWorkflow
from ..models import Definition, Run, RunLabel, Step
from ..protocol import codec
from ..protocol.states import RunStatus, StepStatus
from . import announce, catalog, duty, ids, payloads, progress, tenancy, uniques, waits
from .clock import Now
from .locking import Held
from .transactions import database, verb
from .work import Work

MAX_LABELS = 32
MAX_LABEL = 128
MAX_PRIORITY = 100
BUSY_AFTER_SECONDS = 5


@dataclass(frozen=True, slots=True)
class _Request:
    """One start, checked and encoded: nothing of it can fail on its values any more."""

    start: Start
    payload: str | None
    labels: str
    subject: tuple[str, str] | tuple[None, None]


@verb
def start(workflow: Workflow | str, requested: Start, *, app: str | None = None) -> Run:
    """Start one run, or give back the one that has its idempotency key.

    Raises `UnknownWorkflow`, `NotAvailable`, `IdempotencyConflict`, `StartBusy`, `InvalidPayload`, `InvalidArgument`,
    `UnknownApp`. Locks nothing but, for a moment, the key. Four statements for a run without key, labels or waits.
    """
    return _start_all(workflow, [requested], app)[0]


@verb
def start_many(workflow: Workflow | str, requested: Sequence[Start], *, app: str | None = None) -> list[Run]:
    """Start many runs of one workflow, all or none, in order. Raises as `start`."""
    return _start_all(workflow, requested, app)


def admit(held: Held) -> None:
    """Let a queued run begin: its first steps open."""
    held.work.move(held.run, status=RunStatus.RUNNING, started_at=held.now, due_at=held.run.deadline_at)
    held.work.record(held.run, "run.started")
    held.work.after(lambda: announce.run_started(held.run))
    progress.open_steps(held, held.steps(held.plan.roots))


def run_once(now: datetime, limit: int) -> int:
    """The duty of admission: begin up to `limit` queued runs whose time has come; returns how many were looked at."""
    due = Run.objects.using(database()).filter(status=RunStatus.QUEUED, due_at__lte=now).order_by("due_at").values_list("pk", flat=True)
    return duty.each([(pk, pk) for pk in due[:limit]], _admit_due, lambda pk: _postpone(pk, now))


def _admit_due(held: Held, _: uuid.UUID) -> None:
    if held.run.status == RunStatus.QUEUED and held.run.start_at <= held.now:
        admit(held)


def _postpone(run_id: uuid.UUID, now: datetime) -> None:
    Run.objects.using(database()).filter(pk=run_id).update(due_at=duty.later(now))


def _start_all(workflow: Workflow | str, requested: Sequence[Start], app_name: str | None) -> list[Run]:
    requests = [_checked(each) for each in requested]
    definition, plan, code, now = _pinned(workflow, app_name)
    refused = plan.unavailable()
    if refused:
        raise NotAvailable(f'workflow "{plan.name}" asks for what this version cannot do yet: {", ".join(refused)}')
    work = Work(now)
    runs = [_start_one(request, definition, plan, code, work) for request in requests]
    work.finish()
    return runs


def _start_one(request: _Request, definition: Definition, plan: Plan, code: Workflow | None, work: Work) -> Run:
    known = _known(request, definition)
    if known is not None:
        return known
    run = _new_run(request, definition, plan, work.now)
    keys = _computed_keys(run, plan, code)
    if run.idempotency_key is None:
        work.insert([run])
    elif (other := _insert_with_key(run)) is not run:
        return _same(request, other)
    _open(Held(run, plan, work), definition, keys)
    return run


def _open(held: Held, definition: Definition, keys: Mapping[str, str]) -> None:
    """Insert what hangs on a new run, and begin it if it is due."""
    run, work = held.run, held.work
    steps = [_new_step(run, definition, step, keys.get(step.name)) for step in held.plan.steps.values()]
    work.insert(steps)
    work.insert(RunLabel(run=run, name=name, value=value) for name, value in json.loads(run.labels).items())
    held.adopt(steps)
    due = run.start_at <= held.now
    work.after(lambda: announce.starting(run))
    told: dict[str, Any] = {} if due else {"at": run.start_at}
    work.record(run, "run.created", version=run.version, **told)
    if due:
        admit(held)


def _pinned(workflow: Workflow | str, app_name: str | None) -> tuple[Definition, Plan, Workflow | None, datetime]:
    """The definition a start uses, its plan, this process's code for it if any, and the database's moment."""
    code = workflow if isinstance(workflow, Workflow) else _code_of(workflow)
    if code is None:
        app, now = tenancy.app_now(app_name)
        definition = catalog.newest(app, str(workflow))
        return definition, catalog.plan(definition.version, definition.pk), None, now
    found = _stored(code, app_name)
    if found is not None:
        return found, catalog.plan(found.version, found.pk), code, found.now
    app, now = tenancy.app_now(app_name)
    definition = catalog.store(app, code.to_spec(), now)
    return definition, catalog.plan(definition.version, definition.pk), code, now


def _code_of(name: str) -> Workflow | None:
    try:
        return registry.get(name)
    except UnknownWorkflow:
        return None


def _stored(code: Workflow, app_name: str | None) -> Any:
    wanted = app_name or str(app_settings.DEFAULT_APP)
    rows = Definition.objects.using(database()).select_related("app").defer("spec", "input_schemas").annotate(now=Now())
    return rows.filter(app__name=wanted, workflow=code.name, version=code.version).first()


def _new_run(request: _Request, definition: Definition, plan: Plan, now: datetime) -> Run:
    start_at = _start_at(request.start, now)
    deadline_at = None if plan.deadline_ms is None else start_at + timedelta(milliseconds=plan.deadline_ms)
    return Run(
        id=ids.run_id(),
        app_id=definition.app_id,
        definition=definition,
        workflow=plan.name,
        version=plan.version,
        status=RunStatus.QUEUED,
        priority=request.start.priority,
        payload=request.payload,
        labels=request.labels,
        idempotency_key=request.start.idempotency_key,
        correlation_id=request.start.correlation_id or "",
        subject_label=request.subject[0],
        subject_id=request.subject[1],
        trace_id=ids.trace_id(),
        open_steps=len(plan.steps),
        created_at=now,
        start_at=start_at,
        deadline_at=deadline_at,
        due_at=start_at,
    )


def _new_step(run: Run, definition: Definition, planned: PlanStep, wait_key: str | None) -> Step:
    return Step(
        run=run,
        revision_id=definition.revision_id,
        definition=definition,
        name=planned.name,
        position=planned.position,
        kind=planned.kind,
        status=StepStatus.BLOCKED,
        partition=(zlib.crc32(run.pk.bytes) + planned.position) % definition.app.partitions,
        blockers=len(planned.after),
        wait_key=wait_key,
    )


def _computed_keys(run: Run, plan: Plan, code: Workflow | None) -> dict[str, str]:
    """The keys of waits that need no output of a step: literal ones, and callable ones, computed now so that no code is needed later.

    Raises `InvalidArgument` where a callable key can't be computed.
    """
    keys: dict[str, str] = {}
    view: RunView | None = None
    for step in plan.steps.values():
        if step.wait is None:
            continue
        if step.wait.key is not None:
            keys[step.name] = step.wait.key
        elif step.wait.callable_key:
            view = view or RunView(
                id=str(run.pk), workflow=run.workflow, payload=payloads.from_text(run.payload), labels=json.loads(run.labels), correlation_id=run.correlation_id
            )
            keys[step.name] = _called_key(plan, step, code, view)
    return keys


def _called_key(plan: Plan, step: PlanStep, code: Workflow | None, view: RunView) -> str:
    where = f"workflow {plan.name}, step {step.name}"
    wait = None if code is None else code.step(step.name).wait
    if wait is None or not callable(wait.key):
        raise InvalidArgument("key", f"{where}: a callable key stays on the server; use key_expr")
    try:
        return waits.kept_key(wait.key(view))
    except Exception as error:
        raise InvalidArgument("key", f"{where}: the key could not be computed: {type(error).__name__}: {error}") from error


def _known(request: _Request, definition: Definition) -> Run | None:
    key = request.start.idempotency_key
    if key is None:
        return None
    run = _with_key(definition.app_id, definition.workflow, key)
    return None if run is None else _same(request, run)


def _with_key(app_id: int, workflow: str, key: str) -> Run | None:
    return Run.objects.using(database()).filter(app=app_id, workflow=workflow, idempotency_key=key).first()


def _same(request: _Request, run: Run) -> Run:
    """The run that has the key, if it was started with the same content. Raises `IdempotencyConflict`."""
    for field, given, stored in (("payload", request.payload, run.payload), ("labels", request.labels, run.labels)):
        if _canonical(given) != _canonical(stored):
            raise IdempotencyConflict(
                f'idempotency key "{run.idempotency_key}" of workflow "{run.workflow}" belongs to run {run.pk}, which was started with another {field}'
            )
    return run


def _canonical(text: str | None) -> str | None:
    """Stored JSON in one spelling: the order of keys is no content, but 1 is not true, and nothing is not null."""
    return None if text is None else json.dumps(payloads.from_text(text), sort_keys=True)


def _insert_with_key(run: Run) -> Run:
    """Insert a run, or give back the one that took its key meanwhile. Raises `StartBusy`."""
    try:
        return uniques.insert_or_find_in_callers(run, lambda: _with_key(run.app_id, run.workflow, str(run.idempotency_key)), within=BUSY_AFTER_SECONDS)
    except DatabaseError as error:
        if not uniques.is_lock_timeout(error):
            raise
        raise StartBusy(
            f'another transaction has held idempotency key "{run.idempotency_key}" of workflow "{run.workflow}" for over {BUSY_AFTER_SECONDS} s: try again'
        ) from error


def _start_at(requested: Start, now: datetime) -> datetime:
    if requested.at is not None and requested.delay is not None:
        raise InvalidArgument("at", "give at or delay, not both")
    if requested.at is not None:
        if not isinstance(requested.at, datetime) or requested.at.tzinfo is None:
            raise InvalidArgument("at", "an aware datetime is needed: 09:00 of which time zone?")
        if requested.at - now > timedelta(milliseconds=MAX_SPAN_MS):
            raise InvalidArgument("at", "at most 3,650 days from now")
        return requested.at.astimezone(UTC) if requested.at > now else now  # the first day of all can't change its zone
    if requested.delay is None:
        return now
    try:
        delay_ms = milliseconds(requested.delay)
    except ValueError as error:
        raise InvalidArgument("delay", str(error)) from None
    if not 0 <= delay_ms <= MAX_SPAN_MS:
        raise InvalidArgument("delay", "0 to 3,650 days")
    return now + timedelta(milliseconds=delay_ms)


def _checked(requested: Start) -> _Request:
    if isinstance(requested.priority, bool) or not isinstance(requested.priority, int) or abs(requested.priority) > MAX_PRIORITY:
        raise InvalidArgument("priority", f"a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
    for field in ("idempotency_key", "correlation_id"):
        _check_text(field, getattr(requested, field), 255)
    return _Request(
        start=requested,
        payload=None if requested.payload is MISSING else payloads.to_text(requested.payload, "payload"),
        labels=_labels_text(requested.labels),
        subject=_subject(requested.subject),
    )


def _labels_text(labels: Mapping[str, str] | None) -> str:
    labels = {} if labels is None else labels
    if not isinstance(labels, Mapping):
        raise InvalidArgument("labels", f"a mapping of text to text is needed, not {type(labels).__name__}")
    if len(labels) > MAX_LABELS:
        raise InvalidArgument("labels", f"at most {MAX_LABELS}, not {len(labels)}")
    for name, value in labels.items():
        if not name:
            raise InvalidArgument("labels", "a label needs a name")
        _check_text(f"labels.{name}", name, MAX_LABEL)
        _check_text(f"labels.{name}", value, MAX_LABEL)
    return codec.dumps(dict(labels), limit=None, what="labels")


def _check_text(field: str, value: object, length: int) -> None:
    if value is None and not field.startswith("labels"):
        return
    if not isinstance(value, str):
        raise InvalidArgument(field[:140], f"a text is needed, not {type(value).__name__}")
    if len(value) > length or codec.clean_text(value, length) != value:
        raise InvalidArgument(field[:140], f"at most {length} characters, no NUL and no lone surrogate")


def _subject(subject: Any) -> tuple[str, str] | tuple[None, None]:
    if subject is None:
        return None, None
    if not isinstance(subject, models.Model) or subject.pk is None:
        raise InvalidArgument("subject", "a saved model instance is needed")
    return subject._meta.label_lower, str(subject.pk)
