"""The duty of timers: sleeps that end, waits that time out or look once more for their event.

A timer fires once, late rather than never. Where two things of a run are due, the earlier due time wins.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Final

from ..models import Event, Step, Wait
from ..protocol.failures import Failure
from ..protocol.states import FailureClass, StepStatus
from . import duty, inputs, parking, progress, runs, waits
from .locking import Held
from .transactions import database

_TIMED: Final = (StepStatus.SLEEPING, StepStatus.WAITING)


def run_once(now: datetime, limit: int) -> int:
    """Fire up to `limit` timers that are due, the earliest first; returns how many were dealt with."""
    due = Step.objects.using(database()).timers_due(now)
    return duty.work_off(due, limit, fire, lambda run_id, name: _postpone(run_id, name, now), key="name")


def fire(held: Held, name: str) -> None:
    """A sleep ends, a wait looks for its event or times out, if that step's timer is due; what the deadline was due before is the deadline's."""
    step = held.find(name)
    if step is None or step.timer_at is None or step.timer_at > held.now:
        return None
    if held.run.is_terminal or step.status not in _TIMED:  # no verb leaves such a row: nothing is to be waited for
        return held.work.move(step, timer_at=None)
    if runs.is_past_deadline(held, step.timer_at):
        from . import due_order  # it fires timers, and so stands on this module

        return due_order.meet_deadline(held)
    if step.status == StepStatus.SLEEPING and not step.parked:
        return progress.succeed(held, step, inputs.input_text(held, step))
    see_to_wait(held, step)
    return None


def look_again(held: Held, name: str) -> None:
    """Let a step look for its event, if it still waits."""
    step = held.find(name)
    if step is not None and step.status in _TIMED:
        see_to_wait(held, step)


def see_to_wait(held: Held, step: Step) -> list[Event]:
    """An open wait takes its event if one is there, times out if it is time, or goes on waiting until its timeout.

    Returns the events that were taken: a parked body may have several waits.
    """
    if step.parked:
        return parking.look(held, step)
    wait = Wait.objects.using(database()).filter(step=step).first()
    if wait is None:
        return []
    event = waits.arrival(held, wait)
    if event is not None:
        progress.succeed(held, step, event.payload)
    elif wait.timeout_at is None or wait.timeout_at > held.now or runs.is_past_deadline(held, wait.timeout_at):
        held.work.move(step, timer_at=wait.timeout_at)
    else:
        _time_out(held, step, wait)
    return [] if event is None else [event]


def postpone_wait(wait: Wait, now: datetime) -> None:
    """Let the duty of timers see to an open wait that could not be resumed; not later than its timeout."""
    look_at = min(filter(None, (duty.later(now), wait.timeout_at)))
    duty.move_free(Step.objects.using(database()).filter(pk=wait.step_id, status=StepStatus.WAITING), timer_at=look_at)


def _time_out(held: Held, step: Step, wait: Wait) -> None:
    wait.delete(using=database())
    held.work.record(held.run, "wait.timed_out", step=step.name, event=wait.event, key=wait.key)
    planned = held.plan.steps[step.name].wait
    if planned is not None and planned.on_timeout == "continue":
        return progress.succeed(held, step, "null")
    keyed = f' with key "{wait.key}"' if wait.key else ""
    message = f'no "{wait.event}"{keyed} came until {wait.timeout_at:%Y-%m-%d %H:%M:%S} UTC'
    return progress.fail(held, step, Failure(class_=FailureClass.TIMEOUT, message=message))


def _postpone(run_id: uuid.UUID, name: str, now: datetime) -> None:
    step = Step.objects.using(database()).filter(run=run_id, name=name, status__in=_TIMED, timer_at__lte=now)
    duty.move_free(step, timer_at=duty.later(now))
