"""Events and signals: stored first, then taken by the waits that are open for them, each in a transaction of its run's own."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from ..errors import InvalidArgument, RunTerminal
from ..models import App, Event, Receipt, Wait
from ..protocol import codec
from . import duty, payloads, tenancy, timers, uniques, waits
from .clock import Now, read_at
from .locking import Held, hold
from .transactions import database, verb
from .work import after_commit

logger = logging.getLogger("ezgh_workflows.maintenance")

BATCH = 100
"""How many receivers the caller's process resumes after its commit; maintenance does the rest."""

ROUNDS = 20
"""How many batches of one event a tick of maintenance resumes at most."""

_MAX_NAME = 255


@dataclass(frozen=True, slots=True)
class EventReceipt:
    """What became of an `emit`: the stored event's number, and whether its `event_id` had been seen before."""

    id: int
    known: bool


def emit(name: str, key: str = "", payload: Any = None, *, event_id: str | None = None, app: App | str | None = None, only_there: bool = False) -> EventReceipt:
    """Store an event and, after the caller's commit, resume what waits for it.

    It reaches every app of the project of `app` (None: `DEFAULT_APP`), a developer's own app only itself; with `only_there` that app alone.
    An `event_id` seen before changes nothing. Raises `InvalidArgument`, `InvalidPayload`, `UnknownApp`.
    """
    receipt = _store(_checked("name", name), _checked("key", key, empty=True), payloads.to_text(payload, "payload"), event_id, app, only_there)
    if not receipt.known:
        after_commit(lambda: deliver(receipt.id, BATCH))
    return receipt


@verb
def signal(run_id: uuid.UUID | str, name: str, payload: Any = None) -> str:
    """Send one run an event of its own: `delivered` where a wait took it, else `buffered` until one opens.

    Locks the run. Raises `UnknownRun`, `RunTerminal`, `InvalidArgument`, `InvalidPayload`.
    """
    _checked("name", name)
    text = payloads.to_text(payload, "payload")
    held = hold(run_id)
    if held.run.is_terminal:
        raise RunTerminal(f"run {run_id} is {held.run.status}: it takes no more signals")
    app = App.objects.using(database()).get(pk=held.run.app_id)
    sent = Event.objects.using(database()).create(
        project_id=app.project_id, app=app, run=held.run, scope=waits.run_scope(held.run.pk), name=name, payload=text, created_at=held.now
    )
    held.work.record(held.run, "signal.received", name=name)
    delivered = _offer_to_waits(held, sent)
    held.work.finish()
    return "delivered" if delivered else "buffered"


def deliver(event_pk: int, limit: int) -> int:
    """Resume up to `limit` waits an event is for, each in its run's own transaction; returns how many it looked at.

    Resumable: the event stays due until every receiver has been looked at.
    """
    event = Event.objects.using(database()).annotate(now=Now()).filter(pk=event_pk).first()
    if event is None:
        return 0
    receivers = list(_open_waits(event).order_by("pk")[: limit + 1])
    for wait in receivers[:limit]:
        _try_to_resume(wait, read_at(event))
    if len(receivers) <= limit:
        Event.objects.using(database()).filter(pk=event_pk).update(due_at=None)
    return len(receivers[:limit])


def _try_to_resume(wait: Wait, now: datetime) -> None:
    """Resume one receiver; one that can't be is left to its own timer, so that it keeps the event from no other."""
    try:
        resume(wait.run_id, wait.pk)
    except Exception:  # one bad row must never stop the queue (spec: engine.md "Time")
        logger.exception("could not resume wait %s of run %s; left alone for %s", wait.name, wait.run_id, duty.POSTPONE)
        timers.postpone_wait(wait, now)


@verb
def resume(run_id: uuid.UUID, wait_pk: int) -> None:
    """Let one open wait take the event that is there for it. Locks the run."""
    held = hold(run_id)
    wait = Wait.objects.using(database()).select_related("step").filter(pk=wait_pk).first()
    if wait is not None and not held.run.is_terminal:
        timers.see_to_wait(held, held.steps([wait.step.name])[0])
        held.work.finish()


def run_once(now: datetime, limit: int) -> int:
    """The duty of events: resume the receivers of those whose emit could not; returns how many were looked at."""
    due = list(Event.objects.using(database()).filter(due_at__lte=now).order_by("due_at").values_list("pk", flat=True)[:limit])
    for event_pk in due:
        try:
            _deliver_on(event_pk)
        except Exception:  # one bad row must never stop the queue (spec: engine.md "Time")
            logger.exception("could not resume the receivers of event %s; left alone for %s", event_pk, duty.POSTPONE)
            Event.objects.using(database()).filter(pk=event_pk).update(due_at=duty.later(now))
    return len(due)


def _deliver_on(event_pk: int) -> None:
    """Batch after batch, but for a bound: an event with very many receivers keeps no other waiting for long."""
    for _ in range(ROUNDS):
        if deliver(event_pk, BATCH) < BATCH:
            return


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
    """Whether an open wait of the run has taken the signal: one past its timeout takes nothing."""
    wait = Wait.objects.using(database()).select_related("step").filter(run=held.run, event=sent.name).order_by("pk").first()
    return wait is not None and sent in timers.see_to_wait(held, held.steps([wait.step.name])[0])


def _checked(field: str, text: str, *, empty: bool = False) -> str:
    if not isinstance(text, str) or (not text and not empty) or len(text) > _MAX_NAME or codec.clean_text(text, _MAX_NAME) != text:
        raise InvalidArgument(field, f"a text of at most {_MAX_NAME} characters, without NUL and lone surrogates{'' if empty else ', not empty'}")
    return text
