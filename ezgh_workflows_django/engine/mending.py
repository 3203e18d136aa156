"""What `workflows_check --fix` may do: put marks right that follow from what is stored, and delete rows whose run is gone.

Never ends a run or a lease by itself: where something was lost, it makes the row due, and maintenance decides by the rules.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from django.db.models import Exists, F, Model, OuterRef

from ..models import Checkpoint, Event, JournalEntry, Lease, Receipt, Run, RunLabel, Step, Wait
from ..protocol.states import TERMINAL_RUN, RunStatus, StepStatus
from . import progress
from .clock import Now
from .locking import hold
from .transactions import QUERY_KEYS, batched, database, verb

_HANGING_ON_RUNS: tuple[type[Model], ...] = (Step, Lease, JournalEntry, Checkpoint, Wait, Receipt, RunLabel, Event)


def mend() -> list[str]:
    """Mend what can be mended safely; says what was done, a line each. Each part is a transaction of its own."""
    done = {f"deleted {{}} rows of {model.__name__} whose run is gone": _delete_strays(model) for model in _HANGING_ON_RUNS}
    done["took {} steps out of the claims' sight that may not be claimed"] = _hide_unclaimable()
    done["let {} runs' ready steps be claimed again"] = sum(_show_ready(run_id) for run_id in _runs_with_hidden_steps())
    done["made {} live leases due that nothing would have looked at"] = _make_leases_due()
    done["made {} queued runs due that nothing would have started"] = _make_runs_due()
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
    return Run.objects.using(database()).filter(status=RunStatus.QUEUED, due_at=None).update(due_at=F("start_at"))
