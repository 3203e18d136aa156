"""The step of a run's compensation, `on_failure`: made when its run first falls, begun anew when a later episode falls again.

Every function here works under the run's lock; when the step becomes ready is `progress`'s to say.
"""

from __future__ import annotations

from ..definitions.plan import ON_FAILURE
from ..models import Lease, Step
from ..protocol.states import StepKind, StepStatus
from . import rewinding
from .locking import Held
from .transactions import database


def unacknowledged(held: Held) -> int:
    """How many bodies that were cut short may still be at work: compensation waits for them."""
    held.work.flush()
    return Lease.objects.using(database()).filter(run=held.run, cut_at__isnull=False, acknowledged_at=None).count()


def arm(held: Held, input_text: str | None, *, blockers: int) -> Step:
    """The step, with nothing stored of it, blocked by so many bodies; it is the one open step of its run."""
    held.work.move(held.run, open_steps=1)
    step = held.find(ON_FAILURE)
    if step is None:
        step = _new_step(held)
    else:  # of an episode before: what that one stored is no part of this one's
        rewinding.forget([step])
    held.adopt([step])
    begun_at = None if held.run.started_at is not None else held.now  # one moment for all its passes, though its run never began
    held.work.move(step, **{**rewinding.BEGINNING, "status": StepStatus.BLOCKED, "input": input_text, "blockers": blockers, "begun_at": begun_at})
    return step


def _new_step(held: Held) -> Step:
    sibling = Step.objects.using(database()).filter(run=held.run).order_by("position")[0]
    return Step.objects.using(database()).create(
        run=held.run,
        revision_id=sibling.revision_id,
        definition_id=sibling.definition_id,
        name=ON_FAILURE,
        position=len(held.plan.steps),
        kind=StepKind.ON_FAILURE,
        status=StepStatus.BLOCKED,
        partition=sibling.partition,
        blockers=1,
    )
