"""Events and signals: stored first, then taken by the waits that are open for them, each in a transaction of its run's own."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from django.db.models import Exists, OuterRef, Q, QuerySet

from ..errors import InvalidArgument, RunTerminal
from ..models import App, Event, Receipt, Wait
from ..protocol import codec
from . import due_order, duty, payloads, pulse, runs, tenancy, timers, uniques, waits
from .clock import Now, read_at
from .locking import Held, hold, hold_if_free, insist
from .transactions import database, verb
from .work import after_commit

logger = logging.getLogger("ezgh_workflows.maintenance")

BATCH = 100
"""How many receivers the caller's process resumes after its commit; maintenance does the rest."""

ROUNDS = 20
"""How many batches of one event a tick of maintenance resumes at most."""

AGAIN: Final = timedelta(seconds=1)
"""When maintenance comes back to an event, where somebody held the run of a receiver."""

_MAX_NAME = 255


@dataclass(frozen=True, slots=True)
class EventReceipt:
    """What became of an `emit`: the stored event's number, and whether its `event_id` had been seen before."""

    id: int
    known: bool


class _Came(Enum):
    """What a look at a receiver came to."""

    RESUMED = "resumed"
    HELD = "held"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class _Delivery:
    """How many receivers of an event were looked at, whether those were all there are, and whether somebody held one's run."""

    count: int
    is_over: bool
    was_held: bool = False


def emit(name: str, key: str = "", payload: Any = None, *, event_id: str | None = None, app: App | str | None = None, only_there: bool = False) -> EventReceipt:
    """Store an event and, after the caller's commit, resume what waits for it.

    It reaches every app of the project of `app` (None: `DEFAULT_APP`), a developer's own app only itself; with `only_there` that app alone.
    An `event_id` seen before changes nothing. Raises `InvalidArgument`, `InvalidPayload`, `UnknownApp`.
    """
    receipt = _store(_checked("name", name), _checked("key", key, empty=True), payloads.to_text(payload, "payload"), event_id, app, only_there)
    if not receipt.known:
        after_commit(lambda: insist(lambda: not deliver(receipt.id, BATCH).was_held))
    return receipt


def signal(run_id: uuid.UUID | str, name: str, payload: Any = None) -> str:
    """Send one run an event of its own: `delivered` where a wait took it, else `buffered` until one opens.

    Past its deadline a run that nobody has ended yet is ended first, as it would be without the signal, and that stays so.
    Locks the run. Raises `UnknownRun`, `RunTerminal`, `InvalidArgument`, `InvalidPayload`.
    """
    status, became = _send(run_id, _checked("name", name), payloads.to_text(payload, "payload"))
    if became is None:
        raise RunTerminal(f"run {run_id} is {status}: it takes no more signals")
    return became


@verb
def _send(run_id: uuid.UUID | str, name: str, text: str) -> tuple[str, str | None]:
    """The run's status, and what became of the signal; None where the run is over."""
    held = hold(run_id)
    if not held.run.is_terminal and runs.is_past_deadline(held, held.now):
        due_order.meet_deadline(held)
    if held.run.is_terminal:
        held.work.finish()
        return held.run.status, None
    app = App.objects.using(database()).get(pk=held.run.app_id)
    sent = Event.objects.using(database()).create(
        project_id=app.project_id, app=app, run=held.run, scope=waits.run_scope(held.run.pk), name=name, payload=text, created_at=held.now
    )
    held.work.record(held.run, "signal.received", name=name)
    is_in_time = not runs.is_past_deadline(held, held.now)  # else more was due before the deadline than one transaction does
    delivered = is_in_time and _offer_to_waits(held, sent)
    held.work.finish()
    return held.run.status, "delivered" if delivered else "buffered"


def deliver(event_pk: int, limit: int, rounds: int = 1) -> _Delivery:
    """Resume the waits an event is for, each in its run's own transaction, in up to `rounds` batches of `limit`.

    Waits for no run that somebody holds. Resumable: the event stays due until every receiver has been looked at, and comes again where one was held.
    """
    event = Event.objects.using(database()).annotate(now=Now()).filter(pk=event_pk).first()
    if event is None:
        return _Delivery(0, is_over=True)
    now, receivers = read_at(event), _open_waits(event).order_by("pk")
    came: list[_Came] = []
    for _ in range(rounds):
        page = list(receivers[: limit + 1])
        batch = [_try_to_resume(wait, now) for wait in page[:limit]]
        came += batch
        if len(page) <= limit:
            Event.objects.using(database()).filter(pk=event_pk).update(due_at=now + AGAIN if _Came.HELD in came else None)
            return _Delivery(len(came), is_over=True, was_held=_Came.HELD in came)
        if pulse.is_turn_over() and _Came.RESUMED in batch:  # without any, those behind would never have their turn
            pulse.leave_rest()
            break
        receivers = receivers.filter(pk__gt=page[limit - 1].pk)
    return _Delivery(len(came), is_over=False)


def _try_to_resume(wait: Wait, now: datetime) -> _Came:
    """Resume one receiver; one that can't be is left to its own timer, so that it keeps the event from no other."""
    try:
        at = resume(wait.run_id, wait.pk)
    except Exception:  # one bad row must never stop the queue (spec: engine.md "Time")
        logger.exception("could not resume wait %s of run %s; left alone for %s", wait.name, wait.run_id, duty.POSTPONE)
        timers.postpone_wait(wait, now)
        return _Came.BAD
    if at is None:
        return _Came.HELD
    pulse.beat(at)
    return _Came.RESUMED


@verb
def resume(run_id: uuid.UUID, wait_pk: int) -> datetime | None:
    """Let one open wait take the event that is there for it; where the run is past its deadline, only what came before that.

    Locks the run. Returns the moment this was done at; None where somebody holds the run. Raises `UnknownRun`.
    """
    held = hold_if_free(run_id)
    if held is None:
        return None
    wait = Wait.objects.using(database()).select_related("step").filter(pk=wait_pk).first()
    if wait is None or held.run.is_terminal:
        return held.now
    if runs.is_past_deadline(held, held.now):
        due_order.meet_deadline(held)
    else:
        timers.see_to_wait(held, held.steps([wait.step.name])[0])
    held.work.finish()
    return held.now


def run_once(now: datetime, limit: int) -> int:
    """The duty of events: resume the receivers of those whose emit could not; returns how many events were looked at.

    Once the tick's turn is over, it stops after about `limit` receivers.
    """
    due = list(Event.objects.using(database()).filter(due_at__lte=now).order_by("due_at").values_list("pk", flat=True)[:limit])
    receivers = 0
    for place, event_pk in enumerate(due, 1):
        try:
            receivers += _deliver_on(event_pk)
        except Exception:  # one bad row must never stop the queue (spec: engine.md "Time")
            logger.exception("could not resume the receivers of event %s; left alone for %s", event_pk, duty.POSTPONE)
            Event.objects.using(database()).filter(pk=event_pk).update(due_at=duty.later(now))
        if place < len(due) and receivers >= limit and pulse.is_turn_over():
            pulse.leave_rest()
            return place
    return len(due)


def _deliver_on(event_pk: int) -> int:
    """Batch after batch, but for a bound: an event with very many receivers then stands behind the others. Returns how many were looked at."""
    delivery = deliver(event_pk, BATCH, ROUNDS)
    if not delivery.is_over:
        Event.objects.using(database()).filter(pk=event_pk, due_at__isnull=False).update(due_at=Now())
    return delivery.count


@verb
def _store(name: str, key: str, text: str, event_id: str | None, named: App | str | None, only_there: bool) -> EventReceipt:
    app, now = tenancy.app_now(named)
    stays = only_there or app.is_dev
    scope = waits.app_scope(app.pk) if stays else waits.project_scope(app.project_id)
    event = Event(
        project_id=app.project_id,
        app=app if stays else None,
        scope=scope,
        name=name,
        key=key,
        payload=text,
        event_id=None if event_id is None else _checked("event_id", event_id),
        created_at=now,
        due_at=now,
    )
    if event_id is None:
        event.save(using=database(), force_insert=True)
        return EventReceipt(event.pk, known=False)
    stored = uniques.insert_or_find_in_callers(event, Event.objects.using(database()).filter(scope=scope, event_id=event_id).first)
    return EventReceipt(stored.pk, known=stored is not event)


def _open_waits(event: Event) -> QuerySet[Wait]:
    """The waits that may take this event: those whose run has it already, or that were over before it came, are none."""
    reached = {"app": event.app_id} if event.app_id else {"project": event.project_id}
    taken = Receipt.objects.using(database()).filter(run=OuterRef("run"), event=event)
    in_time = Q(timeout_at=None) | Q(timeout_at__gt=event.created_at)
    return Wait.objects.using(database()).filter(in_time, ~Exists(taken), event=event.name, key=event.key, since__lte=event.created_at, **reached)


def _offer_to_waits(held: Held, sent: Event) -> bool:
    """Whether an open wait of the run has taken the signal, the oldest first: none does past its timeout, nor where its body wakes for something else."""
    looked: list[int] = []
    while True:
        waiting = Wait.objects.using(database()).select_related("step").filter(run=held.run, event=sent.name)
        wait = waiting.exclude(step__in=looked).order_by("pk").first()
        if wait is None:
            return False
        if sent in timers.see_to_wait(held, held.steps([wait.step.name])[0]):
            return True
        looked.append(wait.step_id)  # whatever waits its body has, each of them was looked at
        held.work.flush()


def _checked(field: str, text: str, *, empty: bool = False) -> str:
    if not isinstance(text, str) or (not text and not empty) or len(text) > _MAX_NAME or codec.clean_text(text, _MAX_NAME) != text:
        raise InvalidArgument(field, f"a text of at most {_MAX_NAME} characters, without NUL and lone surrogates{'' if empty else ', not empty'}")
    return text
