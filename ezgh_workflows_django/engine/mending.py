"""What `workflows_check --fix` may do: put marks right that follow from what is stored, and delete rows whose run is gone.

Never ends a run or a lease by itself: where something was lost, it makes the row due, and maintenance decides by the rules.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import timedelta

from django.db.models import Count, Exists, F, Model, OuterRef, Q

from ..models import Checkpoint, Event, JournalEntry, Lease, Receipt, Run, RunLabel, SpanRecord, Step, UsageRecord, Wait
from ..protocol import codec
from ..protocol.states import TERMINAL_RUN, TERMINAL_STEP, RunStatus, StepStatus
from . import agreement, progress, schedule_agreement, slot_agreement
from .clock import Now
from .locking import hold
from .transactions import QUERY_KEYS, batched, database, verb

_HANGING_ON_RUNS: tuple[type[Model], ...] = (Step, Lease, JournalEntry, Checkpoint, Wait, Receipt, RunLabel, Event, UsageRecord, SpanRecord)


_AT_WORK = ~Q(status__in=TERMINAL_RUN)


def mend() -> list[str]:
    """Mend what can be mended safely; says what was done, a line each. Each part is a transaction of its own."""
    done = {f"deleted {{}} rows of {model.__name__} whose run is gone": _delete_strays(model) for model in _HANGING_ON_RUNS}
    done["took {} steps out of the claims' sight that may not be claimed"] = _hide_unclaimable()
    done["let {} runs' ready steps be claimed again"] = sum(_show_ready(run_id) for run_id in _runs_with_hidden_steps())
    done["made {} live leases due that nothing would have looked at"] = _make_leases_due()
    done["made {} queued runs due that nothing would have started"] = _make_runs_due()
    done["made {} runs in line be looked at that nobody would have let in"] = slot_agreement.mend()
    done["made {} waits due that nothing would have timed out"] = sum(map(_time_waits, agreement.batches(_AT_WORK)))
    done["made {} sleeps due that nothing would have ended"] = _make_sleeps_due()
    done["made {} steps look again for children that are over"] = _look_for_children()
    done["made {} schedules due that nothing would have looked at"] = schedule_agreement.mend()
    done["counted the open steps of {} runs anew"] = sum(_count_open(run_id) for run_id in _miscounted())
    done["wrote the labels of {} runs anew"] = sum(map(_write_labels, agreement.batches(Q())))
    return [text.format(count) for text, count in done.items() if count]


@verb
def _delete_strays(model: type[Model]) -> int:
    rows = model._default_manager.using(database()).filter(run__isnull=False)
    missing = rows.filter(~Exists(Run.objects.using(database()).filter(pk=OuterRef("run_id"))))
    keys = list(missing.values_list("pk", flat=True))
    for chunk in batched(keys, QUERY_KEYS):
        model._default_manager.using(database()).filter(pk__in=chunk)._raw_delete(database())
    return len(keys)


@verb
def _hide_unclaimable() -> int:
    claimable = Step.objects.using(database()).filter(claim_order__isnull=False)
    not_ready = claimable.exclude(status=StepStatus.READY).values_list("pk", flat=True)
    not_offered = claimable.filter(run__status__in=[RunStatus.PAUSED, RunStatus.QUEUED, *TERMINAL_RUN]).values_list("pk", flat=True)
    keys = list({*not_ready, *not_offered})
    return Step.objects.using(database()).filter(pk__in=keys).update(claim_order=None)


def _runs_with_hidden_steps() -> Iterable[uuid.UUID]:
    ready = Step.objects.using(database()).filter(status=StepStatus.READY, claim_order=None, run__status__in=[RunStatus.RUNNING, RunStatus.FAILING])
    return set(ready.values_list("run_id", flat=True))


@verb
def _show_ready(run_id: uuid.UUID) -> int:
    held = hold(run_id)
    if held.run.status not in (RunStatus.RUNNING, RunStatus.FAILING):
        return 0
    progress.thaw(held)
    held.work.finish()
    return 1


@verb
def _make_leases_due() -> int:
    return Lease.objects.using(database()).filter(live_step__isnull=False, due_at=None).update(due_at=Now())


@verb
def _make_runs_due() -> int:
    return Run.objects.using(database()).filter(status=RunStatus.QUEUED, due_at=None, queue_order=None).update(due_at=F("start_at"))


@verb
def _time_waits(runs: Sequence[Run]) -> int:
    waits = agreement.untimed(runs)
    for wait in waits:
        Step.objects.using(database()).filter(pk=wait.step_id, status=StepStatus.WAITING, timer_at=None).update(timer_at=wait.timeout_at)
    return len(waits)


def _make_sleeps_due() -> int:
    sleeping = Step.objects.using(database()).filter(status=StepStatus.SLEEPING, timer_at=None)
    return sum(_make_sleep_due(run_id, name) for run_id, name in sleeping.values_list("run_id", "name"))


@verb
def _make_sleep_due(run_id: uuid.UUID, name: str) -> int:
    """At its own time: a sleep never ends early, not even a mended one."""
    held = hold(run_id)
    [step] = held.steps([name])
    if step.status != StepStatus.SLEEPING or step.timer_at is not None:
        return 0
    if step.parked:  # a body that is parked: its own look knows what is due
        held.work.move(step, timer_at=held.now)
        held.work.finish()
        return 1
    held.work.move(step, timer_at=(step.started_at or held.now) + timedelta(milliseconds=held.plan.steps[name].sleep_ms or 0))
    held.work.finish()
    return 1


@verb
def _look_for_children() -> int:
    """A step that waits for children looks again by itself, with the next tick."""
    over = Run.objects.using(database()).filter(parent_checkpoint=OuterRef("pk"), ended_at=None)
    done = Checkpoint.objects.using(database()).filter(~Exists(over), met_at=None, children__gt=0, step__status=StepStatus.WAITING)
    steps = Step.objects.using(database()).filter(pk__in=list(done.values_list("step_id", flat=True)), status=StepStatus.WAITING)
    return steps.filter(parked__isnull=False).update(timer_at=Now())


def _miscounted() -> list[uuid.UUID]:
    counted = Count("steps", filter=~Q(steps__status__in=TERMINAL_STEP))
    runs = Run.objects.using(database()).filter(_AT_WORK).annotate(counted=counted).exclude(counted=F("open_steps"))
    return list(runs.values_list("pk", flat=True))


@verb
def _count_open(run_id: uuid.UUID) -> int:
    held = hold(run_id)
    count = Step.objects.using(database()).filter(run=run_id).exclude(status__in=TERMINAL_STEP).count()
    if held.run.is_terminal or held.run.open_steps == count:
        return 0
    held.work.move(held.run, open_steps=count)
    progress.end_if_done(held)
    held.work.finish()
    return 1


@verb
def _write_labels(runs: Sequence[Run]) -> int:
    wrong = agreement.mislabelled(runs)
    RunLabel.objects.using(database()).filter(run__in=wrong).delete()
    rows = [RunLabel(run=run, name=name, value=value) for run in wrong for name, value in codec.loads(run.labels).items()]
    RunLabel.objects.using(database()).bulk_create(rows)
    return len(wrong)
