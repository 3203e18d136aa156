"""The verbs an operator or a caller has for a run: cancel, pause and its undoing; and the duty of deadlines."""

from __future__ import annotations

import uuid
from datetime import datetime

from ..errors import RunTerminal, UnknownRun
from ..models import App, Run
from ..protocol.failures import Failure
from ..protocol.states import TERMINAL_RUN, FailureClass, RunStatus
from . import duty, progress, trail
from .locking import Held, hold
from .transactions import database, verb

Actor = tuple[str, str]
"""Who did it, for the trail: a kind (`user`, `key`, `system`) and a name."""


def get(run_id: uuid.UUID | str) -> Run:
    """A run's row. Raises `UnknownRun`."""
    run = Run.objects.using(database()).filter(pk=run_id).first()
    if run is None:
        raise UnknownRun(f"there is no run {run_id}")
    return run


@verb
def cancel(run_id: uuid.UUID | str, reason: str = "", actor: Actor = trail.SYSTEM) -> RunStatus:
    """End a run; returns the status it is left in, which for a run that was failing is how it was to end anyway.

    Locks the run. Cancelling a cancelled run changes nothing. Raises `UnknownRun`, and `RunTerminal` where it is over otherwise:
    the answer always agrees with the final state.
    """
    held = hold(run_id)
    if held.run.status == RunStatus.CANCELLED:
        return RunStatus.CANCELLED
    if held.run.is_terminal:
        raise RunTerminal(f"run {run_id} is {held.run.status}: it is too late to cancel it")
    held.work.record(held.run, "run.cancel_requested", reason=reason[:500], by=actor[1])
    progress.cancel(held, reason)
    tell_trail(held, "CancelRun", actor, reason=reason[:500])
    held.work.finish()
    return RunStatus(held.run.status)


@verb
def pause(run_id: uuid.UUID | str, reason: str = "", actor: Actor = trail.SYSTEM) -> None:
    """Let a run offer nothing: bodies at work finish, what they make ready waits, the deadline goes on.

    Locks the run. Pausing a paused run changes nothing. Raises `UnknownRun`, `RunTerminal`.
    """
    held = hold(run_id)
    if held.run.is_terminal:
        raise RunTerminal(f"run {run_id} is {held.run.status}: there is nothing to pause")
    if held.run.is_paused:
        return
    due_at = held.run.deadline_at if held.run.status == RunStatus.QUEUED else held.run.due_at
    held.work.move(held.run, status=RunStatus.PAUSED, paused_from=held.run.status, reason=reason[:500], due_at=due_at)
    held.work.record(held.run, "run.paused", reason=reason[:500], by=actor[1])
    progress.freeze(held)
    tell_trail(held, "PauseRun", actor, reason=reason[:500])
    held.work.finish()


def unpause(held: Held, actor: Actor = trail.SYSTEM) -> None:
    """Undo `pause`: what was made ready meanwhile is offered, but where the run needs attention, too, which takes a `retry`.

    Works under the run's lock. A run that nobody paused is left as it is. Raises `RunTerminal`.
    """
    if held.run.is_terminal:
        raise RunTerminal(f"run {held.run.pk} is {held.run.status}: there is nothing to resume")
    if not held.run.is_paused_by_hand:
        return
    if held.run.attention:
        held.work.move(held.run, paused_from=RunStatus.RUNNING, reason="")
    else:
        _unpause(held)
    held.work.record(held.run, "run.resumed", by=actor[1])
    tell_trail(held, "ResumeRun", actor)


def expire(held: Held) -> None:
    """The run is past its deadline: it compensates and is timed out."""
    message = f"the run passed its deadline, {held.run.deadline_at:%Y-%m-%d %H:%M:%S} UTC"
    progress.fall(held, RunStatus.TIMED_OUT, Failure(class_=FailureClass.DEADLINE, message=message), held.run.payload)


def deadline_binds(held: Held) -> bool:
    """Whether the run's own deadline still counts: compensation has a bound of its own."""
    return held.run.ending_as is None


def is_past_deadline(held: Held, moment: datetime) -> bool:
    """Whether the run's own deadline was due at that moment or before, and counts."""
    return held.run.deadline_at is not None and held.run.deadline_at <= moment and deadline_binds(held)


def run_once(now: datetime, limit: int) -> int:
    """The duty of deadlines: end up to `limit` runs that are past theirs; returns how many were dealt with."""
    due = Run.objects.using(database()).filter(due_at__lte=now).exclude(status=RunStatus.QUEUED).order_by("due_at")
    return duty.work_off(due, limit, _act, lambda run_id, _: _end_all_the_same(run_id, now), run="pk")


def _act(held: Held, _: uuid.UUID) -> None:
    if held.run.due_at is None or held.run.due_at > held.now:
        return
    if held.run.is_terminal:  # no verb leaves such a row: it would be due for ever
        held.work.move(held.run, due_at=None)
        return
    if deadline_binds(held):
        from . import due_order  # it stands on the duties that stand on this module

        due_order.meet_deadline(held)
        return
    held.work.record(held.run, "on_failure.abandoned", hours=progress.COMPENSATION_LIMIT.total_seconds() / 3600)
    progress.cancel(held, held.run.reason)


def _end_all_the_same(run_id: uuid.UUID, now: datetime) -> None:
    """What was due before the deadline can't be dealt with: that stops itself only, and keeps no run past its deadline."""

    def end(held: Held, _: uuid.UUID) -> None:
        if not held.run.is_terminal and is_past_deadline(held, held.now):
            expire(held)

    duty.each([(run_id, run_id)], end, lambda _: None)
    _postpone(run_id, now)


def _unpause(held: Held) -> None:
    status = RunStatus(held.run.paused_from or RunStatus.RUNNING)
    due_at = held.run.start_at if status is RunStatus.QUEUED else held.run.due_at
    held.work.move(held.run, status=status, paused_from=None, reason="", due_at=due_at)
    progress.thaw(held)


def _postpone(run_id: uuid.UUID, now: datetime) -> None:
    at_work = Run.objects.using(database()).exclude(status__in=[RunStatus.QUEUED, *TERMINAL_RUN])
    duty.move_free(at_work.filter(pk=run_id, due_at__lte=now), due_at=duty.later(now))


def tell_trail(held: Held, action: str, actor: Actor, **data: str) -> None:
    """Only what a person or a key did is in the trail; the engine's own moves are in the journal."""
    if actor == trail.SYSTEM:
        return
    project_id = App.objects.using(database()).values_list("project_id", flat=True).get(pk=held.run.app_id)
    trail.record(project_id, held.now, action, actor=actor, target=("run", str(held.run.pk)), **data)
