"""Leases: claim, started, heartbeat. One attempt of a step, in one worker's hands, for a bounded time.

A claim locks only steps, skipping those that somebody holds, and journals nothing: the lease is its record.
"""

from __future__ import annotations

import logging
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F
from django.db.models.functions import Coalesce, Least

from ..conf import app_settings
from ..definitions.plan import PlanStep
from ..errors import InvalidArgument, InvalidPayload, RunTerminal, UnknownRun
from ..models import Lease, Run, Step
from ..protocol.messages import Beat, Claimed, ClaimRequest, Extension, Refused
from ..protocol.states import LeaseStatus, StepStatus
from . import catalog, describing, groups, ids, moves, payloads, progress, refusals, workers
from .clock import Now, read_at
from .duty import BAD_ROW, POSTPONE, later
from .keys import Identity
from .locking import Held
from .sql import portable as sql
from .transactions import database, verb
from .work import after_commit
from .workers import Session

logger = logging.getLogger("ezgh_workflows.engine")

WINDOW = 4
"""How many candidates a look brings for each lease asked for: enough to step over what others hold."""

TIMEOUT_GRACE = timedelta(seconds=10)
"""How long after a step's timeout its worker may still report it before the engine does."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that has been checked and may look several times while it is held."""

    session: Session
    claim_id: str
    maximum: int
    serving: Mapping[int, frozenset[str] | None]
    run_id: uuid.UUID | None

    def look(self) -> Claimed:
        """Take what there is now; empty, it is one statement over all partitions and no transaction."""
        if self.session.repeated:
            return _given(_live_of_claim(self.session, self.claim_id), self.session.now)
        if not self.serving:
            return Claimed()
        candidates = sql.look(self.serving, self.session.banned, self.run_id, self.maximum * WINDOW)
        if not candidates:
            return Claimed()
        return _given(*_take(self.session, candidates, self.claim_id, self.maximum))


def open_claim(request: ClaimRequest, serving: Mapping[int, frozenset[str] | None] | None = None, by: Identity | None = None) -> Claim:
    """Check a claim and find what it is for. Raises `UnknownWorker`, `UnknownDefinition`, `InvalidArgument`, `RunTerminal`.

    `serving` spares the look for what is served, where the same session has asked for the same before. For `by`, sessions out of its reach are unknown.
    """
    _check(request)
    session = workers.session(request.worker_id, request.claim_id, by)
    serving = workers.serving(session.app, request.serves) if serving is None else serving
    return Claim(session, request.claim_id, request.max, serving, _live_run(request.run))


def claim(request: ClaimRequest) -> Claimed:
    """Offer up to `max` claimable steps, each to this worker alone. Never waits: `wait_ms` is its caller's.

    A repeated `claim_id` gives the leases of that claim which are still live; `run` limits it to one run. Raises as `open_claim`.
    """
    return open_claim(request).look()


def started(lease_ids: Sequence[str]) -> list[Extension]:
    """Bodies are about to run; one answer each, in order. Idempotent. Locks each lease's run."""
    answers = groups.each(dict.fromkeys(lease_ids), _start, _refuse)
    return [answers[lease_id] for lease_id in lease_ids]


def heartbeat(beats: Sequence[Beat]) -> list[Extension]:
    """Extend these leases; one answer each, in order. Locks no run but those of leases that are refused or come back.

    A progress that can't be stored is answered `invalid`, but its lease lives on: a body's life must not hang on what it shows.
    """
    lease_ids = dict.fromkeys(beat.lease_id for beat in beats)
    answers = _extend(list(lease_ids))
    others = {lease_id: None for lease_id in lease_ids if lease_id not in answers}
    answers |= groups.each(others, _revive, _refuse) if others else {}
    answers |= _store_progress([beat for beat in beats if beat.progress is not None and answers[beat.lease_id].refused is None])
    return [answers[beat.lease_id] for beat in beats]


@verb
def _take(session: Session, candidates: Sequence[sql.Candidate], claim_id: str, maximum: int) -> tuple[list[Lease], datetime]:
    """Lock and lease candidates, beginning at a partition of chance, so that claimers do not meet."""
    first = secrets.randbelow(session.app.partitions)
    order = sorted(range(len(candidates)), key=lambda i: ((candidates[i].partition - first) % session.app.partitions, i))
    versions = {candidate.step_id: candidate.version for candidate in candidates}
    taken: list[tuple[Step, PlanStep]] = []
    while order and len(taken) < maximum:
        batch, order = order[: maximum - len(taken)], order[maximum - len(taken) :]
        taken += _readable(_lock_in_order([candidates[i].step_id for i in batch]), versions)
    if not taken:
        return [], session.now
    sql.lease_steps([step.pk for step, _ in taken])
    now = max(read_at(step) for step, _ in taken)
    leases = [_offer(session, step, planned, claim_id, now) for step, planned in taken]
    Lease.objects.using(database()).bulk_create(leases)
    if moves.is_told(moves.OFFERED):
        after_commit(lambda: moves.tell(moves.of_offer(lease, catalog.plan(versions[lease.step_id], lease.step.definition_id).name) for lease in leases))
    return leases, now


def _lock_in_order(step_ids: Sequence[int]) -> list[Step]:
    locked = {step.pk: step for step in sql.lock_claimable(step_ids)}
    return [locked[step_id] for step_id in step_ids if step_id in locked]


def _readable(steps: Sequence[Step], versions: Mapping[int, str]) -> list[tuple[Step, PlanStep]]:
    """Locked steps with what their definitions say of them; one whose definition can't be read is left alone for a while."""
    read: list[tuple[Step, PlanStep]] = []
    for step in steps:
        try:
            read.append((step, catalog.plan(versions[step.pk], step.definition_id).step(step.name)))
        except BAD_ROW:
            logger.exception("step %s of run %s can't be offered; left alone for %s", step.name, step.run_id, POSTPONE)
            Step.objects.using(database()).filter(pk=step.pk).update(available_at=later(read_at(step)))
    return read


def _offer(session: Session, step: Step, planned: PlanStep, claim_id: str, now: datetime) -> Lease:
    expires_at = now + app_settings.OFFER_TTL
    return Lease(
        id=ids.lease_id(),
        run_id=step.run_id,
        step=step,
        worker_id=session.worker_id,
        worker_name=session.name,
        claim_id=claim_id,
        token=step.token + 1,
        attempt=step.attempts if step.is_resuming else step.attempts + 1,
        status=LeaseStatus.OFFERED,
        delivery=planned.delivery,
        live_step=step.pk,
        timeout_ms=session.app.invocation_ms if planned.timeout_ms is None else planned.timeout_ms,
        has_timeout=planned.timeout_ms is not None,
        ready_at=step.available_at,
        offered_at=now,
        expires_at=expires_at,
        due_at=expires_at,
    )


def _start(held: Held, lease: Lease, _: None) -> Extension:
    refused = refusals.of_lease(lease)
    if refused is not None:
        refusals.note(held, lease, refused, "started")
        refusals.acknowledge(held, lease)
        return _refuse(str(lease.pk), refused)
    if lease.status != LeaseStatus.OFFERED:
        return _revive(held, lease, None)
    expires_at = held.now + app_settings.LEASE_TTL
    timeout_at = held.now + timedelta(milliseconds=lease.timeout_ms) + TIMEOUT_GRACE
    due_at = min(expires_at, timeout_at)
    held.work.move(lease, status=LeaseStatus.STARTED, started_at=held.now, expires_at=expires_at, timeout_at=timeout_at, due_at=due_at)
    held.work.move(lease.step, attempts=lease.attempt, started_at=held.now, is_resuming=False)
    held.work.record(held.run, "step.started", step=lease.step.name, attempt=lease.attempt, worker=lease.worker_name, token=lease.token)
    return _extension(lease, held.now)


def _revive(held: Held, lease: Lease, _: None) -> Extension:
    """A heartbeat of a lease that is orphaned, which lives on, or that is over, which is refused."""
    refused = refusals.of_lease(lease)
    if refused is not None:
        refusals.note(held, lease, refused, "heartbeat")
        return _refuse(str(lease.pk), refused)
    progress.live_again(held, lease)
    expires_at = held.now + app_settings.LEASE_TTL
    due_at = expires_at if lease.timeout_at is None else min(expires_at, lease.timeout_at)
    held.work.move(lease, expires_at=expires_at, due_at=due_at)
    return _extension(lease, held.now)


@verb
def _extend(lease_ids: Sequence[str]) -> dict[str, Extension]:
    """Extend those leases that are offered or started, in one guarded write; the others are not in the answer."""
    known = [lease_id for lease_id in lease_ids if groups.is_uuid(lease_id)]
    live = Lease.objects.using(database()).filter(pk__in=known, status__in=[LeaseStatus.OFFERED, LeaseStatus.STARTED])
    found = list(live.annotate(now=Now()).values_list("pk", "now", "worker_id", "worker__seen_at"))
    if not found:
        return {}
    now = max(now for _, now, _, _ in found)
    rows = dict.fromkeys((str(pk) for pk, _, _, _ in found), now)
    workers.seen({worker_id: seen_at for _, _, worker_id, seen_at in found}, now)
    expires_at = now + app_settings.LEASE_TTL
    landed = live.update(expires_at=expires_at, due_at=Least(Coalesce(F("timeout_at"), expires_at), expires_at))
    if landed != len(rows):  # one ended meanwhile: look again, lease by lease
        rows = dict.fromkeys((str(pk) for pk in live.filter(expires_at=expires_at).values_list("pk", flat=True)), now)
    in_ms = _milliseconds(app_settings.LEASE_TTL)
    return {lease_id: Extension(lease_id=lease_id, expires_at=expires_at, expires_in_ms=in_ms) for lease_id in rows}


def _store_progress(beats: Sequence[Beat]) -> dict[str, Extension]:
    """Keep what bodies show; returns the answers to what can't be kept."""
    refused: dict[str, Extension] = {}
    for beat in beats:
        try:
            text = payloads.to_text(beat.progress, "progress")
        except InvalidPayload as error:
            refused[beat.lease_id] = _refuse(beat.lease_id, Refused("invalid", str(error)))
        else:
            Lease.objects.using(database()).filter(pk=beat.lease_id, live_step__isnull=False).update(progress=text)
    return refused


def _given(leases: Sequence[Lease], now: datetime) -> Claimed:
    """The leases as messages; those an answer has no room for go back, and come with the next one."""
    described, left_over = describing.describe(leases, now)
    if left_over:
        _take_back(left_over)
    return Claimed(leases=tuple(described))


@verb
def _take_back(leases: Sequence[Lease]) -> None:
    """Undo offers nobody has seen: the steps first, as a claim does, so that a cancel meanwhile wins."""
    for lease in leases:
        steps = Step.objects.using(database()).filter(pk=lease.step_id, status=StepStatus.LEASED, token=lease.token)
        run = Run.objects.using(database()).only("priority").get(pk=lease.run_id)
        if steps.update(status=StepStatus.READY, claim_order=progress.claim_order(lease.step.available_at or lease.offered_at, run.priority)):
            offered = Lease.objects.using(database()).filter(pk=lease.pk, status=LeaseStatus.OFFERED)
            offered.update(status=LeaseStatus.RETURNED, ended_by=refusals.BY_ENGINE, live_step=None, due_at=None, ended_at=lease.offered_at)


def _live_of_claim(session: Session, claim_id: str) -> list[Lease]:
    leases = Lease.objects.using(database()).filter(worker=session.worker_id, claim_id=claim_id, live_step__isnull=False)
    return list(leases.select_related("step"))


def _live_run(run: str | None) -> uuid.UUID | None:
    if run is None:
        return None
    found = Run.objects.using(database()).only("id", "status").filter(pk=run).first() if groups.is_uuid(run) else None
    if found is None:
        raise UnknownRun(f"there is no run {run[:64]}")
    if found.is_terminal:
        raise RunTerminal(f"run {run} is {found.status}: there is nothing left to claim")
    return found.pk


def _check(request: ClaimRequest) -> None:
    if not 1 <= request.max <= app_settings.MAX_CLAIM:
        raise InvalidArgument("max", f"1 to {app_settings.MAX_CLAIM} (MAX_CLAIM), not {request.max}")
    if not request.claim_id or len(request.claim_id) > 64:
        raise InvalidArgument("claim_id", "1 to 64 characters, chosen by the client")


def _extension(lease: Lease, now: datetime) -> Extension:
    return Extension(lease_id=str(lease.pk), expires_at=lease.expires_at, expires_in_ms=_milliseconds(lease.expires_at - now))


def _refuse(lease_id: str, refused: Refused) -> Extension:
    return Extension(lease_id=lease_id, refused=refused)


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
