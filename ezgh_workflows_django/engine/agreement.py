"""More of what must always hold: rows that say one thing twice say the same. Reads run by run, in batches, without a lock; moves nothing.

`invariants` lists these questions beside its own, and looks a second time at what they find.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import Final

from django.db.models import Model, Q

from ..definitions.plan import ON_FAILURE, Plan
from ..models import Checkpoint, Definition, JournalEntry, Lease, Run, RunLabel, Step, UsageRecord, Wait, Worker
from ..protocol.states import TERMINAL_RUN, LeaseStatus, StepKind, StepStatus
from . import catalog, totals
from .duty import BAD_ROW
from .transactions import database

BATCH: Final = 500
"""Runs, or rows, that one statement names."""

Finding = tuple[str, str, str]
"""Which invariant, where, and what is wrong."""

_ENDED_BY_FAILURE: Final = (LeaseStatus.FAILED, LeaseStatus.TIMED_OUT)


def findings(which: Q, limit: int) -> Iterator[Finding]:
    """What does not agree in the runs that `which` chooses, and in rows that point nowhere: at most `limit` of each question."""
    for question in QUESTIONS:
        yield from islice((found for runs in batches(which) for found in question(runs)), limit)
    for model, field, target in _POINTERS:
        yield from islice(_dangling(model, field, target), limit)


def labels(runs: Sequence[Run]) -> Iterator[Finding]:
    """The rows that labels are searched by are the run's labels."""
    for run in mislabelled(runs):
        yield "labels", f"run {run.pk}", f"it has the labels {run.labels} and is found by others: `workflows_check --fix` writes those anew"


def definitions(runs: Sequence[Run]) -> Iterator[Finding]:
    """I15: what a run is pinned to can be read."""
    for run in runs:
        if _plan(run) is None:
            yield "I15", f"run {run.pk}", f"its definition {run.definition_id} can't be read"


def steps_of_the_plan(runs: Sequence[Run]) -> Iterator[Finding]:
    """I15: a run has each step of its definition, and no other but its compensation."""
    names: dict[uuid.UUID, set[str]] = defaultdict(set)
    for run_id, name in Step.objects.using(database()).filter(run__in=runs).exclude(kind=StepKind.ON_FAILURE).values_list("run_id", "name"):
        names[run_id].add(name)
    for run, plan in _planned(runs):
        if names[run.pk] != set(plan.steps):
            wrong = ", ".join(sorted(names[run.pk] ^ set(plan.steps)))
            yield "I15", f"run {run.pk}", f"its steps are not those of its definition, they differ by {wrong}: cancel it and start anew"


def blockers(runs: Sequence[Run]) -> Iterator[Finding]:
    """I4: a step that is blocked counts what blocks it: parents that have not succeeded, or bodies that were cut short."""
    steps = _steps([run for run in runs if run.status not in TERMINAL_RUN])
    cut = Counter(Lease.objects.using(database()).filter(run__in=runs, cut_at__isnull=False, acknowledged_at=None).values_list("run_id", flat=True))
    for run, plan in _planned(runs):
        for step in steps[run.pk].values():
            counted = cut[run.pk] if step.name == ON_FAILURE else _unmet(plan, step, steps[run.pk])
            if step.status == StepStatus.BLOCKED and step.blockers != counted:
                yield "I4", f"step {step.name} of run {run.pk}", f"it counts {step.blockers} things that block it and has {counted}: cancel and retry the run"


def timeouts(runs: Sequence[Run]) -> Iterator[Finding]:
    """I4: a wait that times out has a timer."""
    for wait in untimed(runs):
        yield (
            "I4",
            f"step {wait.name} of run {wait.run_id}",
            f"its wait times out at {wait.timeout_at}, which nothing is due for: `--fix` mends it",
        )


def never_early(runs: Sequence[Run]) -> Iterator[Finding]:
    """I8: no sleep has ended before its time."""
    slept = Step.objects.using(database()).filter(run__in=runs, kind=StepKind.SLEEP, status=StepStatus.SUCCEEDED, started_at__isnull=False)
    by_run: dict[uuid.UUID, list[Step]] = defaultdict(list)
    for step in slept.only("run_id", "name", "started_at", "ended_at"):
        by_run[step.run_id].append(step)
    for run, plan in _planned(runs):
        for step in by_run[run.pk]:
            planned = timedelta(milliseconds=plan.steps[step.name].sleep_ms or 0) if step.name in plan.steps else timedelta(0)
            if step.started_at is not None and step.ended_at is not None and step.ended_at - step.started_at < planned:
                yield "I8", f"step {step.name} of run {run.pk}", f"it slept {step.ended_at - step.started_at}, not {planned}"


def budgets(runs: Sequence[Run]) -> Iterator[Finding]:
    """I11: what a step's budgets have spent is borne out by its leases, failures and reclaims each by their own."""
    counts = Counter(Lease.objects.using(database()).filter(run__in=runs).values_list("step_id", "status"))
    for step in Step.objects.using(database()).filter(Q(failures__gt=0) | Q(reclaims__gt=0), run__in=runs):
        failed = sum(counts[step.pk, status] for status in _ENDED_BY_FAILURE)
        reclaimed = counts[step.pk, LeaseStatus.RECLAIMED]
        if step.failures > failed or step.reclaims > reclaimed:
            said = f"it counts {step.failures} failures and {step.reclaims} reclaims, its leases {failed} and {reclaimed}"
            yield "I11", f"step {step.name} of run {step.run_id}", said


def ended_once(runs: Sequence[Run]) -> Iterator[Finding]:
    """I3: within an episode a step ends once."""
    ends: Counter[tuple[uuid.UUID, str]] = Counter()
    entries = JournalEntry.objects.using(database()).filter(run__in=runs, kind__in=[*_NEW_EPISODE, *_ENDS]).order_by("run_id", "seq")
    for run_id, kind, step in entries.values_list("run_id", "kind", "step"):
        if kind in _NEW_EPISODE:
            ends = Counter({key: count for key, count in ends.items() if key[0] != run_id})
            continue
        ends[run_id, step] += 1
        if ends[run_id, step] == 2:
            yield "I3", f"step {step} of run {run_id}", "it ended more than once in one episode"


def usage(runs: Sequence[Run]) -> Iterator[Finding]:
    """What a run and its steps say they used and what that cost is the sum of what was recorded."""
    using = [run for run in runs if run.usage is not None]
    recorded: dict[tuple[uuid.UUID, str], list[totals.Total]] = defaultdict(list)
    for record in UsageRecord.objects.using(database()).filter(run__in=using).order_by("pk") if using else ():
        for step in ("", record.step):
            recorded[record.run_id, step].append(totals.priced((record.model, record.unit), record.amount, record.cost))
    steps = Step.objects.using(database()).filter(run__in=using, usage__isnull=False).only("run_id", "name", "usage") if using else ()
    for run_id, step, text in (*((run.pk, "", run.usage) for run in using), *((step.run_id, step.name, step.usage) for step in steps)):
        if set(totals.read(text)) != set(totals.merged(recorded[run_id, step])):
            where = f"step {step} of run {run_id}" if step else f"run {run_id}"
            yield "usage", where, "what it used and what that cost is not the sum of its usage records"


QUESTIONS: Final[tuple[Callable[[Sequence[Run]], Iterator[Finding]], ...]] = (
    labels,
    definitions,
    steps_of_the_plan,
    blockers,
    timeouts,
    never_early,
    budgets,
    ended_once,
    usage,
)


def mislabelled(runs: Sequence[Run]) -> list[Run]:
    """Those of these runs whose label rows are not their labels."""
    rows: dict[uuid.UUID, dict[str, str]] = defaultdict(dict)
    for run_id, name, value in RunLabel.objects.using(database()).filter(run__in=runs).values_list("run_id", "name", "value"):
        rows[run_id][name] = value
    return [run for run in runs if rows[run.pk] != json.loads(run.labels)]


def untimed(runs: Sequence[Run]) -> list[Wait]:
    """The open waits of these runs that have a timeout no timer stands for."""
    rows = Wait.objects.using(database()).filter(run__in=runs, timeout_at__isnull=False)
    return list(rows.filter(step__status=StepStatus.WAITING, step__timer_at=None))


def batches(which: Q) -> Iterator[list[Run]]:
    """Runs in the order of their ids, a batch a statement: nothing is held between two."""
    rows = Run.objects.using(database()).filter(which).order_by("pk").only("id", "status", "labels", "version", "definition_id", "usage")
    batch = list(rows[:BATCH])
    while batch:
        yield batch
        batch = list(rows.filter(pk__gt=batch[-1].pk)[:BATCH])


_NEW_EPISODE: Final = ("run.retried", "step.resolved")
_ENDS: Final = ("step.succeeded", "step.failed")

_POINTERS: Final[tuple[tuple[type[Model], str, type[Model]], ...]] = (
    (Lease, "step_id", Step),
    (Lease, "worker_id", Worker),
    (Wait, "step_id", Step),
    (Checkpoint, "step_id", Step),
    (Step, "definition_id", Definition),
)
"""Columns that point at a row without a constraint of the database, beside those that name a run."""


def _planned(runs: Sequence[Run]) -> Iterator[tuple[Run, Plan]]:
    """Runs with what they are pinned to, where that can be read; each definition is read once."""
    for run in runs:
        plan = _plan(run)
        if plan is not None:
            yield run, plan


def _plan(run: Run) -> Plan | None:
    try:
        return catalog.plan_of(run)
    except BAD_ROW:
        return None


def _steps(runs: Sequence[Run]) -> Mapping[uuid.UUID, dict[str, Step]]:
    steps: dict[uuid.UUID, dict[str, Step]] = defaultdict(dict)
    for step in Step.objects.using(database()).filter(run__in=runs).only("run_id", "name", "kind", "status", "blockers"):
        steps[step.run_id][step.name] = step
    return steps


def _unmet(plan: Plan, step: Step, steps: Mapping[str, Step]) -> int:
    parents = plan.steps[step.name].after if step.name in plan.steps else ()
    return sum(parent not in steps or steps[parent].status != StepStatus.SUCCEEDED for parent in parents)


def _dangling(model: type[Model], field: str, target: type[Model]) -> Iterator[Finding]:
    """Rows whose column names a row that is not there, looked for a batch at a time."""
    rows = model._default_manager.using(database()).order_by("pk").values_list("pk", field)
    batch = list(rows[:BATCH])
    while batch:
        there = set(target._default_manager.using(database()).filter(pk__in={pointed for _, pointed in batch}).values_list("pk", flat=True))
        for pk, pointed in batch:
            if pointed not in there:
                yield "I15", f"{model.__name__.lower()} {pk}", f"it belongs to {target.__name__.lower()} {pointed}, which is gone"
        batch = list(rows.filter(pk__gt=batch[-1][0])[:BATCH])
