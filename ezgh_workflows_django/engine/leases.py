"""Leases: claim, started, heartbeat. One attempt of a step, in one worker's hands, for a bounded time.

A claim locks only steps, skipping those that somebody holds, and journals nothing: the lease is its record.
"""

from __future__ import annotations

import logging
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models import F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce, Least

from ..conf import app_settings
from ..definitions.plan import PlanStep
from ..errors import InvalidArgument, InvalidPayload, RunTerminal, UnknownRun
from ..models import Lease, Run, Step, Worker
from ..protocol.failures import Refused
from ..protocol.messages import Beat, Claimed, ClaimRequest, Extension
from ..protocol.states import LeaseStatus
from . import catalog, describing, groups, ids, moves, payloads, progress, refusals, sleeps, wakeups, workers
from .clock import Now, read_at
from .duty import BAD_ROW, POSTPONE, later, move_free
from .keys import Identity
from .locking import Held, locked
from .sql import looking
from .sql import portable as sql
from .transactions import database, verb
from .work import after_commit
from .workers import Session

logger = logging.getLogger("ezgh_workflows.engine")

WINDOW = 4
"""How many candidates a look brings for each lease asked for: enough to step over what others hold."""

WIDE_WINDOW = 16
"""How many the second look brings, after one whose candidates were all held by others."""

TIMEOUT_GRACE = timedelta(seconds=10)
"""How long after a step's timeout its worker may still report it before the engine does."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that has been checked and may look several times while it is held. `by` made it; None is the server's own process.

    One that `was_outrun` found steps at its last look, and others held them all.
    """

    session: Session
    claim_id: str
    maximum: int
    serving: Mapping[int, frozenset[str] | None]
    run_id: uuid.UUID | None
    by: Identity | None = None
    was_outrun: bool = False

    def look(self) -> tuple[Claim, Claimed]:
        """Take what there is now; gives the claim as it is now, and what it took. Empty, it is one statement over all partitions and no transaction."""
        if self.session.repeated:
            return self, _given_again(_live_of_claim(self.session, self.claim_id), self.session.now)
        return self._take(self._candidates(WINDOW))

    def look_again(self) -> tuple[Claim | None, Claimed]:
        """A later look of a claim that is held; gives the claim as it is now, and what it took. One statement more than `look` where there is something.

        Meanwhile its session may have left or its key been revoked: it is over then (None) and takes nothing. Or the session was found unable to serve
        something; or another call of the same claim was answered, which this one then repeats, and is over too.
        """
        candidates = self._candidates(WINDOW)
        if not candidates:
            return replace(self, was_outrun=False), Claimed()
        session = workers.still_there(self.session.worker_id, self.claim_id, self.by)
        if session is None:
            return None, Claimed()
        now = replace(self, session=session)
        if session.repeated:
            return None, now.look()[1]
        return now.look() if session.banned != self.session.banned else now._take(candidates)

    def seconds_to_next(self) -> float:
        """How long after a look that found nothing the next one is due, where no bell rings: `sleeps.seconds_to_next`, or soon, where it was outrun."""
        return wakeups.LOOK_EVERY if self.was_outrun else sleeps.seconds_to_next(self.wanted)

    @property
    def wanted(self) -> looking.Wanted:
        """What it asks for."""
        return looking.Wanted(self.serving, self.session.banned, None if self.run_id is None else frozenset([self.run_id]))

    def _candidates(self, window: int) -> list[looking.Candidate]:
        return looking.look(self.wanted, self.maximum * window) if self.serving else []

    def _take(self, candidates: Sequence[looking.Candidate]) -> tuple[Claim, Claimed]:
        """Take of these; where others hold them all, of what one wider look finds: there may be a full queue behind them, and no bell rings for it."""
        claimed = self._taken(candidates)
        if candidates and not claimed.leases:
            candidates = self._candidates(WIDE_WINDOW)
            claimed = self._taken(candidates)
        return replace(self, was_outrun=bool(candidates) and not claimed.leases), claimed

    def _taken(self, candidates: Sequence[looking.Candidate]) -> Claimed:
        return _given(*_take(self.session, candidates, self.claim_id, self.maximum)) if candidates else Claimed()


def without_work(claims: Sequence[Claim]) -> tuple[list[Claim], float]:
    """Those of these claims whose run has nothing for them now, and how long hence they are to be looked for again. At most two statements.

    Each is a claim of one run, and they are alike in all else.
    """
    wanted = replace(claims[0].wanted, run_ids=frozenset(claim.run_id for claim in claims if claim.run_id is not None))
    at_work = looking.runs_with_work(wanted) if wanted.serving else set()
    idle = [claim for claim in claims if claim.run_id not in at_work]
    return idle, sleeps.seconds_to_next(wanted) if idle else 0.0


def open_claim(request: ClaimRequest, serving: Mapping[int, frozenset[str] | None] | None = None, by: Identity | None = None) -> Claim:
    """Check a claim and find what it is for. Raises `UnknownWorker`, `UnknownDefinition`, `InvalidArgument`, `RunTerminal`.

    `serving` spares the look for what is served, where the same session has asked for the same before. For `by`, sessions out of its reach are unknown.
    """
    _check(request)
    session = workers.session(request.worker_id, request.claim_id, by)
    serving = workers.serving(session.app, request.serves) if serving is None else serving
    return Claim(session, request.claim_id, request.max, serving, _live_run(request.run), by)


def claim(request: ClaimRequest) -> Claimed:
    """Offer up to `max` claimable steps, each to this worker alone. Never waits: `wait_ms` is its caller's.

    A repeated `claim_id` gives the leases of that claim which are still live; `run` limits it to one run. Raises as `open_claim`.
    """
    return open_claim(request).look()[1]


def started(lease_ids: Sequence[str]) -> list[Extension]:
    """Bodies are about to run; one answer each, in order. Idempotent. Locks each lease's run."""
    answers = groups.each(dict.fromkeys(lease_ids), _start, _refuse)
    return [answers[lease_id] for lease_id in lease_ids]


def heartbeat(beats: Sequence[Beat]) -> list[Extension]:
    """Extend these leases; one answer each, in order. Locks no run but those of leases that are refused or come back.

    Waits for no lease that somebody's transaction holds: the others must live on meanwhile. It is answered as it stands; nobody takes it back before that
    transaction ends, and a later heartbeat tells what came of it. A progress that can't be stored is answered `invalid` (`payload_too_large`), but its
    lease lives on: a body's life must not hang on what it shows.
    """
    lease_ids = dict.fromkeys(beat.lease_id for beat in beats)
    answers = _extend(list(lease_ids))
    if missing := [lease_id for lease_id in lease_ids if lease_id not in answers]:
        answers |= _as_they_stand(missing)
    others = {lease_id: None for lease_id in lease_ids if lease_id not in answers}
    answers |= groups.each(others, _revive, _refuse) if others else {}
    answers |= _store_progress([beat for beat in beats if beat.progress is not None and answers[beat.lease_id].refused is None])
    return [answers[beat.lease_id] for beat in beats]


@verb
def _take(session: Session, candidates: Sequence[looking.Candidate], claim_id: str, maximum: int) -> tuple[list[Lease], datetime]:
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
    """Extend those leases that are offered or started and that nobody holds, in one write; the others are not in the answer."""
    seen_at = Subquery(Worker.objects.using(database()).filter(pk=OuterRef("worker_id")).values("seen_at"))  # a join would lock the worker too
    free = locked(_beating(lease_ids).annotate(now=Now(), seen_at=seen_at), skip_locked=True)
    found = list(free.values_list("pk", "now", "worker_id", "seen_at"))
    if not found:
        return {}
    now = max(now for _, now, _, _ in found)
    workers.seen({worker_id: seen_at for _, _, worker_id, seen_at in found}, now)
    expires_at = now + app_settings.LEASE_TTL
    extended = Lease.objects.using(database()).filter(pk__in=[pk for pk, _, _, _ in found])
    extended.update(expires_at=expires_at, due_at=Least(Coalesce(F("timeout_at"), expires_at), expires_at))
    in_ms = _milliseconds(app_settings.LEASE_TTL)
    return {str(pk): Extension(lease_id=str(pk), expires_at=expires_at, expires_in_ms=in_ms) for pk, _, _, _ in found}


def _as_they_stand(lease_ids: Sequence[str]) -> dict[str, Extension]:
    """Those of the leases that could be extended, were they not held: what is committed of them."""
    return {str(lease.pk): _extension(lease, read_at(lease)) for lease in _beating(lease_ids).annotate(now=Now())}


def _beating(lease_ids: Sequence[str]) -> QuerySet[Lease]:
    """Those of the leases whom a heartbeat extends without their run's lock."""
    known = [lease_id for lease_id in lease_ids if groups.is_uuid(lease_id)]
    return Lease.objects.using(database()).filter(pk__in=known, status__in=[LeaseStatus.OFFERED, LeaseStatus.STARTED])


def _store_progress(beats: Sequence[Beat]) -> dict[str, Extension]:
    """Keep what bodies show, but for leases that somebody holds; returns the answers to what can't be kept."""
    refused: dict[str, Extension] = {}
    for beat in beats:
        try:
            text = payloads.to_text(beat.progress, "progress")
        except InvalidPayload as error:
            refused[beat.lease_id] = _refuse(beat.lease_id, refusals.unfit(error))
        else:
            move_free(Lease.objects.using(database()).filter(pk=beat.lease_id, live_step__isnull=False), progress=text)
    return refused


def _given(leases: Sequence[Lease], now: datetime) -> Claimed:
    """New leases as messages; those an answer has no room for go back, and come with the next one."""
    described, left_over = describing.describe(leases, now)
    if left_over:
        groups.each({str(lease.pk): None for lease in left_over}, _take_back, _refuse)
    return Claimed(leases=tuple(described))


def _given_again(leases: Sequence[Lease], now: datetime) -> Claimed:
    """The leases of an answer that was lost. None goes back for want of room: its worker may have it after all, and if not, its offer expires."""
    return Claimed(leases=tuple(describing.describe(leases, now)[0]))


def _take_back(held: Held, lease: Lease, _: None) -> Extension:
    """Undo an offer that nobody has seen. One that was started meanwhile, or whose run has ended it, stays as it is."""
    if lease.status == LeaseStatus.OFFERED:
        progress.end_lease(held, lease, LeaseStatus.RETURNED, refusals.BY_ENGINE, cut=False)
        progress.make_ready(held, lease.step, lease.step.available_at or lease.offered_at)
    return _extension(lease, held.now)


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
    return Extension(lease_id=str(lease.pk), expires_at=lease.expires_at, expires_in_ms=max(0, _milliseconds(lease.expires_at - now)))


def _refuse(lease_id: str, refused: Refused) -> Extension:
    return Extension(lease_id=lease_id, refused=refused)


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
