"""Attempts as rows of a table on a page: who held a step, since when, and how it ended. Never shows a lease's id: it is a secret."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import QuerySet
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..engine.clock import Now, read_at
from ..engine.transactions import database
from ..models import Lease
from ..protocol import codec
from ..protocol.failures import Failure
from ..protocol.states import LeaseStatus, Refusal
from .values import brief, shortened
from .words import EXPIRED, badge, failure, lease_state, moment, span

MAX_ROWS: Final = 200


@dataclass(frozen=True, slots=True)
class Attempt:
    """One lease as a reader sees it. `status` is `expired` from its last moment on; `late` is how long after that it was reclaimed."""

    step: str
    number: int
    worker: str
    status: str
    started: str
    ended: str
    expires: str
    took: str
    late: str
    ending: str
    progress: str
    traceback: str

    @property
    def badge(self) -> SafeString:
        """The status as a coloured word."""
        return badge(self.status)

    @property
    def is_expired(self) -> bool:
        """Whether its time is over and nothing has been done about it yet."""
        return self.status == EXPIRED

    @property
    def is_held(self) -> bool:
        """Whether a worker has it in hand."""
        return self.status in (LeaseStatus.OFFERED, LeaseStatus.STARTED, LeaseStatus.ORPHANED)


def attempts(leases: QuerySet[Lease]) -> list[Attempt]:
    """The newest `MAX_ROWS` of these leases, one statement."""
    rows = leases.using(database()).annotate(now=Now()).select_related("step").defer("step__input", "step__output", "step__failure")
    return [attempt(lease, read_at(lease)) for lease in rows.order_by("-offered_at", "-token")[:MAX_ROWS]]


def attempt(lease: Lease, now: datetime) -> Attempt:
    """One lease, as it is at `now`."""
    return Attempt(
        step=lease.step.name,
        number=lease.attempt,
        worker=lease.worker_name,
        status=lease_state(lease, now),
        started=moment(lease.started_at),
        ended=moment(lease.ended_at),
        expires=moment(lease.expires_at),
        took=span(lease.started_at, lease.ended_at or now),
        late=late(lease),
        ending=ending(lease),
        progress=brief(lease.progress),
        traceback=lease.traceback or "",
    )


def late(lease: Lease) -> str:
    """How long after its last moment a lease was reclaimed; empty for any other."""
    return span(lease.expires_at, lease.ended_at) if lease.status == LeaseStatus.RECLAIMED else ""


def ending(lease: Lease) -> str:
    """Why an attempt ended, as far as its status does not say, and what was refused to its worker since."""
    return " ".join(filter(None, [_failure(lease), *map(_refusal, filter(None, lease.refusals.split(",")))]))


def _failure(lease: Lease) -> str:
    stored = {} if lease.outcome is None else codec.loads(lease.outcome)
    return shortened(failure(Failure.from_json(stored["failure"]))) if "failure" in stored else ""


def _refusal(reason: str) -> str:
    words = {
        Refusal.FENCED: _("Its worker came back late and was refused: fenced."),
        Refusal.ALREADY_APPLIED: _("Its worker reported twice; the second was refused."),
        Refusal.RUN_TERMINAL: _("Its worker reported after the run had ended and was refused."),
        Refusal.NOT_STARTED: _("Its worker reported without having started it and was refused."),
    }
    return words[Refusal(reason)]
