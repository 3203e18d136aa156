"""How a run moves through its graph: a step ends, its successors open, the run ends with its last step.

Every function here works on a run whose lock is held and writes through its `Work`; none opens a transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ..conf import app_settings
from ..definitions.plan import ON_FAILURE, PlanStep
from ..errors import ExpressionError, InvalidPayload
from ..models import Lease, Step, Wait
from ..protocol import codec
from ..protocol.failures import Failure
from ..protocol.states import TERMINAL_STEP, FailureClass, LeaseStatus, RunStatus, StepKind, StepStatus
from . import announce, compensation, inputs, slots, waits
from .locking import Held
from .transactions import database

PRIORITY_WEIGHT = timedelta(seconds=60)
COMPENSATION_LIMIT = timedelta(hours=24)


def succeed(held: Held, step: Step, output: str | None, by: Lease | None = None) -> None:
    """A step has its output: it ends, what waited for it opens, and with the last open step the run succeeds.

    `by` is the lease that brought the output, None for a wait, a sleep or an operator.
    """
    _close(held, step, StepStatus.SUCCEEDED, by=by, output=output)
    if step.kind == StepKind.ON_FAILURE:
        return _finish(held, _ending(held))
    return open_steps(held, _unblocked(held, step))


def open_steps(held: Held, steps: Iterable[Step]) -> None:
    """Open steps, and whatever those of them open that are over at once; ends the run with its last open step. A run that is not let in opens none."""
    if not slots.is_admitted(held.run):
        return end_if_done(held)  # they open once it is let in
    opening = deque(step.name for step in steps)
    while opening:
        [step] = held.steps([opening.popleft()])
        try:
            arrived, output = open_step(held, step)
        except (ExpressionError, InvalidPayload) as error:
            fail(held, step, Failure(class_=FailureClass.PERMANENT, message=str(error)))
            if held.run.attention:  # the run goes on but for this step
                continue
            return None
        if arrived:
            _close(held, step, StepStatus.SUCCEEDED, output=output)
            opening.extend(child.name for child in _unblocked(held, step))
    return end_if_done(held)


def end_if_done(held: Held) -> None:
    """The run succeeds when no step is open and none waits for a person."""
    if held.run.open_steps == 0 and not held.run.attention and not held.run.is_terminal:
        _finish(held, RunStatus.SUCCEEDED)


def fail(held: Held, step: Step, failure: Failure, by: Lease | None = None) -> None:
    """A step has failed for good: the run parks for an operator, compensates, or is over."""
    told = replace(failure, step=step.name, attempt=step.attempts, attempts=step.attempts)
    _close(held, step, StepStatus.FAILED, by=by, failure=told)
    held.work.after(lambda: announce.step_failed(held.run, step.name, told))
    if step.kind == StepKind.ON_FAILURE:
        return _finish(held, _ending(held))
    if held.plan.steps[step.name].retry.exhausted == "pause":
        return _park(held, told)
    return fall(held, RunStatus.FAILED, told, inputs.input_text(held, step))


def fall(held: Held, ending_as: RunStatus, failure: Failure, input_text: str | None) -> None:
    """The run will end as `ending_as`: everything else in it is cut short, and `on_failure` runs if there is one."""
    held.work.move(held.run, failure=_text(failure), ending_as=ending_as)
    is_over = held.plan.on_failure is None or _has_no_slot(held)
    # A body hears that its run is over only where it is: a run that compensates still has something to claim.
    cut_short(held, "run" if is_over and ending_as is RunStatus.TIMED_OUT else "engine")
    if is_over:
        return _finish(held, ending_as)
    unacknowledged = compensation.unacknowledged(held)
    _enter_failing(held)  # before the compensation is made ready: a run that is paused offers nothing, and it may have been
    step = compensation.arm(held, input_text, blockers=unacknowledged)
    if unacknowledged == 0:
        make_ready(held, step, held.now)
    held.work.record(held.run, "run.failing", ending_as=ending_as, failure=failure.to_json(), unacknowledged=unacknowledged)
    return None


def cancel(held: Held, reason: str) -> None:
    """The run is over by somebody's wish; a run that was failing ends as it was to end."""
    cancel_all([held], reason)


def cancel_all(several: Sequence[Held], reason: str) -> None:
    """As `cancel`, for runs that share one `Work`: in as many statements as one takes."""
    if not several:
        return
    _cut_all_short(several, "run")
    for held in several:
        held.work.move(held.run, reason=reason[:500])
        _finish(held, _ending(held) if held.run.ending_as else RunStatus.CANCELLED)


def open_step(held: Held, step: Step) -> tuple[bool, str | None]:
    """Open a step whose parents have succeeded. Says whether it is over at once (a wait whose event is there), and its output.

    Raises `ExpressionError` or `InvalidPayload`, which fail the step for good.
    """
    planned = held.plan.steps[step.name]
    stored = inputs.stored_input(held, planned)
    if step.kind == StepKind.WAIT:
        return _open_wait(held, step, planned, stored)
    if step.kind == StepKind.SLEEP:
        wake_at = held.now + timedelta(milliseconds=planned.sleep_ms or 0)
        held.work.move(step, status=StepStatus.SLEEPING, input=stored, timer_at=wake_at, started_at=held.now)
        held.work.record(held.run, "step.sleeping", step=step.name, until=wake_at)
    else:
        make_ready(held, step, held.now, input=stored)
    return False, None


def make_ready(held: Held, step: Step, available_at: datetime, **fields: object) -> None:
    """Let a step be claimed from `available_at` on; a paused run's step waits for its resume."""
    order = None if held.run.is_paused else claim_order(available_at, held.run.priority)
    held.work.move(step, status=StepStatus.READY, available_at=available_at, claim_order=order, timer_at=None, **fields)
    held.work.wake(held.run.app_id)


def claim_order(available_at: datetime, priority: int) -> datetime:
    """The stored key claims are ordered by: a point of priority is worth a minute of waiting, so old work always moves."""
    return available_at - priority * PRIORITY_WEIGHT


def freeze(held: Held) -> None:
    """Take every ready step of the run out of the claims' sight; leases at work go on."""
    held.forget_steps()
    Step.objects.using(database()).filter(run=held.run, claim_order__isnull=False).update(claim_order=None)


def thaw(held: Held) -> None:
    """Let the run's ready steps be claimed again, but where it is still paused."""
    if held.run.is_paused:
        return
    held.forget_steps()
    for step in Step.objects.using(database()).filter(run=held.run, status=StepStatus.READY, claim_order=None):
        held.work.move(step, claim_order=claim_order(step.available_at or held.now, held.run.priority))
    held.work.wake(held.run.app_id)


def acknowledge(held: Held, lease: Lease) -> None:
    """A body that was cut short has really ended, or is past its window: compensation has one less to wait for."""
    held.work.move(lease, acknowledged_at=held.now, due_at=None)
    if held.run.ending_as is None or held.run.is_terminal:
        return
    step = held.find(ON_FAILURE)
    if step is None or step.status != StepStatus.BLOCKED:
        return
    held.work.move(step, blockers=step.blockers - 1)
    if step.blockers == 0:
        make_ready(held, step, held.now)


def cut_short(held: Held, by: str) -> None:
    """Cancel every step of the run that is not over, and its leases. `by` says who did it: the run's end, or the engine."""
    _cut_all_short([held], by)


def _cut_all_short(several: Sequence[Held], by: str) -> None:
    """As `cut_short`. The steps go first: that waits for claims in flight, whose leases the next statement then sees."""
    for held in several:
        held.forget_steps()
    runs = {held.run.pk: held for held in several}
    rows = Step.objects.using(database()).filter(run__in=runs).exclude(status__in=TERMINAL_STEP)
    rows.update(status=StepStatus.CANCELLED, claim_order=None, timer_at=None, parked=None, ended_at=several[0].now)
    Wait.objects.using(database()).filter(run__in=runs).delete()
    for held in several:
        held.work.move(held.run, open_steps=0)
        see_to_kin(held)
    for lease in Lease.objects.using(database()).select_related("step").filter(run__in=runs, live_step__isnull=False):
        cancel_lease(runs[lease.run_id], lease, by)


def see_to_kin(held: Held) -> None:
    """Something of the run is over: its children may be left behind, its parent may wait. Only marked here, and seen to after the commit."""
    from . import kin  # it ends runs, and so stands on this module

    run = held.run
    if run.has_children or (run.parent_checkpoint is not None and run.is_terminal):
        held.work.move(run, kin_at=held.now)
        held.work.after_together(kin.after_end, run)


def end_lease(held: Held, lease: Lease, status: LeaseStatus, by: str, *, cut: bool, **fields: object) -> None:
    """End a lease. Where it is `cut` its body may still be at work: it is to be acknowledged, or its window to pass."""
    window_ends = held.now + app_settings.LEASE_TTL + app_settings.RECOVERY_WINDOW if cut else None
    cut_at = held.now if cut else None
    held.work.move(lease, status=status, ended_by=by, live_step=None, ended_at=held.now, cut_at=cut_at, due_at=window_ends, **fields)


def cancel_lease(held: Held, lease: Lease, by: str) -> None:
    """End a lease before its body has ended; one that was only offered has no body to wait for."""
    end_lease(held, lease, LeaseStatus.CANCELLED, by, cut=lease.status != LeaseStatus.OFFERED or lease.may_have_run)
    held.work.record(held.run, "lease.cancelled", step=lease.step.name, attempt=lease.attempt, worker=lease.worker_name)


def live_again(held: Held, lease: Lease) -> None:
    """The worker of an orphaned lease has come back within its window: it is a started lease again."""
    if lease.status != LeaseStatus.ORPHANED:
        return
    expires_at = held.now + app_settings.LEASE_TTL
    due_at = expires_at if lease.timeout_at is None else min(expires_at, lease.timeout_at)
    held.work.move(lease, status=LeaseStatus.STARTED, orphaned_at=None, expires_at=expires_at, due_at=due_at)
    held.work.record(held.run, "lease.recovered", step=lease.step.name, attempt=lease.attempt, worker=lease.worker_name)


def _unblocked(held: Held, step: Step) -> Iterable[Step]:
    """The steps this one was the last to block, counted down in their rows."""
    children = [child for child in held.steps(held.plan.children(step.name)) if child.status == StepStatus.BLOCKED]
    for child in children:
        held.work.move(child, blockers=child.blockers - 1)
    return [child for child in children if child.blockers == 0]


def _open_wait(held: Held, step: Step, planned: PlanStep, stored: str | None) -> tuple[bool, str | None]:
    key = waits.key_of(held, step, planned)
    held.work.flush()  # the wait points at the step's row, which a start has not inserted yet
    wait = waits.open_wait(held, step, planned, key)
    # Due at once: the next tick looks a second time, after this commit, for an event that came while neither side saw the other.
    held.work.move(step, status=StepStatus.WAITING, input=stored, wait_key=key, started_at=held.now, timer_at=held.now)
    held.work.record(held.run, "wait.opened", step=step.name, event=wait.event, key=key, until=wait.timeout_at)
    event = waits.arrival(held, wait)
    return event is not None, event.payload if event is not None else None


def _close(held: Held, step: Step, status: StepStatus, *, by: Lease | None = None, output: str | None = None, failure: Failure | None = None) -> None:
    ended = {"output": output} if failure is None else {"failure": _text(failure)}
    held.work.move(step, status=status, ended_at=held.now, claim_order=None, timer_at=None, parked=None, **ended)
    held.work.move(held.run, open_steps=max(0, held.run.open_steps - 1))
    see_to_kin(held)
    told: dict[str, Any] = {} if failure is None else {"failure": failure.to_json()}
    held.work.record(held.run, f"step.{status}", step=step.name, attempt=step.attempts or None, worker=by.worker_name if by else "", **told)


def _finish(held: Held, status: RunStatus) -> None:
    held.work.move(held.run, status=status, ended_at=held.now, kept_since=held.now, due_at=None, paused_from=None, attention=False)
    held.work.record(held.run, f"run.{status}")
    see_to_kin(held)
    _see_to_slot(held)
    if held.run.occurrence is not None:
        from . import backlog  # it starts runs, and so stands on this module

        held.work.after(lambda: backlog.after_end(held.run))
    held.work.after(lambda: announce.run_finished(held.run))


def _see_to_slot(held: Held) -> None:
    """Somebody may wait for the slot that the run had. Only marked here, and seen to after the commit."""
    from . import admission  # it lets runs begin, and so stands on this module

    if held.run.bucket is not None:
        held.work.move(held.run, slot_at=held.now)
        held.work.after_together(admission.after_commit, held.run)


def _has_no_slot(held: Held) -> bool:
    """Whether the run's compensation would hold a slot, or take a turn, that it has not been given: then nothing of this episode has begun either.

    Where nothing has to be given, every run that fails or times out compensates, begun or not (spec: engine.md "States").
    """
    return slots.is_limited(held.run) and not slots.is_admitted(held.run)


def _park(held: Held, failure: Failure) -> None:
    """The step's retries are spent and its policy asks for a person: the run waits with the step failed."""
    before = held.run.paused_from if held.run.attention else held.run.status
    held.work.move(held.run, status=RunStatus.PAUSED, paused_from=before, attention=True, failure=_text(failure))
    held.work.record(held.run, "run.needs_attention", step=failure.step or "", failure=failure.to_json())
    freeze(held)


def _enter_failing(held: Held) -> None:
    """An operator's pause outlasts a failure; a run that had only needed attention goes on to compensate."""
    if held.run.is_paused_by_hand:
        held.work.move(held.run, paused_from=RunStatus.FAILING)
    else:
        held.work.move(held.run, status=RunStatus.FAILING, paused_from=None)
    held.work.move(held.run, attention=False, due_at=held.now + COMPENSATION_LIMIT)


def _ending(held: Held) -> RunStatus:
    """How a run that fails was to end."""
    return RunStatus(held.run.ending_as or RunStatus.FAILED)


def _text(failure: Failure) -> str:
    return codec.dumps(failure.to_json(), limit=None, what="failure")
