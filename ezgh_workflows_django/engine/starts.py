"""Starting runs: an ordinary write on the caller's connection. Inside `atomic()` the run exists if and only if it commits."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError

from ..definitions.graph import Workflow
from ..definitions.plan import Plan, PlanStep
from ..definitions.policies import RunView
from ..definitions.registry import registry
from ..definitions.starts import Start
from ..errors import IdempotencyConflict, InvalidArgument, NotAvailable, StartBusy, UnknownWorkflow
from ..models import App, Checkpoint, Definition, Run, RunLabel, Step
from ..protocol.states import RunStatus, StepStatus
from . import announce, catalog, duty, ids, payloads, progress, tenancy, uniques, waits
from .clock import Now
from .locking import Held
from .start_requests import Request, checked, start_at
from .transactions import carry_out, database
from .work import Work
from .writer import WriterBusy

BUSY_AFTER_SECONDS = 5


def start(workflow: Workflow | Definition | str, requested: Start, *, app: str | None = None) -> Run:
    """Start one run (`is_new`), or give back the one that has its idempotency key. A stored definition is started in its own app.

    Raises `UnknownWorkflow`, `NotAvailable`, `IdempotencyConflict`, `StartBusy`, `InvalidPayload`, `InvalidArgument`,
    `UnknownApp`. Locks nothing but, for a moment, the key. Four statements for a run without key, labels or waits.
    """
    return start_many(workflow, [requested], app=app)[0]


def start_many(workflow: Workflow | Definition | str, requested: Sequence[Start], *, app: str | None = None) -> list[Run]:
    """Start many runs of one workflow, all or none, in order. Raises as `start`."""
    key = next((each.idempotency_key for each in requested if each.idempotency_key is not None), None)
    try:
        return carry_out(lambda: _start_all(workflow, requested, app), within=None if key is None else BUSY_AFTER_SECONDS)
    except WriterBusy as error:
        raise StartBusy(
            f"another connection has been writing to the SQLite file for over {BUSY_AFTER_SECONDS} s, so nobody can tell yet "
            f'whether idempotency key "{key}" is taken: try again'
        ) from error


def start_children(held: Held, checkpoint: Checkpoint, workflow: str, texts: Mapping[int, str | None]) -> dict[int, uuid.UUID]:
    """Start children of a held run, by their numbers among those of a checkpoint: in its app, with its labels, correlation, trace and priority.

    None lives longer than its parent may. Raises `StartError`, `InvalidArgument`. `texts` are their payloads, as stored.
    """
    parent = held.run
    definition, plan, code, _ = _pinned(workflow, App.objects.using(database()).get(pk=parent.app_id))
    _refuse_unavailable(plan)
    bound = None if parent.ending_as else parent.deadline_at
    started: dict[int, uuid.UUID] = {}
    for index, text in texts.items():
        wanted = Start(correlation_id=parent.correlation_id or None, priority=parent.priority)
        run = _new_run(Request(wanted, text, parent.labels, (None, None)), definition, plan, held.now)
        run.parent_id, run.parent_checkpoint, run.parent_index = parent.pk, checkpoint.pk, index
        run.depth, run.trace_id = parent.depth + 1, parent.trace_id
        run.deadline_at = min(filter(None, (run.deadline_at, bound)), default=None)
        held.work.insert([run])
        _open(Held(run, plan, held.work), definition, computed_keys(run, plan, code))
        started[index] = run.pk
    return started


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


def _start_all(workflow: Workflow | Definition | str, requested: Sequence[Start], app_name: str | None) -> list[Run]:
    requests = [checked(each) for each in requested]
    definition, plan, code, now = _pinned(workflow, app_name)
    _refuse_unavailable(plan)
    work = Work(now)
    runs = [_start_one(request, definition, plan, code, work) for request in requests]
    work.finish()
    return runs


def _refuse_unavailable(plan: Plan) -> None:
    refused = plan.unavailable()
    if refused:
        raise NotAvailable(f'workflow "{plan.name}" asks for what this version cannot do yet: {", ".join(refused)}')


def _start_one(request: Request, definition: Definition, plan: Plan, code: Workflow | None, work: Work) -> Run:
    known = _known(request, definition)
    if known is not None:
        return known
    run = _new_run(request, definition, plan, work.now)
    keys = computed_keys(run, plan, code)
    if run.idempotency_key is None:
        work.insert([run])
    elif (other := _insert_with_key(run)) is not run:
        return _same(request, other)
    _open(Held(run, plan, work), definition, keys)
    run.is_new = True
    return run


def _open(held: Held, definition: Definition, keys: Mapping[str, str]) -> None:
    """Insert what hangs on a new run, and begin it if it is due."""
    run, work = held.run, held.work
    steps = [new_step(run, definition, step, keys.get(step.name)) for step in held.plan.steps.values()]
    work.insert(steps)
    work.insert(RunLabel(run=run, name=name, value=value) for name, value in json.loads(run.labels).items())
    held.adopt(steps)
    due = run.start_at <= held.now
    work.after(lambda: announce.starting(run))
    told: dict[str, Any] = {} if due else {"at": run.start_at}
    work.record(run, "run.created", version=run.version, **told)
    if due:
        admit(held)


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
    deadline_at = None if plan.deadline_ms is None else due_at + timedelta(milliseconds=plan.deadline_ms)
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


def computed_keys(run: Run, plan: Plan, code: Workflow | None) -> dict[str, str]:
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
