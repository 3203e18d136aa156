"""What must always hold, as questions to the database: each function is one invariant of testing.md and gives what breaks it.

Pure reads in bounded batches, no locks: safe beside live traffic. What is found is looked at a second time, so that a
transaction caught half-way through two reads is no violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from django.db.models import Count, Exists, F, Max, Model, OuterRef, Q, QuerySet

from ..conf import app_settings
from ..models import Checkpoint, Event, JournalEntry, Lease, Receipt, Run, RunLabel, SpanRecord, Step, UsageRecord, Wait
from ..protocol.states import LIVE_LEASE, TERMINAL_RUN, TERMINAL_STEP, CheckpointKind, LeaseStatus, RunStatus, StepKind, StepStatus
from . import agreement, payloads, schedule_agreement, slot_agreement, tenancy
from .transactions import database

LIMIT = 100
"""How many violations of one kind are told."""

SLACK = timedelta(seconds=10)
"""How late maintenance may be before something that is due counts as forgotten: a few ticks."""


RECENT = timedelta(days=1)
"""Runs that ended before this long ago are not counted through again: what was well then stays well."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is broken: which invariant, where, and what to do."""

    invariant: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant} {self.where}: {self.text}"


Check = Callable[[datetime], Iterator[Violation]]


def violations() -> list[Violation]:
    """Everything that is broken now; empty is well."""
    first = _all()
    return [each for each in _all() if each in first] if first else []


def _all() -> list[Violation]:
    _, now = tenancy.app_now(None)
    return [found for check in CHECKS for found in check(now)]


def one_live_lease(now: datetime) -> Iterator[Violation]:
    """I1: at most one live lease per step, and it is the step's current one; a leased step has one."""
    live = Lease.objects.using(database()).filter(live_step__isnull=False)
    for lease in live.exclude(live_step=F("step_id"))[:LIMIT]:
        yield Violation("I1", f"lease of step {lease.step_id}", "its live mark names another step")
    for lease in live.exclude(status__in=LIVE_LEASE)[:LIMIT]:
        yield Violation("I1", f"lease of step {lease.step_id}", f"it is {lease.status} and still marked live")
    for lease in Lease.objects.using(database()).filter(status__in=LIVE_LEASE, live_step=None)[:LIMIT]:
        yield Violation("I1", f"lease of step {lease.step_id}", f"it is {lease.status} and not marked live")
    for lease in live.exclude(token=F("step__token"))[:LIMIT]:
        yield Violation("I1", f"lease of step {lease.step_id}", f"its token {lease.token} is not its step's")
    leased = Step.objects.using(database()).filter(status=StepStatus.LEASED)
    for step in leased.filter(~Exists(live.filter(live_step=OuterRef("pk"))))[:LIMIT]:
        yield Violation("I1", f"step {step.name} of run {step.run_id}", "it is leased and has no live lease")
    for lease in live.exclude(step__status=StepStatus.LEASED)[:LIMIT]:
        yield Violation("I1", f"lease of step {lease.step_id}", "it is live and its step is not leased")


def tokens_rise(now: datetime) -> Iterator[Violation]:
    """I1: no two leases of a step have one token, and none is above its step's."""
    doubles = Lease.objects.using(database()).filter(_recent(now)).values("step_id", "token").annotate(n=Count("pk")).filter(n__gt=1)
    for row in doubles[:LIMIT]:
        yield Violation("I1", f"step {row['step_id']}", f"token {row['token']} was given {row['n']} times")
    for lease in Lease.objects.using(database()).filter(token__gt=F("step__token"))[:LIMIT]:
        yield Violation("I1", f"lease of step {lease.step_id}", f"token {lease.token} is above its step's")


def ended_is_ended(now: datetime) -> Iterator[Violation]:
    """I2: a terminal run has no live lease, no claimable or timed step, no open wait, nothing due."""
    over = Run.objects.using(database()).filter(status__in=TERMINAL_RUN)
    parts: dict[str, QuerySet[Model]] = {
        "a live lease": Lease.objects.using(database()).filter(run=OuterRef("pk"), live_step__isnull=False),
        "a step that is not over": Step.objects.using(database()).filter(run=OuterRef("pk")).exclude(status__in=TERMINAL_STEP),
        "a claimable step": Step.objects.using(database()).filter(run=OuterRef("pk"), claim_order__isnull=False),
        "an open wait": Wait.objects.using(database()).filter(run=OuterRef("pk")),
    }
    for what, rows in parts.items():
        for run in over.filter(Exists(rows))[:LIMIT]:
            yield Violation("I2", f"run {run.pk}", f"it is {run.status} and has {what}")
    for run in over.filter(Q(ended_at=None) | Q(due_at__isnull=False))[:LIMIT]:
        yield Violation("I2", f"run {run.pk}", f"it is {run.status} and has no end, or something due")


def claimable_is_ready(now: datetime) -> Iterator[Violation]:
    """I2: only a ready step of a run that is at work can be claimed; a timer and an open wait belong to a step that waits or sleeps."""
    claimable = Step.objects.using(database()).filter(claim_order__isnull=False)
    for step in claimable.exclude(status=StepStatus.READY)[:LIMIT]:
        yield Violation("I2", f"step {step.name} of run {step.run_id}", f"it is {step.status} and claimable")
    for step in claimable.filter(run__status__in=[RunStatus.PAUSED, RunStatus.QUEUED])[:LIMIT]:
        yield Violation("I2", f"step {step.name} of run {step.run_id}", "it is claimable while its run offers nothing")
    timed = Step.objects.using(database()).filter(timer_at__isnull=False).exclude(status__in=[StepStatus.WAITING, StepStatus.SLEEPING])
    for step in timed[:LIMIT]:
        yield Violation("I2", f"step {step.name} of run {step.run_id}", f"it is {step.status} and has a timer")
    for wait in Wait.objects.using(database()).exclude(step__status__in=[StepStatus.WAITING, StepStatus.SLEEPING])[:LIMIT]:
        yield Violation("I2", f"step {wait.step_id} of run {wait.run_id}", f"its wait for {wait.event} is open, and it does not wait")


def recorded_once(now: datetime) -> Iterator[Violation]:
    """I3: a step's success is journaled once in an episode, and a completed lease's step succeeded."""
    succeeded = JournalEntry.objects.using(database()).filter(kind="step.succeeded")
    doubles = succeeded.filter(_recent(now), run__episode=1).values("run_id", "step").annotate(n=Count("pk")).filter(n__gt=1)
    for row in doubles[:LIMIT]:
        yield Violation("I3", f"step {row['step']} of run {row['run_id']}", f"its success was recorded {row['n']} times")
    completed = Lease.objects.using(database()).filter(status=LeaseStatus.COMPLETED, token=F("step__token"), run__episode=1).filter(_recent(now))
    for lease in completed.exclude(step__status=StepStatus.SUCCEEDED)[:LIMIT]:
        yield Violation("I3", f"step {lease.step_id} of run {lease.run_id}", "its last lease completed and it has not succeeded")


def reason_to_move(now: datetime) -> Iterator[Violation]:
    """I4: every run that is not over has a mover: a ready step, live lease, timer, open wait, its time, or an operator."""
    steps = Step.objects.using(database()).filter(run=OuterRef("pk"))
    movers = (
        Exists(steps.filter(claim_order__isnull=False))
        | Exists(steps.filter(timer_at__isnull=False))
        | Exists(Lease.objects.using(database()).filter(run=OuterRef("pk"), live_step__isnull=False))
        | Exists(Lease.objects.using(database()).filter(run=OuterRef("pk"), cut_at__isnull=False, acknowledged_at=None, due_at__isnull=False))
        | Exists(Wait.objects.using(database()).filter(run=OuterRef("pk")))
        | Exists(Run.objects.using(database()).filter(Q(ended_at=None) | Q(kin_at__isnull=False), parent=OuterRef("pk")))
    )
    at_work = Run.objects.using(database()).filter(status__in=[RunStatus.RUNNING, RunStatus.FAILING])
    for run in at_work.filter(~movers)[:LIMIT]:
        yield Violation("I4", f"run {run.pk}", f"it is {run.status} and nothing will move it: cancel it, or retry it after `cancel`")
    ready = Step.objects.using(database()).filter(status=StepStatus.READY, run__status__in=[RunStatus.RUNNING, RunStatus.FAILING])
    for step in ready.filter(claim_order=None)[:LIMIT]:
        yield Violation("I4", f"step {step.name} of run {step.run_id}", "it is ready, and no claim can see it")
    for run in Run.objects.using(database()).filter(status=RunStatus.QUEUED, due_at=None, queue_order=None)[:LIMIT]:
        yield Violation("I4", f"run {run.pk}", "it is queued and nothing is due")
    waiting = Step.objects.using(database()).filter(status=StepStatus.WAITING)
    for_children = Checkpoint.objects.using(database()).filter(step=OuterRef("pk"), met_at=None, kind__in=[CheckpointKind.CHILD, CheckpointKind.BATCH])
    for step in waiting.filter(~Exists(Wait.objects.using(database()).filter(step=OuterRef("pk"))), ~Exists(for_children))[:LIMIT]:
        yield Violation("I4", f"step {step.name} of run {step.run_id}", "it is waiting and has no open wait")
    for step in Step.objects.using(database()).filter(status=StepStatus.SLEEPING, timer_at=None)[:LIMIT]:
        yield Violation("I4", f"step {step.name} of run {step.run_id}", "it is sleeping and has no timer")
    for lease in Lease.objects.using(database()).filter(live_step__isnull=False, due_at=None)[:LIMIT]:
        yield Violation("I4", f"lease of step {lease.step_id}", "it is live and nothing is due")


def nothing_overdue(now: datetime) -> Iterator[Violation]:
    """I5, I8: what is due is seen to within a few ticks; a lease at the latest one TTL after a gap."""
    late = now - SLACK - app_settings.LEASE_TTL
    for lease in Lease.objects.using(database()).filter(due_at__lt=late)[:LIMIT]:
        yield Violation("I5", f"lease of step {lease.step_id}", f"it has been due since {lease.due_at}: does maintenance run?")
    for step in Step.objects.using(database()).filter(timer_at__lt=late)[:LIMIT]:
        yield Violation("I8", f"step {step.name} of run {step.run_id}", f"its timer has been due since {step.timer_at}: does maintenance run?")
    for run in Run.objects.using(database()).filter(due_at__lt=late)[:LIMIT]:
        yield Violation("I8", f"run {run.pk}", f"it has been due since {run.due_at}: does maintenance run?")
    for run in Run.objects.using(database()).filter(kin_at__lt=late)[:LIMIT]:
        yield Violation("I13", f"run {run.pk}", f"its kin have been to be seen to since {run.kin_at}: does maintenance run?")
    for found in islice(slot_agreement.late(late), LIMIT):
        yield Violation(*found)
    for found in schedule_agreement.overdue(late, LIMIT):
        yield Violation(*found)


def no_orphans(now: datetime) -> Iterator[Violation]:
    """I13: an ended parent leaves no child at work, but for the time the cascade takes; no parent waits for children that are over.

    A child that was retried after its parent's end was not left by it.
    """
    over = Run.objects.using(database()).filter(pk=OuterRef("parent"), ended_at__isnull=False, kin_at=None)
    left = Run.objects.using(database()).filter(Exists(over), ended_at=None).exclude(episode__gt=1, started_at__gt=F("parent__ended_at"))
    for child in left[:LIMIT]:
        yield Violation("I13", f"run {child.pk}", f"it is {child.status}, its parent {child.parent_id} is over and nothing will end it: cancel it")
    children = Run.objects.using(database()).filter(parent_checkpoint=OuterRef("pk"))
    waited_for = Checkpoint.objects.using(database()).filter(met_at=None, children__gt=0, step__status=StepStatus.WAITING)
    waited_for = waited_for.exclude(step__timer_at__lte=now)  # it is about to look
    stuck = waited_for.filter(~Exists(children.filter(ended_at=None)), ~Exists(children.filter(kin_at__isnull=False)))
    for row in stuck.select_related("step")[:LIMIT]:
        if row.name in (payloads.from_text(row.step.parked) or {}).get("names", ()):
            yield Violation("I13", f"step {row.step.name} of run {row.run_id}", f"it waits for the children {row.name}, which are over: `--fix` mends it")


def parked_is_parked(now: datetime) -> Iterator[Violation]:
    """I2: only a step that waits or sleeps is parked; only one that is ready, or just offered, is about to go on."""
    parked = Step.objects.using(database()).filter(parked__isnull=False)
    for step in parked.exclude(status__in=[StepStatus.WAITING, StepStatus.SLEEPING])[:LIMIT]:
        yield Violation("I2", f"step {step.name} of run {step.run_id}", f"it is {step.status} and parked")
    for row in Checkpoint.objects.using(database()).filter(~Q(due_at=None), ~Q(met_at=None))[:LIMIT]:
        yield Violation("I3", f"checkpoint {row.name} of run {row.run_id}", "it is met and still has something due")
    missing = Checkpoint.objects.using(database()).filter(step__has_checkpoints=False)
    for row in missing[:LIMIT]:
        yield Violation("I3", f"checkpoint {row.name} of run {row.run_id}", "its step says it has none, so no worker is given it")


def events_once(now: datetime) -> Iterator[Violation]:
    """I7: an event is taken in its scope, by a wait of its name, and not before it came."""
    receipts = Receipt.objects.using(database()).select_related("event")
    for receipt in receipts.filter(event__run__isnull=False).exclude(event__run=F("run"))[:LIMIT]:
        yield Violation("I7", f"run {receipt.run_id}", f"it took event {receipt.event_id}, a signal to another run")
    for receipt in receipts.filter(event__app__isnull=False, event__run=None).exclude(event__app=F("run__app"))[:LIMIT]:
        yield Violation("I7", f"run {receipt.run_id}", f"it took event {receipt.event_id} of another app")
    for receipt in receipts.exclude(event__project=F("run__app__project"))[:LIMIT]:
        yield Violation("I7", f"run {receipt.run_id}", f"it took event {receipt.event_id} of another project")


def nothing_stray(now: datetime) -> Iterator[Violation]:
    """I10, I15: rows that hang on runs and steps have them; no constraint of the database says so (engine.md)."""
    for model in (Step, Lease, JournalEntry, Checkpoint, Wait, Receipt, RunLabel, UsageRecord, SpanRecord):
        rows = model._default_manager.using(database())
        missing = rows.filter(~Exists(Run.objects.using(database()).filter(pk=OuterRef("run_id"))))
        for run_id in missing.values_list("run_id", flat=True).distinct()[:LIMIT]:
            yield Violation("I10", f"run {run_id}", f"it is gone, and rows of {model.__name__} are left: `workflows_check --fix` deletes them")
    signals = Event.objects.using(database()).filter(run__isnull=False)
    for run_id in signals.filter(~Exists(Run.objects.using(database()).filter(pk=OuterRef("run_id")))).values_list("run_id", flat=True).distinct()[:LIMIT]:
        yield Violation("I10", f"run {run_id}", "it is gone, and signals to it are left: `workflows_check --fix` deletes them")
    for run in Run.objects.using(database()).filter(~Exists(Step.objects.using(database()).filter(run=OuterRef("pk"))))[:LIMIT]:
        yield Violation("I15", f"run {run.pk}", "it has no steps")


def journal_without_gaps(now: datetime) -> Iterator[Violation]:
    """The journal of a run counts 1 to `journal_seq`."""
    entries = JournalEntry.objects.using(database()).filter(_recent(now)).values("run_id")
    counted = entries.annotate(n=Count("pk"), last=Max("seq"), told=Max("run__journal_seq"))
    for row in counted.filter(~Q(n=F("last")) | ~Q(last=F("told")))[:LIMIT]:
        yield Violation("I12", f"run {row['run_id']}", f"its journal has {row['n']} entries, the last is {row['last']}, the run says {row['told']}")


def counts_agree(now: datetime) -> Iterator[Violation]:
    """I11 and the counters of rows: open steps, attempts and budgets agree with what they count."""
    open_steps = Count("steps", filter=~Q(steps__status__in=TERMINAL_STEP))
    live = Run.objects.using(database()).exclude(status__in=TERMINAL_RUN).annotate(counted=open_steps)
    for pk, told, counted in live.exclude(counted=F("open_steps")).values_list("pk", "open_steps", "counted")[:LIMIT]:
        yield Violation("I11", f"run {pk}", f"it counts {told} open steps and has {counted}")
    for step in Step.objects.using(database()).filter(attempts__gt=F("token"))[:LIMIT]:
        yield Violation("I11", f"step {step.name} of run {step.run_id}", f"{step.attempts} attempts of {step.token} leases")
    for step in Step.objects.using(database()).filter(reclaims__gt=app_settings.MAX_RECLAIMS + 1).exclude(status=StepStatus.FAILED)[:LIMIT]:
        yield Violation("I11", f"step {step.name} of run {step.run_id}", f"{step.reclaims} reclaims and not failed")
    blocked = Step.objects.using(database()).filter(status=StepStatus.BLOCKED, blockers=0, run__status=RunStatus.RUNNING)
    for step in blocked.exclude(kind=StepKind.ON_FAILURE)[:LIMIT]:
        yield Violation("I4", f"step {step.name} of run {step.run_id}", "nothing blocks it and it is not open")


def schedules_once(now: datetime) -> Iterator[Violation]:
    """I9: a schedule fires once per occurrence, and each of its occurrences is looked at (`schedule_agreement`)."""
    for found in schedule_agreement.findings(now, LIMIT):
        yield Violation(*found)


def rows_agree(now: datetime) -> Iterator[Violation]:
    """What several rows say of one thing (`agreement`), in runs that are at work or ended a short while ago."""
    for invariant, where, text in agreement.findings(Q(ended_at=None) | Q(ended_at__gte=now - RECENT), LIMIT):
        yield Violation(invariant, where, text)


def slots_are_given(now: datetime) -> Iterator[Violation]:
    """I4, I6: no more runs of a bucket at work than its limit, and nobody in line for a slot that is free (`slot_agreement`)."""
    for question in (slot_agreement.over_limit, slot_agreement.forgotten):
        for found in islice(question(now), LIMIT):
            yield Violation(*found)


def _recent(now: datetime) -> Q:
    """Rows of runs that are at work or ended a short while ago."""
    return Q(run__ended_at=None) | Q(run__ended_at__gte=now - RECENT)


CHECKS: Final[tuple[Check, ...]] = (
    one_live_lease,
    tokens_rise,
    ended_is_ended,
    claimable_is_ready,
    recorded_once,
    reason_to_move,
    nothing_overdue,
    no_orphans,
    parked_is_parked,
    events_once,
    schedules_once,
    nothing_stray,
    journal_without_gaps,
    counts_agree,
    rows_agree,
    slots_are_given,
)
