"""Worker sessions: who is here, what they announce, what they were found unable to serve.

A reused name is a new session: it neither revives nor hides the old one's leases.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from ..conf import app_settings
from ..definitions.durations import milliseconds
from ..errors import InvalidArgument, UnknownDefinition, UnknownWorker
from ..models import Announcement, App, Definition, Lease, Revision, Worker
from ..protocol import codec
from ..protocol.messages import Registered, Registration, Serve
from . import announcing, catalog, following, keys, tenancy
from .clock import Now, read_at
from .keys import Identity
from .locking import locked
from .transactions import database, verb

MAX_DEFINITIONS = announcing.MAX_WORKFLOWS
SEEN_EVERY = timedelta(seconds=60)
MAX_WAIT_MS = 55_000


@dataclass(frozen=True, slots=True)
class Session:
    """A live worker session as one call found it."""

    worker_id: uuid.UUID
    name: str
    app: App
    banned: frozenset[int]
    repeated: bool
    now: datetime


def register(registration: Registration, app: App | None = None) -> Registered:
    """Open a worker session: store the definitions, announce them. `app`: that of a worker elsewhere; without it this process works for the one it names.

    Each definition is stored in a transaction of its own, before the session is opened: while one is waited for, because a start in somebody's
    long transaction has just stored it, no other is held. Raises `UnknownApp`, `InvalidArgument`, and `InvalidWorkflow` with every fault of
    every definition; then nothing is stored.
    """
    if len(registration.definitions) > MAX_DEFINITIONS:
        raise InvalidArgument("definitions", f"a worker serves at most {MAX_DEFINITIONS} workflows, not {len(registration.definitions)}")
    name = _checked_name(registration.worker)
    catalog.check(registration.definitions, app)
    app, now = tenancy.app_now(registration.app if app is None else app)
    stored = [_store(app, spec, now) for spec in registration.definitions]
    return Registered(
        worker_id=str(_open(app, name, registration, stored)),
        lease_ttl_ms=milliseconds(app_settings.LEASE_TTL),
        recovery_ms=milliseconds(app_settings.RECOVERY_WINDOW),
        offer_ttl_ms=milliseconds(app_settings.OFFER_TTL),
        heartbeat_ms=milliseconds(app_settings.HEARTBEAT),
        max_wait_ms=MAX_WAIT_MS,
        max_claim=app_settings.MAX_CLAIM,
        definitions=tuple((each.workflow, each.version) for each in stored),
    )


@verb
def _store(app: App, spec: Mapping[str, Any], now: datetime) -> Definition:
    return catalog.store(app, spec, now)


@verb
def _open(app: App, name: str, registration: Registration, stored: Collection[Definition]) -> uuid.UUID:
    """The row of a session that announces these definitions; its id."""
    _, now = tenancy.app_now(app)
    worker = Worker.objects.using(database()).create(
        id=uuid.uuid4(),
        app=app,
        name=name,
        host=registration.host[:255],
        sdk=registration.sdk[:255],
        concurrency=registration.concurrency,
        cron=registration.cron,
        registered_at=now,
        seen_at=now,
    )
    following.heed([worker], now)
    announcing.add(worker, stored, now)
    return worker.pk


def session(worker_id: str, claim_id: str, by: Identity | None = None) -> Session:
    """The session of a claim: one statement. `repeated` says that this claim has been answered before.

    Raises `UnknownWorker` where the session left, was forgotten, or never was, or is out of the reach of `by`; such a one is left as it is.
    """
    worker = _claiming(claim_id).filter(pk=_checked_id(worker_id)).first()
    if worker is None or (by is not None and not by.reaches(worker.app)):
        raise UnknownWorker(f"worker session {worker_id} is not known: register again")
    seen({worker.pk: worker.seen_at}, worker.now)
    return _session(worker)


def still_there(worker_id: uuid.UUID, claim_id: str, by: Identity | None) -> Session | None:
    """The session of a claim that has been held, as it is now: one statement. None where it has left, or where the key of `by` is good no more."""
    workers = _claiming(claim_id).filter(pk=worker_id)
    if by is not None and by.kind == keys.ACTOR:
        workers = workers.filter(Exists(keys.good().filter(prefix=by.prefix)))
    worker = workers.first()
    return None if worker is None else _session(worker)


def _claiming(claim_id: str) -> QuerySet[Any]:
    claimed = Lease.objects.using(database()).filter(worker=OuterRef("pk"), claim_id=claim_id)
    return Worker.objects.using(database()).select_related("app").annotate(now=Now(), repeated=Exists(claimed)).filter(left_at=None)


def _session(worker: Any) -> Session:
    return Session(worker.pk, worker.name, worker.app, frozenset(json.loads(worker.unservable)), worker.repeated, worker.now)


def serving(app: App, serves: Iterable[Serve]) -> dict[int, frozenset[str] | None]:
    """The stored revisions that a worker serves, each with the steps it serves of it (None: all).

    Raises `UnknownDefinition` for one that was never stored.
    """
    wanted = {(serve.name, serve.revision): serve.steps for serve in serves}
    if not wanted:
        return {}
    names, revisions = ({key[part] for key in wanted} for part in (0, 1))
    stored = Revision.objects.using(database()).filter(app=app, workflow__in=names, revision__in=revisions)  # no OR of pairs: SQLite bounds its depth
    found = {(row.workflow, row.revision): row.pk for row in stored}
    missing = [f"{name} revision {revision}" for name, revision in wanted if (name, revision) not in found]
    if missing:
        raise UnknownDefinition(f'app "{app.name}" has no {", ".join(missing)}: register again')
    return {found[key]: steps for key, steps in wanted.items()}


@verb
def leave(worker_id: str) -> None:
    """A clean goodbye: the session's announcements end. Saying it twice changes nothing."""
    worker = Worker.objects.using(database()).annotate(now=Now()).filter(pk=_checked_id(worker_id)).first()
    if worker is not None and worker.left_at is None:
        Worker.objects.using(database()).filter(pk=worker.pk).update(left_at=worker.now)
        Announcement.objects.using(database()).filter(worker=worker).delete()
        following.heed([worker], read_at(worker))
        announcing.measure_invocation(worker.app_id)


@verb
def forget_lost(now: datetime, limit: int) -> int:
    """End the announcements of sessions unheard of for `ANNOUNCEMENT_TTL`; returns how many sessions that were."""
    lost = list(Worker.objects.using(database()).filter(left_at=None, seen_at__lte=now - app_settings.ANNOUNCEMENT_TTL)[:limit])
    Worker.objects.using(database()).filter(pk__in=[worker.pk for worker in lost]).update(left_at=now)
    Announcement.objects.using(database()).filter(worker__in=lost).delete()
    following.heed(lost, now)
    for app_id in {worker.app_id for worker in lost}:
        announcing.measure_invocation(app_id)
    return len(lost)


def seen(sessions: Mapping[uuid.UUID, datetime], now: datetime) -> None:
    """Renew what these sessions announced, given when each was last heard of; written at most once a minute."""
    every = min(SEEN_EVERY, app_settings.ANNOUNCEMENT_TTL / 3)
    stale = [worker_id for worker_id, seen_at in sessions.items() if now - seen_at >= every]
    if stale:
        Worker.objects.using(database()).filter(pk__in=stale).update(seen_at=now)


def ban(lease: Lease) -> None:
    """Remember that this session can't serve this definition: it is not offered to it again. Locks the session's row, after the run's: others may ban too."""
    worker = locked(Worker.objects.using(database()).only("unservable").filter(pk=lease.worker_id)).get()
    banned = sorted({*json.loads(worker.unservable), lease.step.definition_id})
    Worker.objects.using(database()).filter(pk=worker.pk).update(unservable=json.dumps(banned))


def _checked_name(name: str) -> str:
    if not name or len(name) > 255 or codec.clean_text(name, 255) != name:
        raise InvalidArgument("worker", "a worker's name has 1 to 255 characters, no NUL and no lone surrogate")
    return name


def _checked_id(worker_id: str) -> uuid.UUID:
    try:
        return uuid.UUID(worker_id)
    except ValueError:
        raise UnknownWorker(f"worker session {worker_id[:64]} is not known: register again") from None
