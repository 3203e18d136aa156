"""Starting runs: an ordinary write on the caller's connection. Inside `atomic()` the run exists if and only if it commits."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from django.db import DatabaseError

from ..definitions.graph import Workflow
from ..definitions.plan import Plan, PlanStep
from ..definitions.registry import registry
from ..definitions.starts import Start
from ..errors import IdempotencyConflict, StartBusy, UnknownWorkflow
from ..models import App, Checkpoint, Definition, Run, RunLabel, Step
from ..protocol.states import RunStatus, StepStatus
from . import admission, announce, catalog, ids, payloads, slots, start_keys, tenancy, traces, uniques
from .clock import Now
from .doors import BUSY_AFTER_SECONDS, Doors
from .locking import Held
from .start_requests import Origin, Request, checked, start_at
from .transactions import carry_out, database
from .work import Work
from .writer import WriterBusy


def start(workflow: Workflow | Definition | str, requested: Start, *, app: str | None = None) -> Run:
    """Start one run (`is_new`), or give back the one that has its idempotency key. A stored definition is started in its own app.

    Raises `UnknownWorkflow`, `IdempotencyConflict`, `ConcurrencyLimit`, `StartBusy`, `InvalidPayload`, `InvalidArgument`, `UnknownApp`.
    Locks nothing but, for a moment, the key; a start that may be refused, its bucket's door. Four statements for a run without key, labels or waits.
    """
    return start_many(workflow, [requested], app=app)[0]


def start_many(
    workflow: Workflow | Definition | str, requested: Sequence[Start], *, app: str | None = None, run_ids: Sequence[uuid.UUID] | None = None
) -> list[Run]:
    """Start many runs of one workflow, all or none, in order. Raises as `start`. With `run_ids` the new ones have these ids."""
    key = next((each.idempotency_key for each in requested if each.idempotency_key is not None), None)
    known: Sequence[uuid.UUID | None] = run_ids or [None] * len(requested)

    def begin() -> list[Run]:
        return _start_all(workflow, [replace(checked(each), run_id=run_id) for each, run_id in zip(requested, known, strict=True)], app)

    try:
        return carry_out(begin, within=None if key is None else BUSY_AFTER_SECONDS)
    except WriterBusy as error:
        raise StartBusy(
            f"another connection has been writing to the SQLite file for over {BUSY_AFTER_SECONDS} s, so nobody can tell yet "
            f'whether idempotency key "{key}" is taken: try again'
        ) from error


def known(app: App, workflow: str, wanted: Start) -> Run | None:
    """The run of a workflow that has the idempotency key of a start, if there is one. Raises `IdempotencyConflict`, `InvalidPayload`, `InvalidArgument`."""
    request = checked(wanted)
    run = None if wanted.idempotency_key is None else _with_key(app.pk, workflow, wanted.idempotency_key)
    return None if run is None else _same(request, run)


def look_up(workflow: Workflow | str, app: str | None) -> None:
    """Whether a start would find its app and its workflow. Raises `UnknownApp`, `UnknownWorkflow`."""
    found, _ = tenancy.app_now(app)
    if not isinstance(workflow, Workflow) and _code_of(workflow) is None:
        catalog.newest(found, workflow)


def start_occurrence(definition: Definition, wanted: Start, run_id: uuid.UUID, origin: Origin) -> Run:
    """Start the run of an occurrence of a schedule, in the caller's transaction: a start that is refused leaves nothing. Raises as `start`."""
    [run] = carry_out(lambda: _start_all(definition, [replace(checked(wanted), origin=origin, run_id=run_id)], None))
    return run


def start_children(held: Held, step: str, checkpoint: Checkpoint, workflow: str, texts: Mapping[int, str | None]) -> dict[int, uuid.UUID]:
    """Start children of a held run, by their numbers among those of a checkpoint: in its app, with its labels, correlation, trace and priority.

    None lives longer than its parent may. Raises `StartError`, `InvalidArgument`. `texts` are their payloads, as stored.
    """
    parent = held.run
    definition, plan, code, _ = _pinned(workflow, App.objects.using(database()).get(pk=parent.app_id))
    shared = slots.shared_by(parent) if plan.concurrency else frozenset()
    bound = None if parent.ending_as else parent.deadline_at
    around = traces.of_step(parent, step).to_text()
    started: dict[int, uuid.UUID] = {}
    for index, text in texts.items():
        wanted = Start(correlation_id=parent.correlation_id or None, priority=parent.priority)
        run = _new_run(Request(wanted, text, parent.labels, (None, None)), definition, plan, held.now)
        run.parent_id, run.parent_checkpoint, run.parent_index = parent.pk, checkpoint.pk, index
        run.depth, run.trace_id, run.traceparent = parent.depth + 1, parent.trace_id, around
        run.deadline_at = min(filter(None, (run.deadline_at, bound)), default=None)
        slots.assign(run, plan, start_keys.slot_key(run, plan, code), shared)
        held.work.insert([run])
        _open(Held(run, plan, held.work), definition, start_keys.wait_keys(run, plan, code))
        started[index] = run.pk
    return started


def _start_all(workflow: Workflow | Definition | str, requests: Sequence[Request], app_name: str | None) -> list[Run]:
    definition, plan, code, now = _pinned(workflow, app_name)
    work, doors = Work(now), Doors()
    runs = [_start_one(request, definition, plan, code, work, doors) for request in requests]
    work.finish()
    return runs


def _start_one(request: Request, definition: Definition, plan: Plan, code: Workflow | None, work: Work, doors: Doors) -> Run:
    known = _known(request, definition)
    if known is not None:
        return known
    run = _new_run(request, definition, plan, work.now)
    keys = start_keys.wait_keys(run, plan, code)
    slots.assign(run, plan, start_keys.slot_key(run, plan, code))
    if doors.close_behind(run, plan) and (known := _known(request, definition)) is not None:
        return known  # who had the door before us has started it
    doors.let_in(run)
    if run.idempotency_key is None:
        work.insert([run])
    elif (other := _insert_with_key(run)) is not run:
        return _same(request, other)
    _open(Held(run, plan, work), definition, keys, {} if request.origin is None else request.origin.told)
    run.is_new = True
    return run


def _open(held: Held, definition: Definition, keys: Mapping[str, str], told: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Insert what hangs on a new run, and begin it if it is due. `told` is what its journal says of its origin."""
    run, work = held.run, held.work
    steps = [new_step(run, definition, step, keys.get(step.name)) for step in held.plan.steps.values()]
    work.insert(steps)
    work.insert(RunLabel(run=run, name=name, value=value) for name, value in json.loads(run.labels).items())
    held.adopt(steps)
    due = run.start_at <= held.now
    work.after(lambda: announce.starting(run))
    later: Mapping[str, Any] = {} if due else {"at": run.start_at}
    counted: Mapping[str, Any] = {} if run.slot_key is None else {"slot": run.slot_key}
    work.record(run, "run.created", version=run.version, **later, **counted, **told)
    if due and slots.is_limited(run):
        admission.line_up(held)
    elif due:
        admission.admit(held)


def _pinned(workflow: Workflow | Definition | str, wanted: App | str | None) -> tuple[Definition, Plan, Workflow | None, datetime]:
    """The definition a start uses, its plan, this process's code for it if any, and the database's moment."""
    if isinstance(workflow, Definition):
        plan, (_, now) = catalog.plan(workflow.version, workflow.pk), tenancy.app_now(workflow.app)
        return workflow, plan, _code_of(plan.name, plan.revision), now
    code = workflow if isinstance(workflow, Workflow) else _code_of(workflow)
    if code is None:
        app, now = tenancy.app_now(wanted)
        definition = catalog.newest(app, str(workflow))
        return definition, catalog.plan(definition.version, definition.pk), None, now
    found = _stored(code, wanted)
    if found is not None:
        return found, catalog.plan(found.version, found.pk), code, found.now
    app, now = tenancy.app_now(wanted)
    theirs = catalog.of_app(app, code.name) if isinstance(wanted, App) and not isinstance(workflow, Workflow) else None
    if theirs is not None:  # a child's name is one of its parent's app, which may have code of its own elsewhere
        plan = catalog.plan(theirs.version, theirs.pk)
        return theirs, plan, _code_of(plan.name, plan.revision), now
    definition = catalog.store(app, code.to_spec(), now)
    return definition, catalog.plan(definition.version, definition.pk), code, now


def _code_of(name: str, revision: str | None = None) -> Workflow | None:
    try:
        return registry.get(name, revision)
    except UnknownWorkflow:
        return None


def _stored(code: Workflow, wanted: App | str | None) -> Any:
    rows = Definition.objects.using(database()).select_related("app").defer("spec", "input_schemas").annotate(now=Now())
    return rows.filter(app=tenancy.meant(wanted), workflow=code.name, version=code.version).first()


def _new_run(request: Request, definition: Definition, plan: Plan, now: datetime) -> Run:
    due_at = start_at(request.start, now)
    joined = traces.joined(request.start)
    deadline_at = None if plan.deadline_ms is None else due_at + timedelta(milliseconds=plan.deadline_ms)
    return Run(
        id=request.run_id or ids.run_id(),
        occurrence=None if request.origin is None else request.origin.occurrence,
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
        trace_id=ids.trace_id() if joined is None else joined.trace_id,
        traceparent="" if joined is None else joined.to_text(),
        open_steps=len(plan.steps),
        created_at=now,
        start_at=due_at,
        deadline_at=deadline_at,
        due_at=due_at,
    )


def new_step(run: Run, definition: Definition, planned: PlanStep, wait_key: str | None) -> Step:
    """The row of a step that has not begun."""
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


def _known(request: Request, definition: Definition) -> Run | None:
    key = request.start.idempotency_key
    if key is None:
        return None
    run = _with_key(definition.app_id, definition.workflow, key)
    return None if run is None else _same(request, run)


def _with_key(app_id: int, workflow: str, key: str) -> Run | None:
    return Run.objects.using(database()).filter(app=app_id, workflow=workflow, idempotency_key=key).first()


def _same(request: Request, run: Run) -> Run:
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
