"""Opening a run again by hand: retry, resolve and resume. A new episode resets some steps; state and other outputs stay.

Tokens and attempt numbers go on; budgets and the deadline start again. Only `resume` undoes somebody's pause.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from django.db.models import Q

from ..errors import UnknownStep, VerbRefused
from ..models import Lease, Step, Wait
from ..protocol.states import TERMINAL_STEP, Delivery, LeaseStatus, RunStatus, StepKind, StepStatus
from . import admission, children, payloads, progress, rewinding, runs, trail
from .locking import Held, hold
from .refusals import BY_ENGINE
from .runs import Actor
from .transactions import database, verb


@verb
def retry(run_id: uuid.UUID | str, from_step: str | None = None, actor: Actor = trail.SYSTEM) -> None:
    """Open a new episode of a run that is over or needs attention: its failed steps (and `from_step`), their descendants and
    every cancelled step begin again. A run that somebody had paused stays paused.

    Locks the run. Raises `UnknownRun`, `UnknownStep`, and `VerbRefused` where the run is still at work, or an `at_most_once` body may be
    that would begin again.
    """
    held = hold(run_id)
    _retry(held, from_step, actor)
    held.work.finish()


@verb
def resolve(run_id: uuid.UUID | str, step: str, output: Any, reason: str, actor: Actor = trail.SYSTEM) -> None:
    """End a failed or waiting step by hand, with this output; a run that ended by that failure goes on from there. One that somebody
    had paused stays paused.

    Locks the run. Raises `UnknownRun`, `UnknownStep`, `InvalidPayload`, and `VerbRefused` where the step is neither, or as `retry`.
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


@verb
def resume(run_id: uuid.UUID | str, actor: Actor = trail.SYSTEM) -> None:
    """Undo a pause; a run that needs attention is retried from its failed steps.

    Locks the run. A run that is not paused is left as it is. Raises `UnknownRun`, `RunTerminal`, and as `retry`.
    """
    held = hold(run_id)
    runs.unpause(held, actor)
    if held.run.attention:
        _retry(held, None, actor)
    held.work.finish()


def _retry(held: Held, from_step: str | None, actor: Actor) -> None:
    _refuse_live(held, "retry")
    targets = _targets(held, from_step)
    again = targets | set(_in_status(held, StepStatus.FAILED))  # a step left failed would hold its run open for ever
    names = again | {name for each in again for name in held.plan.descendants(each)} | _cancelled(held)
    _refuse_overlap(held, names)
    _reopen(held, "run.retried", by=actor[1], steps=sorted(targets))
    begin = _reset(held, names)
    progress.thaw(held)  # before anything opens: what can't open may pause the run again
    progress.open_steps(held, begin)
    runs.tell_trail(held, "RetryRun", actor, from_step=from_step or "")


def _reopen_resolved(held: Held, row: Step, told: dict[str, Any]) -> tuple[Step, list[str]]:
    """The failed step counts as open until it succeeds; other failed steps, if any, are to begin again after it.

    Returns the step's row and the names of those that nothing blocks.
    """
    _refuse_live(held, "resolve")
    others = {name for name in _in_status(held, StepStatus.FAILED) if name != row.name}
    names = others | _cancelled(held) | set(held.plan.descendants(row.name))
    _refuse_overlap(held, names)
    _reopen(held, "step.resolved", step=row.name, **told)
    begin = _reset(held, names)
    [row] = held.steps([row.name])
    held.work.move(row, status=StepStatus.BLOCKED, failure=None, ended_at=None)
    held.work.move(held.run, open_steps=held.run.open_steps + 1)
    progress.thaw(held)
    return held.steps([row.name])[0], [other.name for other in begin]


def _refuse_live(held: Held, verb_name: str) -> None:
    if not held.run.is_terminal and not held.run.attention:
        raise VerbRefused(f"run {held.run.pk} is {held.run.status}: {verb_name} is for a run that is over or needs attention")


def _refuse_overlap(held: Held, names: set[str]) -> None:
    """An `at_most_once` body that may be at work is not begun a second time beside itself (spec: engine.md "Leases")."""
    may_run = Q(live_step__isnull=False) & (~Q(status=LeaseStatus.OFFERED) | Q(may_have_run=True)) | Q(cut_at__isnull=False, acknowledged_at=None)
    leases = Lease.objects.using(database()).filter(may_run, run=held.run, delivery=Delivery.AT_MOST_ONCE)
    beside = sorted(names.intersection(leases.values_list("step__name", flat=True)))
    if beside:
        at_work = f"a body of the at_most_once step {', '.join(beside)} may still be at work"
        raise VerbRefused(f"run {held.run.pk}: {at_work}, and would begin again beside itself; wait until it has ended, then try again")


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
    at_work: dict[str, Any] = {"status": RunStatus.RUNNING, "paused_from": None, "reason": ""}
    standing = {"paused_from": RunStatus.RUNNING} if held.run.is_paused_by_hand else at_work
    children.keep_end(held)
    _keep_beginnings(held)
    held.work.move(
        held.run,
        episode=held.run.episode + 1,
        ending_as=None,
        attention=False,
        failure=None,
        ended_at=None,
        kept_since=None,
        started_at=held.now,
        deadline_at=deadline_at,
        due_at=deadline_at,
        **standing,
    )
    if was_over:
        admission.take_slot_again(held)
    held.work.record(held.run, kind, episode=held.run.episode, **told)


def _keep_beginnings(held: Held) -> None:
    """What has begun and is not reset goes on from the moment it was told (`ctx.now()`), not from that of the new episode."""
    if held.run.started_at is not None:
        begun = Step.objects.using(database()).filter(run=held.run, begun_at=None).exclude(status=StepStatus.BLOCKED)
        begun.update(begun_at=held.run.started_at)


def _reset(held: Held, names: set[str]) -> list[Step]:
    """Put steps back to their beginning, checkpoints cleared and events they had taken free again; returns those that nothing blocks."""
    held.forget_steps()
    everything = {row.name: row for row in Step.objects.using(database()).filter(run=held.run).exclude(kind=StepKind.ON_FAILURE)}
    held.adopt(everything.values())
    reset = [everything[name] for name in held.plan.steps if name in names]
    rewinding.forget(reset)
    progress.see_to_kin(held)  # the children of their checkpoints are left behind, and started anew
    for lease in Lease.objects.using(database()).select_related("step").filter(live_step__in=[row.pk for row in reset]):
        progress.cancel_lease(held, lease, BY_ENGINE)
    already_open = sum(row.status not in TERMINAL_STEP for row in everything.values() if row.name not in names)
    held.work.move(held.run, open_steps=len(reset) + already_open)
    for row in reset:
        blockers = sum(parent in names or everything[parent].status != StepStatus.SUCCEEDED for parent in held.plan.steps[row.name].after)
        _rewind(held, row, blockers)
    return [row for row in reset if row.blockers == 0]


def _rewind(held: Held, row: Step, blockers: int) -> None:
    held.work.move(row, **{**rewinding.BEGINNING, "status": StepStatus.BLOCKED, "blockers": blockers, "wait_key": _key_again(held, row)})


def _key_again(held: Held, row: Step) -> str | None:
    """The key of a wait that begins anew: its definition's; one that code gave stays, an expression's is computed from the outputs that come anew."""
    wait = held.plan.steps[row.name].wait
    if wait is None or wait.key_expr is not None:
        return None
    return row.wait_key if wait.key is None else wait.key
