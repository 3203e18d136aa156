"""Opening a run again by hand: retry and resolve. A new episode resets some steps; state and other outputs stay.

Tokens and attempt numbers go on; budgets and the deadline start again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from ..errors import UnknownStep, VerbRefused
from ..models import Checkpoint, Lease, Receipt, Step, Wait
from ..protocol.states import TERMINAL_STEP, LeaseStatus, RunStatus, StepKind, StepStatus
from . import admission, payloads, progress, runs, trail
from .locking import Held, hold
from .refusals import BY_ENGINE
from .runs import Actor
from .transactions import database, verb


@verb
def retry(run_id: uuid.UUID | str, from_step: str | None = None, actor: Actor = trail.SYSTEM) -> None:
    """Open a new episode of a run that is over or needs attention: its failed steps (and `from_step`), their descendants and
    every cancelled step begin again.

    Locks the run. Raises `UnknownRun`, `UnknownStep`, and `VerbRefused` where the run is still at work.
    """
    held = hold(run_id)
    _refuse_live(held, "retry")
    targets = _targets(held, from_step)
    _reopen(held, "run.retried", by=actor[1], steps=sorted(targets))
    again = targets | set(_in_status(held, StepStatus.FAILED))  # a step left failed would hold its run open for ever
    begin = _reset(held, again | {name for each in again for name in held.plan.descendants(each)} | _cancelled(held))
    progress.thaw(held)  # before anything opens: what can't open may pause the run again
    progress.open_steps(held, begin)
    runs.tell_trail(held, "RetryRun", actor, from_step=from_step or "")
    held.work.finish()


@verb
def resolve(run_id: uuid.UUID | str, step: str, output: Any, reason: str, actor: Actor = trail.SYSTEM) -> None:
    """End a failed or waiting step by hand, with this output; a run that ended by that failure goes on from there.

    Locks the run. Raises `UnknownRun`, `UnknownStep`, `InvalidPayload`, and `VerbRefused` where the step is neither.
    """
    text = payloads.to_text(output, "output")
    held = hold(run_id)
    [row] = held.steps([step])
    if row.kind == StepKind.ON_FAILURE or row.status not in (StepStatus.FAILED, StepStatus.WAITING):
        raise VerbRefused(f"step {step} of run {run_id} is {row.status}: only a failed or a waiting step can be resolved")
    told: dict[str, Any] = {"reason": reason[:500], "by": actor[1]}
    begin: Sequence[str] = ()
    if row.status == StepStatus.WAITING:
        Wait.objects.using(database()).filter(step=row).delete()
        held.work.record(held.run, "step.resolved", step=step, **told)
    else:
        row, begin = _reopen_resolved(held, row, told)
    progress.succeed(held, row, text)
    progress.open_steps(held, [other for other in held.steps(begin) if other.status == StepStatus.BLOCKED])
    runs.tell_trail(held, "ResolveStep", actor, step=step, reason=reason[:500])
    held.work.finish()


def resume(run_id: uuid.UUID | str, actor: Actor = trail.SYSTEM) -> None:
    """Undo a pause; a run that needs attention is retried from its failed steps. Raises as `unpause` and `retry`."""
    if not runs.unpause(run_id, actor):
        retry(run_id, actor=actor)


def _reopen_resolved(held: Held, row: Step, told: dict[str, Any]) -> tuple[Step, list[str]]:
    """The failed step counts as open until it succeeds; other failed steps, if any, are to begin again after it.

    Returns the step's row and the names of those that nothing blocks.
    """
    _refuse_live(held, "resolve")
    _reopen(held, "step.resolved", step=row.name, **told)
    others = {name for name in _in_status(held, StepStatus.FAILED) if name != row.name}
    begin = _reset(held, others | _cancelled(held) | set(held.plan.descendants(row.name)))
    [row] = held.steps([row.name])
    held.work.move(row, status=StepStatus.BLOCKED, failure=None, ended_at=None)
    held.work.move(held.run, open_steps=held.run.open_steps + 1)
    progress.thaw(held)
    return held.steps([row.name])[0], [other.name for other in begin]


def _refuse_live(held: Held, verb_name: str) -> None:
    if not held.run.is_terminal and not held.run.attention:
        raise VerbRefused(f"run {held.run.pk} is {held.run.status}: {verb_name} is for a run that is over or needs attention")


def _targets(held: Held, from_step: str | None) -> set[str]:
    if from_step is None:
        failed = set(_in_status(held, StepStatus.FAILED))
        if not failed and not _cancelled(held):
            raise VerbRefused(f"run {held.run.pk} {held.run.status}: nothing in it failed; name the step to begin again from")
        return failed
    if from_step not in held.plan.steps:
        raise UnknownStep(f'run {held.run.pk} has no step "{from_step}"; its steps are {", ".join(held.plan.steps)}')
    return {from_step}


def _cancelled(held: Held) -> set[str]:
    return set(_in_status(held, StepStatus.CANCELLED))


def _in_status(held: Held, status: StepStatus) -> Iterable[str]:
    rows = Step.objects.using(database()).filter(run=held.run, status=status).exclude(kind=StepKind.ON_FAILURE)
    return rows.values_list("name", flat=True)


def _reopen(held: Held, kind: str, **told: Any) -> None:
    deadline_ms = held.plan.deadline_ms
    deadline_at = None if deadline_ms is None else held.now + timedelta(milliseconds=deadline_ms)
    was_over = held.run.is_terminal
    held.work.move(
        held.run,
        status=RunStatus.RUNNING,
        episode=held.run.episode + 1,
        paused_from=None,
        ending_as=None,
        attention=False,
        failure=None,
        reason="",
        ended_at=None,
        started_at=held.now,
        deadline_at=deadline_at,
        due_at=deadline_at,
    )
    if was_over:
        admission.take_slot_again(held)
    held.work.record(held.run, kind, episode=held.run.episode, **told)


def _reset(held: Held, names: set[str]) -> list[Step]:
    """Put steps back to their beginning, checkpoints cleared and events they had taken free again; returns those that nothing blocks."""
    held.forget_steps()
    everything = {row.name: row for row in Step.objects.using(database()).filter(run=held.run).exclude(kind=StepKind.ON_FAILURE)}
    held.adopt(everything.values())
    reset = [everything[name] for name in held.plan.steps if name in names]
    keys = [row.pk for row in reset]
    Checkpoint.objects.using(database()).filter(step__in=keys).delete()
    progress.see_to_kin(held)  # the children of these checkpoints are left behind, and started anew
    Receipt.objects.using(database()).filter(step__in=keys).delete()
    Wait.objects.using(database()).filter(step__in=keys).delete()
    for lease in Lease.objects.using(database()).filter(live_step__in=keys):
        progress.end_lease(held, lease, LeaseStatus.CANCELLED, BY_ENGINE, cut=True)
    already_open = sum(row.status not in TERMINAL_STEP for row in everything.values() if row.name not in names)
    held.work.move(held.run, open_steps=len(reset) + already_open)
    for row in reset:
        blockers = sum(parent in names or everything[parent].status != StepStatus.SUCCEEDED for parent in held.plan.steps[row.name].after)
        _rewind(held, row, blockers)
    return [row for row in reset if row.blockers == 0]


def _rewind(held: Held, row: Step, blockers: int) -> None:
    wait = held.plan.steps[row.name].wait
    computed_again = wait is not None and wait.key_expr is not None  # it may name outputs that come anew
    held.work.move(
        row,
        status=StepStatus.BLOCKED,
        blockers=blockers,
        wait_key=None if computed_again else row.wait_key,
        failures=0,
        reclaims=0,
        input=None,
        output=None,
        failure=None,
        claim_order=None,
        available_at=None,
        timer_at=None,
        parked=None,
        is_resuming=False,
        has_checkpoints=False,
        started_at=None,
        ended_at=None,
    )
