"""How bodies ended: complete, fail, hand back, alone or in groups.

An accepted outcome, its output, state patch, usage, journal, the successors' readiness and the run's end are one transaction.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..conf import app_settings
from ..definitions.plan import PlanStep
from ..errors import InvalidPayload
from ..models import Lease, Step
from ..protocol import codec
from ..protocol import notes as noted
from ..protocol.failures import Failure, Refused
from ..protocol.outcomes import Answer, Outcome, Report
from ..protocol.states import ENGINE_CLASSES, Delivery, FailureClass, LeaseStatus, StepKind, StepStatus
from . import groups, parking, payloads, progress, refusals, state, suspensions, usage, workers
from .locking import Held
from .refusals import BY_WORKER

MAX_MESSAGE = 64 * 1024
MAX_RETRY_AFTER = timedelta(days=3650)

_CALLS = {LeaseStatus.FAILED: "fail", LeaseStatus.SUSPENDED: "suspend"}
_UNRUN = frozenset({FailureClass.RETURNED, FailureClass.UNSERVABLE})


@dataclass(frozen=True, slots=True)
class _Ready:
    """An outcome whose values have been encoded and checked, so that storing it can't fail on them."""

    outcome: Outcome
    output: str | None
    state: dict[str, Any] | None
    failure: Failure | None
    retry_after: timedelta
    stored: str
    notes: noted.Notes


def report(reports: Sequence[Report]) -> list[Answer]:
    """Take outcomes; one answer each, in order. Locks each lease's run; a refused or invalid one changes nothing.

    An outcome that could not be stored (not JSON, a class of the engine's own) is answered `invalid`, one that is too large `payload_too_large`.
    Of two outcomes of one lease the first is taken first, as if they had come in two calls.
    """
    answers: dict[int, Answer] = {}
    for turn in _turns(reports):
        told = _report_each(reports[place] for place in turn)
        answers.update((place, told[reports[place].lease_id]) for place in turn)
    return [answers[place] for place in range(len(reports))]


def _turns(reports: Sequence[Report]) -> list[list[int]]:
    """The places of the reports, in turns that have at most one outcome of each lease."""
    turns: list[list[int]] = []
    seen: Counter[str] = Counter()
    for place, item in enumerate(reports):
        if seen[item.lease_id] == len(turns):
            turns.append([])
        turns[seen[item.lease_id]].append(place)
        seen[item.lease_id] += 1
    return turns


def _report_each(reports: Iterable[Report]) -> dict[str, Answer]:
    """The answers by lease id; no lease has two outcomes here."""
    ready: dict[str, _Ready] = {}
    answers: dict[str, Answer] = {}
    for item in reports:
        try:
            ready[item.lease_id] = _prepare(item.outcome)
        except InvalidPayload as error:
            answers[item.lease_id] = _refuse(item.lease_id, refusals.unfit(error))
    answers.update(groups.each(ready, _apply, _refuse))
    return answers


def _prepare(outcome: Outcome) -> _Ready:
    failure = None
    if outcome.class_ is not None:
        failure = checked_failure(Failure(class_=outcome.class_, message=outcome.message or "", type=outcome.type))
    if outcome.status is LeaseStatus.SUSPENDED:
        suspensions.check(outcome.waits)
        suspensions.check_noted(outcome.noted)
    return _Ready(
        outcome=outcome,
        output=payloads.to_text(outcome.output, "output") if failure is None else None,
        state=state.checked(outcome.state),
        failure=failure,
        retry_after=checked_delay(outcome.retry_after_ms),
        stored=codec.dumps({"status": outcome.ends_as, **({"failure": failure.to_json()} if failure else {})}, limit=None, what="outcome"),
        notes=noted.read(outcome.usage, outcome.spans),
    )


def _apply(held: Held, lease: Lease, ready: _Ready) -> Answer:
    call = _CALLS.get(ready.outcome.status, "complete")
    failure_class = ready.failure.class_ if ready.failure else None
    refused = refusals.of_outcome(lease, body_ran=failure_class not in _UNRUN)
    if refused is not None:
        refusals.note(held, lease, refused, call)
        if ready.outcome.body_ended:
            refusals.acknowledge(held, lease)
        return _refuse(str(lease.pk), refused)
    usage.keep(held, lease, usage.bill(held, lease, ready.notes))
    ran = lease.status != LeaseStatus.OFFERED or failure_class not in _UNRUN
    if ran and lease.step.attempts != lease.attempt:
        held.work.move(lease.step, attempts=lease.attempt)
    if ready.outcome.status is LeaseStatus.SUSPENDED:
        return _suspend(held, lease, ready)
    if ready.failure is None:
        return _complete(held, lease, ready)
    return _fail(held, lease, ready, ready.failure, ran=ran)


def _complete(held: Held, lease: Lease, ready: _Ready) -> Answer:
    progress.end_lease(held, lease, LeaseStatus.COMPLETED, BY_WORKER, cut=False, outcome=ready.stored)
    state.patch(held, ready.state)
    progress.succeed(held, lease.step, ready.output, by=lease)
    return _answer(held, lease)


def _suspend(held: Held, lease: Lease, ready: _Ready) -> Answer:
    state.patch(held, ready.state)
    parking.park(held, lease, ready.outcome.waits, ready.outcome.mode, ready.stored, ready.outcome.noted)
    return _answer(held, lease)


def _fail(held: Held, lease: Lease, ready: _Ready, failure: Failure, *, ran: bool) -> Answer:
    body_at_work = ran and not ready.outcome.body_ended
    kept = ready.outcome.traceback if app_settings.KEEP_TRACEBACKS or ready.outcome.keeps_traceback else None
    progress.end_lease(held, lease, ready.outcome.ends_as, BY_WORKER, cut=body_at_work, outcome=ready.stored, traceback=kept)
    if failure.class_ == FailureClass.UNSERVABLE:
        workers.ban(lease)
    if _must_not_run_again(lease, failure, ran=ran, body_at_work=body_at_work):
        progress.fail(held, lease.step, failure, by=lease)
    elif failure.class_ in _UNRUN:
        _give_back(held, lease, failure)
    else:
        retry_or_fail(held, lease.step, failure, by=lease, retry_after=ready.retry_after)
    return _answer(held, lease)


def retry_or_fail(held: Held, step: Step, failure: Failure, by: Lease, retry_after: timedelta = timedelta(0)) -> None:
    """An attempt failed: the step waits for its next attempt if its policy has one left, else it fails for good."""
    policy = planned_of(held, step).retry
    failures = step.failures + 1
    held.work.move(step, failures=failures)
    if not policy.covers(failure.class_) or failures >= policy.max_attempts:
        return progress.fail(held, step, failure, by=by)
    delay = timedelta(milliseconds=policy.delay_ms(failures, random.random()))  # noqa: S311 - spreads retries, no secret
    retry_at = held.now + max(delay, retry_after)
    progress.make_ready(held, step, retry_at, started_at=None, is_resuming=False)
    told = {"failure": failure.to_json(), "retry_at": retry_at}
    return held.work.record(held.run, "step.retry_scheduled", step=step.name, attempt=by.attempt, worker=by.worker_name, **told)


def planned_of(held: Held, step: Step) -> PlanStep:
    """What the definition says of a step, the compensation's included."""
    if step.kind == StepKind.ON_FAILURE and held.plan.on_failure is not None:
        return held.plan.on_failure
    return held.plan.steps[step.name]


def _must_not_run_again(lease: Lease, failure: Failure, *, ran: bool, body_at_work: bool) -> bool:
    """Under at_most_once a body that may have run is run again only if it ended by itself and its worker said so."""
    if lease.delivery != Delivery.AT_MOST_ONCE or not (ran or lease.may_have_run):
        return False
    return body_at_work or failure.class_ in _UNRUN or failure.class_ == FailureClass.CRASHED


def _give_back(held: Held, lease: Lease, failure: Failure) -> None:
    """A lease that was not worked on costs nothing: the step is ready again at once."""
    progress.make_ready(held, lease.step, held.now)
    held.work.record(held.run, f"lease.{failure.class_}", step=lease.step.name, attempt=lease.attempt, worker=lease.worker_name, message=failure.message)


def _answer(held: Held, lease: Lease) -> Answer:
    retry_at: datetime | None = lease.step.available_at if lease.step.status == StepStatus.READY else None
    return Answer(lease_id=str(lease.pk), step=lease.step.status, run=held.run.status, retry_at=retry_at)


def _refuse(lease_id: str, refused: Refused) -> Answer:
    return Answer(lease_id=lease_id, refused=refused)


def _checked_class(name: str) -> str:
    if name in ENGINE_CLASSES:
        raise InvalidPayload("class", f"{name} is the engine's own; report what the body did")
    if not (0 < len(name) <= 64) or not all(c in "abcdefghijklmnopqrstuvwxyz0123456789_" for c in name):
        raise InvalidPayload("class", f"{name[:80]!r} is not 1 to 64 of a-z, 0-9 and _")
    return name


def checked_failure(failure: Failure) -> Failure:
    """A worker's failure as it is kept: its class one it may give, its texts clean. Raises `InvalidPayload`."""
    return Failure(class_=_checked_class(failure.class_), message=codec.clean_text(failure.message, MAX_MESSAGE), type=_clean_type(failure.type))


def checked_delay(milliseconds: int | None) -> timedelta:
    """The least rest before another try, as a worker asked for it. Raises `InvalidPayload`."""
    delay = timedelta(milliseconds=max(0, min(milliseconds or 0, 10**15)))
    if delay > MAX_RETRY_AFTER:
        raise InvalidPayload("retry_after_ms", "at most 3,650 days")
    return delay


def _clean_type(name: str | None) -> str | None:
    return None if name is None else codec.clean_text(name, 255)
