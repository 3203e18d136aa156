"""Runs and their steps: where an execution is. Only the engine moves them.

Rows point at runs and steps without a database constraint: a foreign key's own lock deadlocks with cancel
(spec: engine.md). `workflows_check` looks for strays. Nor have runs one on their app and definition: on MariaDB a start
that is not committed yet would keep maintenance and workers' registrations from writing those.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from django.db import models

from ..protocol.states import LIVE_RUN, TERMINAL_RUN, CheckpointKind, Delivery, RunStatus, StepKind, StepStatus
from .fields import NAME_LENGTH, IdentifierField, JsonTextField, LongWordsField, WordsField
from .tenancy import App, Definition, Revision


class RunQuerySet(models.QuerySet["Run"]):
    """Questions about runs."""

    def live(self) -> RunQuerySet:
        """Runs that are not over."""
        return self.filter(status__in=LIVE_RUN)  # by name: an index finds them among millions that are over

    def of_subject(self, label: str, pk: str) -> RunQuerySet:
        """Runs linked to one model instance, newest first."""
        return self.filter(subject_label=label, subject_id=pk).order_by("-id")


class Run(models.Model):
    """One execution, pinned to a definition.

    `due_at` is the next moment maintenance must look at the run itself: its time to be admitted, or its deadline.
    `open_steps` counts the steps that are not over; `journal_seq` is the last sequence number of its journal.
    Both change only under the run's lock. `paused_from` is the status that a pause interrupts; where the run needs attention, it is `paused` if
    somebody had paused it before. `kept_since` is what its retention counts from: its end, or later where it had to be kept longer.

    `usage` (JSON) is what its steps used so far, by model and unit, with what that cost; null while nothing was. `traceparent` is the span of
    its caller in the trace that it joined, if any.

    A child run has a `parent`, the checkpoint there that it was started for, and its number among the children of that; the checkpoint is
    gone once its step has begun anew. `kin_at` is set until its end has been told to its parent, and its own children have been seen to.
    `last_end` (JSON) is how it had ended before somebody opened it again: what its parent was told of it, or may just have been (`engine.children`).

    Where its workflow has limits, `bucket` is what it is counted in while it holds a slot, `slot_key` the key that makes it that bucket, `line`
    the rate whose turns it takes. `queue_order` is its place in line from when it was due. `slot_at` is set until somebody has looked whether
    there is a slot: for it, or, once it is over, for those who waited for its own.

    `occurrence` is that of the schedule which started it, if one did; its row goes before the run's where the run is kept for very long.
    """

    id = models.UUIDField(primary_key=True)
    app = models.ForeignKey(App, on_delete=models.PROTECT, db_constraint=False, related_name="runs")
    definition = models.ForeignKey(Definition, on_delete=models.PROTECT, db_constraint=False, related_name="runs")
    workflow = IdentifierField(max_length=NAME_LENGTH)
    version = IdentifierField(max_length=16)
    status = models.CharField(max_length=16, choices=[(s.value, s.value) for s in RunStatus])
    paused_from = models.CharField(max_length=16, null=True, blank=True)
    ending_as = models.CharField(max_length=16, null=True, blank=True)
    attention = models.BooleanField(default=False)
    priority = models.SmallIntegerField(default=0)
    payload = JsonTextField(null=True)
    labels = JsonTextField(default="{}")
    state = JsonTextField(default="{}")
    failure = JsonTextField(null=True)
    reason = WordsField(max_length=500, blank=True, default="")
    idempotency_key = IdentifierField(null=True)
    correlation_id = IdentifierField(blank=True, default="")
    subject_label = IdentifierField(max_length=200, null=True)
    subject_id = IdentifierField(null=True)
    trace_id = models.CharField(max_length=32)
    traceparent = models.CharField(max_length=55, blank=True, default="")
    usage = JsonTextField(null=True)
    episode = models.PositiveIntegerField(default=1)
    journal_seq = models.PositiveIntegerField(default=0)
    open_steps = models.PositiveIntegerField()
    created_at = models.DateTimeField()
    start_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    kept_since = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True)
    parent = models.ForeignKey("self", on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, null=True, related_name="children")
    parent_checkpoint = models.PositiveBigIntegerField(null=True)
    parent_index = models.PositiveIntegerField(null=True)
    depth = models.PositiveSmallIntegerField(default=0)
    has_children = models.BooleanField(default=False)
    kin_at = models.DateTimeField(null=True)
    last_end = JsonTextField(null=True)
    bucket = models.UUIDField(null=True)
    slot_key = IdentifierField(null=True)
    line = models.UUIDField(null=True)
    queue_order = models.DateTimeField(null=True)
    slot_at = models.DateTimeField(null=True)
    occurrence = models.PositiveBigIntegerField(null=True)

    is_new = False  # no column: whether this very object was just started, and not found by its idempotency key

    objects = RunQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["app", "workflow", "idempotency_key"], name="ezw_run_idempotency"),
            models.UniqueConstraint(fields=["parent_checkpoint", "parent_index"], name="ezw_run_child"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["due_at"], name="ezw_run_due"),
            models.Index(fields=["kin_at"], name="ezw_run_kin"),
            models.Index(fields=["slot_at"], name="ezw_run_slot"),
            models.Index(fields=["bucket", "status", "queue_order"], name="ezw_run_bucket"),
            models.Index(fields=["line", "status", "queue_order"], name="ezw_run_line"),
            models.Index(fields=["parent", "ended_at"], name="ezw_run_parent"),
            models.Index(fields=["parent_checkpoint", "ended_at"], name="ezw_run_siblings"),
            models.Index(fields=["app", "status", "id"], name="ezw_run_status"),
            models.Index(fields=["ended_at"], name="ezw_run_ended"),
            models.Index(fields=["kept_since"], name="ezw_run_kept"),
            models.Index(fields=["workflow", "id"], name="ezw_run_workflow"),
            models.Index(fields=["subject_label", "subject_id"], name="ezw_run_subject"),
            models.Index(fields=["correlation_id"], name="ezw_run_correlation"),
        ]
        permissions: ClassVar = [
            ("cancel_run", "Can cancel runs"),
            ("retry_run", "Can retry runs"),
        ]

    def __str__(self) -> str:
        return f"{self.workflow} {self.pk}"

    @property
    def is_terminal(self) -> bool:
        """Whether the run is over."""
        return self.status in TERMINAL_RUN

    @property
    def is_paused(self) -> bool:
        """Whether the run offers nothing until it is resumed."""
        return self.status == RunStatus.PAUSED

    @property
    def is_paused_by_hand(self) -> bool:
        """Whether somebody has paused the run, whether or not it needs attention too."""
        return self.is_paused and (not self.attention or self.paused_from == RunStatus.PAUSED)


class RunLabel(models.Model):
    """One label of a run, as a row so that it can be searched. The engine reads `Run.labels`."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_constraint=False, related_name="label_rows")
    name = IdentifierField(max_length=NAME_LENGTH)
    value = IdentifierField(max_length=NAME_LENGTH)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "name"], name="ezw_label")]
        indexes: ClassVar = [models.Index(fields=["name", "value", "run"], name="ezw_label_search")]

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


class StepQuerySet(models.QuerySet["Step"]):
    """Questions about steps."""

    def claimable(self, revisions: list[int], now: models.Expression | datetime) -> StepQuerySet:
        """Steps of these revisions that a claim may take at `now`."""
        return self.filter(revision_id__in=revisions, claim_order__isnull=False, available_at__lte=now)

    def timers_due(self, now: datetime) -> StepQuerySet:
        """Sleeps to wake and waits to look at, in due order."""
        return self.filter(timer_at__lte=now).order_by("timer_at", "id")


class Step(models.Model):
    """One node of a run's graph.

    `claim_order` is set while the step may be claimed and orders claims: `available_at` minus a minute per point of priority.
    Two indexes begin with the revision: one in claim order, one for claims that serve only some of its steps (`engine.sql.looking`).
    `token` rises with every lease: the lease that carries it is the step's current one.
    `blockers` counts what must happen before it opens; it is counted down in the row, never re-derived.
    `timer_at` is when maintenance must look at it: a sleep's end, a wait's timeout or its second look.
    `input` is null where the input is a neighbour's value unchanged (`engine.inputs`).
    `parked` says, while a body is parked, on which of its checkpoints and in which mode; `is_resuming` that it is ready to go on in the
    same attempt. `has_checkpoints` saves the claims of other steps a look for them. `noted` is what its suspends said as theirs, for its worker
    to know again. `usage` is as the run's, of this step. `begun_at` is when the episode began that it is of, where a later one left it as it is.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_constraint=False, related_name="steps")
    revision = models.ForeignKey(Revision, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+")
    definition = models.ForeignKey(Definition, on_delete=models.PROTECT, db_constraint=False, related_name="+")
    name = IdentifierField(max_length=63)
    position = models.PositiveIntegerField()
    kind = models.CharField(max_length=16, choices=[(k.value, k.value) for k in StepKind])
    status = models.CharField(max_length=16, choices=[(s.value, s.value) for s in StepStatus])
    partition = models.PositiveSmallIntegerField()
    blockers = models.PositiveIntegerField(default=0)
    available_at = models.DateTimeField(null=True)
    claim_order = models.DateTimeField(null=True)
    timer_at = models.DateTimeField(null=True)
    token = models.PositiveIntegerField(default=0)
    attempts = models.PositiveIntegerField(default=0)
    failures = models.PositiveIntegerField(default=0)
    reclaims = models.PositiveIntegerField(default=0)
    wait_key = IdentifierField(null=True)
    parked = JsonTextField(null=True)
    is_resuming = models.BooleanField(default=False)
    has_checkpoints = models.BooleanField(default=False)
    noted = JsonTextField(null=True)
    input = JsonTextField(null=True)
    output = JsonTextField(null=True)
    failure = JsonTextField(null=True)
    usage = JsonTextField(null=True)
    begun_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    objects = StepQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "name"], name="ezw_step_name")]
        indexes: ClassVar = [
            models.Index(fields=["revision", "claim_order", "available_at", "id"], name="ezw_step_claim"),
            models.Index(fields=["revision", "name", "claim_order", "available_at", "id"], name="ezw_step_name_claim"),
            models.Index(fields=["timer_at"], name="ezw_step_timer"),
        ]

    def __str__(self) -> str:
        return self.name


class Lease(models.Model):
    """One attempt of a step, in one worker's hands. The id is unguessable.

    `live_step` is the step's id while the lease is live and null after: its unique constraint keeps one live lease a step.
    `ready_at` is since when the step could be claimed.
    `due_at` is the next moment maintenance must look at it. `cut_at` is set where it ended while its body may have been at work:
    compensation waits until that is acknowledged or past its window.
    """

    id = models.UUIDField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_constraint=False, related_name="leases")
    step = models.ForeignKey(Step, on_delete=models.CASCADE, db_constraint=False, related_name="leases")
    worker = models.ForeignKey("Worker", on_delete=models.PROTECT, db_constraint=False, related_name="leases")
    worker_name = IdentifierField()
    claim_id = IdentifierField(max_length=64)
    token = models.PositiveIntegerField()
    attempt = models.PositiveIntegerField()
    status = models.CharField(max_length=16)
    ended_by = models.CharField(max_length=16, null=True)
    delivery = models.CharField(max_length=16, default=Delivery.AT_LEAST_ONCE)
    live_step = models.PositiveBigIntegerField(null=True)
    may_have_run = models.BooleanField(default=False)
    timeout_ms = models.PositiveBigIntegerField()
    has_timeout = models.BooleanField()
    ready_at = models.DateTimeField(null=True)
    offered_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField()
    timeout_at = models.DateTimeField(null=True)
    orphaned_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    cut_at = models.DateTimeField(null=True)
    acknowledged_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True)
    refusals = models.CharField(max_length=64, default="")
    progress = JsonTextField(null=True)
    outcome = JsonTextField(null=True)
    traceback = LongWordsField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["live_step"], name="ezw_lease_live")]
        indexes: ClassVar = [
            models.Index(fields=["due_at"], name="ezw_lease_due"),
            models.Index(fields=["step", "token"], name="ezw_lease_step"),
            models.Index(fields=["run"], name="ezw_lease_run"),
            models.Index(fields=["worker", "claim_id"], name="ezw_lease_claim"),
            models.Index(fields=["status", "ended_at"], name="ezw_lease_status"),
        ]

    def __str__(self) -> str:
        return f"attempt {self.attempt} by {self.worker_name}"


class Checkpoint(models.Model):
    """One thing that a body asked for: a stored result, or something that is still to come. Once it is met it never changes.

    `pos` is its place among the things the body asks for. While `met_at` is null it is open: `due_at` is then when a sleep ends, a wait times
    out or a step may be tried again, `wanted` (JSON) what a wait takes. `children` counts the runs started under its name, whose own rows
    hold what they came to; `episodes` (JSON) says, by their numbers, which ends of them it was met with, where those were not the first.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_constraint=False, related_name="checkpoints")
    step = models.ForeignKey(Step, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="checkpoints")
    name = IdentifierField()
    pos = models.PositiveIntegerField()
    kind = models.CharField(max_length=16, choices=[(k.value, k.value) for k in CheckpointKind])
    created_at = models.DateTimeField()
    met_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True)
    wanted = JsonTextField(null=True)
    output = JsonTextField(null=True)
    failure = JsonTextField(null=True)
    timed_out = models.BooleanField(default=False)
    failures = models.PositiveIntegerField(default=0)
    children = models.PositiveIntegerField(default=0)
    episodes = JsonTextField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["step", "name"], name="ezw_checkpoint")]

    def __str__(self) -> str:
        return self.name

    @property
    def is_open(self) -> bool:
        """Whether it has no result yet."""
        return self.met_at is None


class JournalEntry(models.Model):
    """What happened to a run, append-only, in order of `seq`."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_constraint=False, related_name="journal")
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=32)
    at = models.DateTimeField()
    step = IdentifierField(max_length=63, blank=True, default="")
    attempt = models.PositiveIntegerField(null=True)
    worker = IdentifierField(blank=True, default="")
    data = JsonTextField(default="{}")

    class Meta:
        verbose_name_plural = "journal"
        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "seq"], name="ezw_journal_seq")]

    def __str__(self) -> str:
        return f"{self.seq} {self.kind}"
