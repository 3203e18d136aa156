"""What workers announce: the definitions that an app's live sessions serve. An app's workflows, to the outside, are these.

An announcement lasts as long as its session is heard of: each of the session's calls renews it (`workers.seen`).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db import connections
from django.db.models import Count, Max, Q, QuerySet

from ..conf import app_settings
from ..definitions.durations import in_words, milliseconds
from ..errors import InvalidArgument, UnknownDefinition, UnknownWorker, WorkflowNotAnnounced
from ..models import Announcement, App, Definition, Worker
from . import catalog, tenancy, trail
from .clock import Now, read_at
from .transactions import QUERY_KEYS, batched, database, verb

MAX_WORKFLOWS: Final = 1000
"""The most workflows one worker session announces."""

SHORTEST_INVOCATION_MS: Final = 15 * 60 * 1000
LONGEST_INVOCATION_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Announced:
    """One version of a workflow that live sessions announce. `longest_timeout_ms` None: no step of it sets a timeout."""

    workflow: str
    version: str
    revision: str
    longest_timeout_ms: int | None
    workers: int
    created_at: datetime
    app: str


def newest(app: App, workflow: str) -> Definition:
    """The newest stored version of a workflow among those that live sessions of the app announce: what a start over HTTP pins.

    Two statements. Raises `WorkflowNotAnnounced`.
    """
    app, now = tenancy.app_now(app)
    found = live(app.pk, now).filter(definition__workflow=workflow).values("definition")
    rows = Definition.objects.using(database()).select_related("app").defer("spec", "input_schemas")
    definition = rows.filter(pk__in=found).order_by(*catalog.NEWEST).first() if workflow.isprintable() else None
    if definition is None:
        within = in_words(milliseconds(app_settings.ANNOUNCEMENT_TTL))
        raise WorkflowNotAnnounced(f'no worker of app "{app.name}" announced workflow {workflow[:128]!a} in the last {within}: start one that serves it')
    return definition


def announced(*apps: App) -> list[Announced]:
    """What the live sessions of these apps announce, by name, the newest version of each first: two statements."""
    if not apps:
        return []
    _, now = tenancy.app_now(apps[0])
    ids = [app.pk for app in apps]
    sessions = Q(announcements__worker__in=live_workers(now).filter(app__in=ids))
    rows = Definition.objects.using(database()).filter(sessions, app__in=ids).annotate(workers=Count("announcements__worker", filter=sessions, distinct=True))
    fields = ("workflow", "version", "revision__revision", "longest_timeout_ms", "workers", "created_at", "app__name")
    return [Announced(*row) for row in rows.order_by("workflow", *catalog.NEWEST).values_list(*fields)]


def live_workers(now: datetime) -> QuerySet[Worker]:
    """Sessions that have not left and were heard of within `ANNOUNCEMENT_TTL`."""
    return Worker.objects.using(database()).filter(left_at=None, seen_at__gt=now - app_settings.ANNOUNCEMENT_TTL)


def live(app_id: int, now: datetime) -> QuerySet[Announcement]:
    """What the live sessions of an app announce."""
    return Announcement.objects.using(database()).filter(worker__in=live_workers(now).filter(app=app_id))


@verb
def announce(worker_id: uuid.UUID, texts: Sequence[str]) -> None:
    """A session serves these stored definitions, too: each `name@version`. Three statements where it has announced them all before.

    Raises `InvalidArgument`, `UnknownWorker`, and `UnknownDefinition` for one that is not stored in its app. Locks the app where its set of
    names changes.
    """
    if len(texts) > MAX_WORKFLOWS:
        raise InvalidArgument("announce", f"a worker serves at most {MAX_WORKFLOWS} workflows, not {len(texts)}")
    wanted = dict.fromkeys(_parsed(text) for text in texts)
    worker = Worker.objects.using(database()).select_related("app").annotate(now=Now()).filter(pk=worker_id, left_at=None).first()
    if worker is None:
        raise UnknownWorker(f"worker session {worker_id} is not known: register again")
    stored = _stored(worker.app, wanted)
    missing = [f"{name}@{version}" for name, version in wanted if (name, version) not in stored]
    if missing:
        raise UnknownDefinition(f'app "{worker.app.name}" has no {", ".join(missing[:10])}: register again')
    known = dict(Announcement.objects.using(database()).filter(worker=worker).values_list("definition", "definition__workflow"))
    new = [definition for definition in stored.values() if definition.pk not in known]
    names = {*known.values(), *(definition.workflow for definition in new)}
    if len(names) > MAX_WORKFLOWS:
        raise InvalidArgument("announce", f"a worker serves at most {MAX_WORKFLOWS} workflows, with these {len(names)}")
    if new:
        add(worker, new, read_at(worker))


def add(worker: Worker, definitions: Collection[Definition], now: datetime) -> None:
    """Announce definitions that this session has not announced yet; the trail hears of it where the app's set of names changes."""
    app = worker.app
    names = {definition.workflow for definition in definitions}
    before = _names(app.pk, now)
    if names - before:
        _lock(app)  # of those who bring the same name at one moment, one tells the trail
        before = _names(app.pk, now)
    rows = [Announcement(worker=worker, definition=each) for each in {definition.pk: definition for definition in definitions}.values()]
    Announcement.objects.using(database()).bulk_create(rows, ignore_conflicts=True)
    measure_invocation(app.pk)
    if names - before:
        after = sorted(before | names)
        trail.record(app.project_id, now, "AnnounceWorkflows", actor=("worker", worker.name), target=("app", app.name), workflows=after)


def measure_invocation(app_id: int) -> None:
    """The longest timeout of the app's announced workflows, at least 15 minutes, at most 24 hours. Written only where it changes: it locks the app."""
    apps = App.objects.using(database()).filter(pk=app_id)
    longest = Max("workers__announcements__definition__longest_timeout_ms")
    [(before, found)] = apps.annotate(longest=longest).values_list("invocation_ms", "longest")
    after = min(max(found or 0, SHORTEST_INVOCATION_MS), LONGEST_INVOCATION_MS)
    if after != before:
        apps.update(invocation_ms=after)


def _names(app_id: int, now: datetime) -> set[str]:
    return set(live(app_id, now).values_list("definition__workflow", flat=True).distinct())


def _lock(app: App) -> None:
    features = connections[database()].features
    if features.has_select_for_update:
        App.objects.using(database()).select_for_update(no_key=features.has_select_for_no_key_update).only("pk").get(pk=app.pk)


def _parsed(text: str) -> tuple[str, str]:
    name, at, version = text.rpartition("@")
    if not at or not name or not version or not text.isprintable():
        raise InvalidArgument("announce", f'"name@version" is needed, not {text[:200]!a}')
    return name, version


def _stored(app: App, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], Definition]:
    rows = Definition.objects.using(database()).filter(app=app).only("workflow", "version")
    names = sorted({name for name, _ in wanted})
    found = [row for batch in batched(names, QUERY_KEYS) for row in rows.filter(workflow__in=batch, version__in={version for _, version in wanted})]
    return {(row.workflow, row.version): row for row in found if (row.workflow, row.version) in wanted}
