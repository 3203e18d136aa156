"""Moving a run to another stored version of its workflow: what is over stays, what has not begun is the new version's.

The move is refused whole where the new version does not fit what has happened; a dry run says so and changes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..definitions.graph import Workflow
from ..definitions.plan import ON_FAILURE, Plan
from ..errors import UnknownWorkflow, VerbRefused
from ..models import Definition, Lease, Run, Step
from ..protocol.states import TERMINAL_STEP, StepStatus
from . import catalog, progress, replaying, runs, start_keys, starts, tenancy, trail
from .locking import Held, hold
from .runs import Actor
from .transactions import database, verb


@dataclass(frozen=True, slots=True)
class Migration:
    """What moving a run to another version means. With `faults` it can't be; `notes` are what nobody could judge."""

    run: str
    before: str
    after: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_possible(self) -> bool:
        """Whether the run can be moved."""
        return not self.faults

    def __str__(self) -> str:
        changes = [f"adds step {name}" for name in self.added] + [f"drops step {name}" for name in self.removed]
        return "\n".join([f"run {self.run}: {self.before} → {self.after}", *changes, *self.notes, *(f"refused: {fault}" for fault in self.faults)])


def dry_run(run_id: uuid.UUID | str, version: str) -> Migration:
    """What `migrate` would do; changes and locks nothing. Raises `UnknownRun`, and `UnknownWorkflow` where that version is not stored.

    Where this process has the code of that version, what bodies have stored is replayed against it.
    """
    return _judge(runs.get(run_id), version)[0]


def migrate(run_id: uuid.UUID | str, version: str, actor: Actor = trail.SYSTEM) -> Migration:
    """Move a run to another stored version of its workflow; its next steps, retries and policies are that version's.

    Its deadline stays. Locks the run. Raises as `dry_run`, and `VerbRefused` with every fault where the version does not fit.
    """
    judged, tokens = _judge(runs.get(run_id), version)  # users' code is replayed here, without a lock
    if judged.faults:
        raise VerbRefused(f"run {run_id} can't be moved to version {version}: {'; '.join(judged.faults)}")
    return _migrate(run_id, version, tokens, actor)


@verb
def _migrate(run_id: uuid.UUID | str, version: str, tokens: Mapping[str, int], actor: Actor) -> Migration:
    held = hold(run_id)
    definition = _definition(held.run, version)
    plan = catalog.plan(definition.version, definition.pk)
    rows = _rows(held.run)
    faults = _faults(held.run, plan, rows)
    if not faults and any(rows[name].token != token for name, token in tokens.items() if name in rows):
        faults = ["it has gone on since it was looked at: try again"]
    if faults:
        raise VerbRefused(f"run {run_id} can't be moved to version {version}: {'; '.join(faults)}")
    moved = _migration(held.run, plan, rows, [], [])
    if moved.before != moved.after:
        _move(held, definition, plan, rows)
        held.work.record(held.run, "run.migrated", before=moved.before, after=moved.after, added=list(moved.added), removed=list(moved.removed), by=actor[1])
        _open(Held(held.run, plan, held.work))
        runs.tell_trail(held, "MigrateRun", actor, before=moved.before, after=moved.after)
        held.work.finish()
    return moved


def _judge(run: Run, version: str) -> tuple[Migration, Mapping[str, int]]:
    """What a move would be, and the tokens of the run's steps as they were looked at."""
    definition = _definition(run, version)
    plan = catalog.plan(definition.version, definition.pk)
    rows = _rows(run)
    faults = _faults(run, plan, rows)
    notes: list[str] = []
    if not faults:
        replayed, notes = _replay(run, plan, rows)
        faults += replayed
    return _migration(run, plan, rows, faults, notes), {name: row.token for name, row in rows.items()}


def _rows(run: Run) -> dict[str, Step]:
    return {row.name: row for row in Step.objects.using(database()).filter(run=run)}


def _definition(run: Run, version: str) -> Definition:
    found = Definition.objects.using(database()).select_related("app").filter(app=run.app_id, workflow=run.workflow, version=version).first()
    if found is None:
        stored = Definition.objects.using(database()).filter(app=run.app_id, workflow=run.workflow).order_by("-pk").values_list("version", flat=True)
        raise UnknownWorkflow(f"workflow {run.workflow} has no stored version {version}; it has {', '.join(stored[:10])}")
    return found


def _migration(run: Run, plan: Plan, rows: Mapping[str, Step], faults: list[str], notes: list[str]) -> Migration:
    there = set(rows) - {ON_FAILURE}
    return Migration(
        run=str(run.pk),
        before=run.version,
        after=plan.version,
        added=tuple(name for name in plan.steps if name not in there),
        removed=tuple(sorted(there - set(plan.steps))),
        faults=tuple(faults),
        notes=tuple(notes),
    )


def _faults(run: Run, plan: Plan, rows: Mapping[str, Step]) -> list[str]:
    """Everything that keeps a run from being of that version."""
    if run.is_terminal:
        return [f"it is {run.status}: only a run that is not over can be moved"]
    faults: list[str] = []
    cut = set(Lease.objects.using(database()).filter(run=run, cut_at__isnull=False, acknowledged_at=None).values_list("step_id", flat=True))
    for name, row in rows.items():
        faults += _step_faults(row, plan, is_cut=row.pk in cut) if name != ON_FAILURE else _compensation_faults(row, plan)
    for planned in plan.steps.values():
        begun = rows.get(planned.name)
        if begun is not None and _has_begun(begun) and begun.status != StepStatus.CANCELLED:  # that one begins anew, after all its parents
            late = [parent for parent in planned.after if parent not in rows or rows[parent].status != StepStatus.SUCCEEDED]
            faults += [f"step {planned.name} has begun, and there would come after {parent}, which has not succeeded" for parent in late]
    return faults


def _step_faults(row: Step, plan: Plan, *, is_cut: bool) -> list[str]:
    planned = plan.steps.get(row.name)
    if not _has_begun(row):
        at_work = planned is None and is_cut  # its lease goes with the step, and compensation would not wait for the body
        return [f"a body of step {row.name} was cut short and may still be at work, and that version has none of that name: wait for it"] if at_work else []
    if planned is None:
        return [f"step {row.name} has begun ({row.status}), and that version has none of that name"]
    if planned.kind != row.kind:
        return [f"step {row.name} has begun as a {row.kind}, and is a {planned.kind} there"]
    return [f"step {row.name} is in a worker's hands: wait for it, or pause the run first"] if row.status == StepStatus.LEASED else []


def _has_begun(row: Step) -> bool:
    """Whether anything came of the step yet: one that is ready or cancelled, and that no worker ever had, is as good as blocked."""
    return row.status != StepStatus.BLOCKED and not (row.status in (StepStatus.READY, StepStatus.CANCELLED) and row.token == 0)


def _compensation_faults(row: Step, plan: Plan) -> list[str]:
    open_ = row.status not in TERMINAL_STEP
    return ["its on_failure is at work, and that version has none"] if open_ and plan.on_failure is None else []


def _replay(run: Run, plan: Plan, rows: Mapping[str, Step]) -> tuple[list[str], list[str]]:
    """What the code of that version makes of what bodies have stored: faults, and notes where this process does not have the code."""
    stored = [row for row in rows.values() if row.has_checkpoints and row.status not in TERMINAL_STEP]
    if not stored:
        return [], []
    workflow = _code(run, plan)
    if workflow is None:
        return [], [f"not replayed: this process does not have revision {plan.revision} of workflow {plan.name}"]
    faults = [replaying.fault(replaying.recording(run, row), workflow) for row in stored]
    return [fault for fault in faults if fault is not None], []


def _move(held: Held, definition: Definition, plan: Plan, rows: Mapping[str, Step]) -> None:
    """Pin the run and its steps to the new version; steps that have not begun come and go."""
    held.work.move(held.run, definition_id=definition.pk, version=definition.version)
    for row in rows.values():
        if row.status == StepStatus.READY and not _has_begun(row) and row.name != ON_FAILURE:
            held.work.move(row, status=StepStatus.BLOCKED, claim_order=None, available_at=None, input=None)
    held.work.flush()
    gone = [row.pk for name, row in rows.items() if name not in plan.steps and name != ON_FAILURE]
    Step.objects.using(database()).filter(pk__in=gone).delete()
    keys = _keys(held.run, plan)
    added = [starts.new_step(held.run, definition, planned, keys.get(planned.name)) for name, planned in plan.steps.items() if name not in rows]
    held.work.insert(added)
    if held.run.ending_as is not None:  # what was open in it has been cancelled: this, too, begins only with a retry
        for row in added:
            held.work.move(row, status=StepStatus.CANCELLED, ended_at=held.now)
    for name, row in rows.items():
        planned = plan.steps.get(name) or (plan.on_failure if name == ON_FAILURE else None)
        if planned is not None:
            anew: Any = {} if _has_begun(row) or name == ON_FAILURE else {"kind": planned.kind, "wait_key": keys.get(name)}
            held.work.move(row, revision_id=definition.revision_id, definition_id=definition.pk, position=planned.position, **anew)
    both = {**{row.name: row for row in added}, **rows}
    for planned in plan.steps.values():
        row = both[planned.name]
        if row.status == StepStatus.BLOCKED:
            held.work.move(row, blockers=sum(both[parent].status != StepStatus.SUCCEEDED for parent in planned.after))
    still_open = sum(both[name].status not in TERMINAL_STEP for name in [*plan.steps, *([ON_FAILURE] if ON_FAILURE in rows else [])])
    held.work.move(held.run, open_steps=still_open)
    held.forget_steps()


def _keys(run: Run, plan: Plan) -> dict[str, str]:
    return start_keys.wait_keys(run, plan, _code(run, plan))


def _code(run: Run, plan: Plan) -> Workflow | None:
    """This process's code of that version. In another project's runs the same names mean other code, which is not here."""
    return catalog.own_code(plan) if tenancy.is_own(run.app_id) else None


def _open(held: Held) -> None:
    """Steps that nothing blocks open, in a run that is at work."""
    if held.run.started_at is None or held.run.ending_as is not None:
        return
    ready = [row for row in held.steps(held.plan.steps) if row.status == StepStatus.BLOCKED and row.blockers == 0]
    progress.open_steps(held, ready)
