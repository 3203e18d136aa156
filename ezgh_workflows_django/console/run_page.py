"""What the page of one run shows besides its own fields: how it stands in words, its steps, attempts and journal, each up to a bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from django.contrib.admin.sites import AdminSite
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..engine import reading
from ..engine.clock import read_at
from ..engine.transactions import database
from ..models import JournalEntry, Lease, Run, Step
from ..protocol import codec
from ..protocol.failures import Failure
from ..protocol.states import LeaseStatus, RunStatus, StepStatus
from . import words
from .attempts import MAX_ROWS as ATTEMPT_ROWS
from .attempts import Attempt, attempts
from .base import list_url, page_url
from .steps import LARGE, expired_lease, status_of
from .values import ENGINE_KEYS, brief, shortened

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser, PermissionsMixin

MAX_ROWS: Final = 200
"""How many steps and journal entries a page shows; a link leads to all of them."""

MAX_LINES: Final = 10
"""How many sentences say how a run stands."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step as a line of the page."""

    name: str
    url: str
    kind: str
    badge: SafeString
    attempts: int
    took: str
    started: str
    ended: str
    failure: str


@dataclass(frozen=True, slots=True)
class JournalRow:
    """A journal entry as a line of the page."""

    seq: int
    at: str
    kind: str
    step: str
    attempt: int | None
    worker: str
    told: str


@dataclass(frozen=True, slots=True)
class Part:
    """One table of the page: its lines, and the list that has all of them where these are not all."""

    rows: Sequence[object]
    all_url: str
    is_cut: bool


@dataclass(frozen=True, slots=True)
class RunPage:
    """All of it. A part is None for a reader who may not view such rows."""

    phase: SafeString
    failure: str
    standing: Sequence[str]
    steps: Part | None
    attempts: Part | None
    journal: Part | None


def look(site: AdminSite, run: Run, user: PermissionsMixin | AnonymousUser) -> RunPage:
    """The page of a run that was read with the database's moment. A bounded number of statements, whatever the run's size."""
    steps = _steps_of(run)
    rows = attempts(Lease.objects.filter(run=run))
    return RunPage(
        phase=words.badge(words.ATTENTION if run.attention else reading.phase(run)),
        failure=_in_short(reading.failure(run)),
        standing=standing(run, steps, rows),
        steps=_steps_part(site, run, steps) if user.has_perm("ezgh_workflows.view_step") else None,
        attempts=Part(rows, list_url(site, Lease, run=run.pk), len(rows) >= ATTEMPT_ROWS) if user.has_perm("ezgh_workflows.view_lease") else None,
        journal=_journal_part(site, run) if user.has_perm("ezgh_workflows.view_journalentry") else None,
    )


def standing(run: Run, steps: Sequence[Step], held: Sequence[Attempt]) -> list[str]:
    """What a run that is not over waits for or does, in sentences, the first `MAX_LINES` of them."""
    if run.is_terminal:
        return []
    lines = [*_of_run(run), *(words.waiting(wait) for wait in reading.waiting_for(run)), *_of_attempts(held), *_of_steps(steps, read_at(run))]
    more = len(lines) - MAX_LINES
    return lines if more <= 0 else [*lines[:MAX_LINES], _("and %(count)d more") % {"count": more}]


def _of_run(run: Run) -> Iterator[str]:
    if run.attention:
        yield _("It needs attention: a step failed for good. Retry it, or cancel it.")
    if run.is_paused_by_hand:
        yield _("It is paused: %(reason)s") % {"reason": run.reason} if run.reason else _("It is paused.")
    if run.status == RunStatus.QUEUED and run.queue_order is None:
        yield _("It starts at %(at)s.") % {"at": words.moment(run.start_at)}
    if run.status == RunStatus.FAILING:
        yield _("Its compensation is at work; then it ends as %(status)s.") % {"status": words.state(run.ending_as or RunStatus.FAILED)}


def _of_attempts(held: Sequence[Attempt]) -> Iterator[str]:
    for each in held:
        told = {"step": each.step, "number": each.number, "worker": each.worker, "at": each.expires}
        if each.is_expired:
            yield _("%(step)s: attempt %(number)d of worker %(worker)s has expired at %(at)s and is about to be taken from it") % told
        elif each.status == LeaseStatus.ORPHANED:
            yield _("%(step)s: worker %(worker)s has gone silent in attempt %(number)d, its time was over at %(at)s") % told
        elif each.is_held:
            yield _("%(step)s: attempt %(number)d is with worker %(worker)s") % told


def _of_steps(steps: Sequence[Step], now: datetime) -> Iterator[str]:
    for step in steps:
        if step.status == StepStatus.SLEEPING:
            yield _("%(step)s sleeps until %(at)s") % {"step": step.name, "at": words.moment(step.timer_at)}
        elif step.status == StepStatus.READY and step.available_at is not None and step.available_at > now:
            yield _("%(step)s is tried again at %(at)s") % {"step": step.name, "at": words.moment(step.available_at)}
        elif step.status == StepStatus.READY:
            yield _("%(step)s waits for a worker since %(at)s") % {"step": step.name, "at": words.moment(step.available_at)}


def _steps_of(run: Run) -> list[Step]:
    """The run's first steps by position, without their values but with their failure: one more than are shown, where there are more."""
    rows = Step.objects.using(database()).filter(run=run).defer(*(name for name in LARGE if name != "failure"))
    return list(rows.annotate(expired=expired_lease()).order_by("position", "pk")[: MAX_ROWS + 1])


def _steps_part(site: AdminSite, run: Run, steps: Sequence[Step]) -> Part:
    now = read_at(run)
    return Part([_step_row(site, step, now) for step in steps[:MAX_ROWS]], list_url(site, Step, run=run.pk), len(steps) > MAX_ROWS)


def _journal_part(site: AdminSite, run: Run) -> Part:
    """The last entries of the journal, in their order."""
    rows = list(JournalEntry.objects.using(database()).filter(run=run).order_by("-seq")[: MAX_ROWS + 1])
    shown = [_journal_row(entry) for entry in reversed(rows[:MAX_ROWS])]
    return Part(shown, list_url(site, JournalEntry, run=run.pk), len(rows) > MAX_ROWS)


def _step_row(site: AdminSite, step: Step, now: datetime) -> StepRow:
    runs_on = step.started_at is not None and step.ended_at is None
    return StepRow(
        name=step.name,
        url=page_url(site, Step, step.pk),
        kind=step.kind,
        badge=words.badge(status_of(step)),
        attempts=step.attempts,
        took=words.span(step.started_at, now if runs_on else step.ended_at),
        started=words.moment(step.started_at),
        ended=words.moment(step.ended_at),
        failure="" if step.failure is None else _in_short(Failure.from_json(codec.loads(step.failure))),
    )


def _journal_row(entry: JournalEntry) -> JournalRow:
    return JournalRow(
        seq=entry.seq,
        at=words.moment(entry.at),
        kind=entry.kind,
        step=entry.step,
        attempt=entry.attempt,
        worker=entry.worker,
        told=brief(entry.data, plain=ENGINE_KEYS),
    )


def _in_short(failed: Failure | None) -> str:
    return "" if failed is None else shortened(words.failure(failed))
