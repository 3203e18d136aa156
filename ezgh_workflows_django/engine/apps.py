"""Apps: creating them, letting them grow, holding their work back; and what there is to know of one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import connections
from django.db.models import Count, Exists, Min, OuterRef, QuerySet

from ..errors import AppExists, InvalidArgument, NotPermitted, PartitionsShrink, QueueFixed, UnknownApp, UnknownWorkflow
from ..models import Announcement, App, Project, Revision, Run, Step, WorkflowPause
from ..protocol import codec
from . import announcing, trail, uniques, wakeups
from .clock import Now, read_at
from .keys import Caller, Identity, actor_of
from .tenancy import DEFAULT
from .transactions import database, verb
from .work import after_commit

CREATE: Final = "workflows.apps.create"
UPDATE: Final = "workflows.apps.update"
PAUSE: Final = "workflows.apps.pause"
RESUME: Final = "workflows.apps.resume"

MOST_PARTITIONS: Final = 32
MAX_REASON: Final = 500
MOST_LISTED: Final = 50
"""How many stranded runs an app's page lists; it counts them all."""

QUEUE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Depth:
    """What is ready in one partition: how many steps, and since when the oldest."""

    ready: int
    oldest_at: datetime


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is to know of an app now. `stranded` counts its open runs that no live worker can serve."""

    app: App
    partitions: dict[int, Depth]
    live_workers: int
    workflows: tuple[str, ...]
    paused_workflows: tuple[WorkflowPause, ...]
    stranded: int

    @property
    def depth(self) -> int:
        """How many steps are ready, whether or not they are held back."""
        return sum(each.ready for each in self.partitions.values())

    @property
    def oldest_ready_at(self) -> datetime | None:
        """Since when the oldest of them is; None where there is none."""
        return min((each.oldest_at for each in self.partitions.values()), default=None)


@verb
def create(project: Project, name: str, *, by: Caller, kind: str = "pull", queue: str = DEFAULT, partitions: int = 4) -> App:
    """Create an app. Raises `AppExists`, `InvalidArgument`, `NotPermitted`."""
    if isinstance(by, Identity):
        by.need(CREATE)
        if by.app_id is not None or by.project_id != project.pk:
            raise NotPermitted([CREATE], "a key of one app reaches no other, so it can't create one")
    if fault := name_fault(name):
        raise InvalidArgument("name", fault)
    if kind != "pull":
        raise InvalidArgument("kind", f'"pull" is the only kind there is, not {str(kind)[:64]!a}')
    if not isinstance(queue, str) or not QUEUE.fullmatch(queue):
        raise InvalidArgument("queue", "1 to 63 small letters, digits and dashes, the first no dash")
    _check_partitions(partitions)
    now = read_at(Project.objects.using(database()).annotate(now=Now()).get(pk=project.pk))
    app = App(project=project, name=name, kind=kind, queue=queue, partitions=partitions, created_at=now)
    if uniques.insert_or_find(app, App.objects.using(database()).filter(project=project, name=name).first) is not app:
        raise AppExists(f'project "{project.slug}" has an app "{name}" already')
    trail.record(project.pk, now, "CreateApp", actor=actor_of(by), target=("app", name), kind=kind, queue=queue, partitions=partitions)
    return app


APP_NAME: Final = "1 to 63 letters, digits, dots, dashes and underscores, the first a letter or digit, and not digits alone"
"""What the name of an app is, in words."""


def name_fault(name: object) -> str | None:
    """What is wrong with an app's name, or None."""
    return None if isinstance(name, str) and NAME.fullmatch(name) and not name.isdigit() else APP_NAME


@verb
def update(app: App, *, by: Caller, partitions: int | None = None, queue: str | None = None) -> App:
    """Let an app's partitions grow; what it has already changes nothing. Locks the app's row.

    Raises `PartitionsShrink`, `QueueFixed`, `InvalidArgument`, `NotPermitted`, `UnknownApp`.
    """
    held, now = _hold(app, by, UPDATE)
    if queue is not None and queue != held.queue:
        raise QueueFixed(f'app "{held.name}" keeps its queue "{held.queue}": steps lie in it; create another app for another queue')
    if partitions is None:
        return held
    _check_partitions(partitions)
    if partitions == held.partitions:
        return held
    if partitions < held.partitions:
        raise PartitionsShrink(f'app "{held.name}" has {held.partitions} partitions, which can grow and never shrink: steps lie in each')
    trail.record(held.project_id, now, "UpdateApp", actor=actor_of(by), target=("app", held.name), partitions=partitions, was=held.partitions)
    held.partitions = partitions
    held.save(using=database(), update_fields=["partitions"])
    return held


@verb
def pause(app: App, *, by: Caller, workflow: str | None = None, reason: str = "") -> None:
    """Let claims of an app, or of one workflow of it, answer empty; all else goes on: starts, timers, events, bodies at work.

    What is paused already stays as it is. Locks the app's row. Raises `UnknownWorkflow`, `InvalidArgument`, `NotPermitted`, `UnknownApp`.
    """
    held, now = _hold(app, by, PAUSE)
    _check_reason(reason)
    if workflow is None:
        if held.paused_at is not None:
            return
        held.paused_at, held.paused_reason = now, reason
        held.save(using=database(), update_fields=["paused_at", "paused_reason"])
    else:
        _check_workflow(held, workflow)
        if _pauses([held.pk]).filter(workflow=workflow).exists():
            return
        WorkflowPause.objects.using(database()).create(app=held, workflow=workflow, paused_at=now, reason=reason)
    _tell(held, now, "PauseApp", by, workflow, reason=reason)


@verb
def resume(app: App, *, by: Caller, workflow: str | None = None) -> None:
    """End a pause: held claims look at once. What is not paused stays as it is; ending the app's pause ends none of a workflow.

    Locks the app's row. Raises `UnknownWorkflow`, `NotPermitted`, `UnknownApp`.
    """
    held, now = _hold(app, by, RESUME)
    if workflow is None:
        if held.paused_at is None:
            return
        held.paused_at, held.paused_reason = None, ""
        held.save(using=database(), update_fields=["paused_at", "paused_reason"])
    else:
        _check_workflow(held, workflow)
        if not _pauses([held.pk]).filter(workflow=workflow).delete()[0]:
            return
    _tell(held, now, "ResumeApp", by, workflow)
    after_commit(lambda: wakeups.notify(frozenset({held.pk})))


def facts_of(apps: Iterable[App]) -> list[Facts]:
    """What there is to know of these apps, in their order: six statements, however many they are. One that is gone is left out."""
    asked = [app.pk for app in apps]
    found = {app.pk: app for app in App.objects.using(database()).select_related("project__organization").annotate(now=Now()).filter(pk__in=asked)}
    if not found:
        return []
    now = read_at(next(iter(found.values())))
    depths, names, pauses = _depths(found, now), _names(found, now), defaultdict(list)
    for paused in _pauses(found).order_by("workflow"):
        pauses[paused.app_id].append(paused)
    workers = _counts(announcing.live_workers(now).filter(app__in=found))
    strays = _counts(_stranded(now).filter(app__in=found))
    there = [pk for pk in asked if pk in found]
    return [Facts(found[pk], depths[pk], workers.get(pk, 0), tuple(sorted(names[pk])), tuple(pauses[pk]), strays.get(pk, 0)) for pk in there]


def stranded(app: App) -> QuerySet[Run]:
    """The app's open runs whose revision no live worker announces, the newest first. One statement more than the query itself.

    An announcement names a workflow's version, not steps: a run is none of these while a live worker announces its revision, even where
    that worker lacks a step of it (renamed under the same revision, or left out by `--only`). The steps of such a run stay ready.
    """
    now = read_at(App.objects.using(database()).annotate(now=Now()).get(pk=app.pk))
    return _stranded(now).filter(app=app).order_by("-pk")


def count_stranded(most: int) -> int:
    """How many open runs of all apps are stranded, counted up to `most`: two statements."""
    found = list(App.objects.using(database()).annotate(now=Now()))
    if not found:
        return 0
    return _stranded(read_at(found[0])).filter(app__in=[app.pk for app in found]).order_by()[:most].count()


def _stranded(now: datetime) -> QuerySet[Run]:
    serving = Announcement.objects.using(database()).filter(worker__in=announcing.live_workers(now), definition__revision=OuterRef("definition__revision"))
    return Run.objects.live().using(database()).filter(~Exists(serving))


def _depths(apps: Collection[int], now: datetime) -> dict[int, dict[int, Depth]]:
    ready = Step.objects.using(database()).filter(revision__app__in=apps, claim_order__isnull=False, available_at__lte=now)
    rows = ready.values_list("revision__app", "partition").annotate(Count("pk"), Min("available_at")).order_by()
    depths: dict[int, dict[int, Depth]] = defaultdict(dict)
    for app_id, partition, count, oldest_at in rows:
        depths[app_id][partition] = Depth(count, oldest_at)
    return depths


def _names(apps: Collection[int], now: datetime) -> dict[int, set[str]]:
    live = Announcement.objects.using(database()).filter(worker__in=announcing.live_workers(now).filter(app__in=apps))
    names: dict[int, set[str]] = defaultdict(set)
    for app_id, name in live.values_list("definition__app", "definition__workflow").distinct():
        names[app_id].add(name)
    return names


def _counts(rows: QuerySet[Any]) -> dict[int, int]:
    """How many of these rows each app has."""
    return dict(rows.order_by().values_list("app").annotate(Count("pk")))


def _pauses(apps: Collection[int]) -> QuerySet[WorkflowPause]:
    return WorkflowPause.objects.using(database()).filter(app__in=apps)


def _hold(app: App, by: Caller, needed: str) -> tuple[App, datetime]:
    """The app's row, locked, for who may change it."""
    if isinstance(by, Identity):
        by.need(needed)
    rows = App.objects.using(database()).annotate(now=Now())
    features = connections[database()].features
    if features.has_select_for_update:
        rows = rows.select_for_update(no_key=features.has_select_for_no_key_update)
    held = rows.filter(pk=app.pk).first()
    if held is None or (isinstance(by, Identity) and not by.reaches(held)):
        raise UnknownApp(f"there is no app {app.name[:63]!a}")
    return held, read_at(held)


def _tell(app: App, now: datetime, action: str, by: Caller, workflow: str | None, **data: Any) -> None:
    of_one = {} if workflow is None else {"workflow": workflow}
    trail.record(app.project_id, now, action, actor=actor_of(by), target=("app", app.name), **of_one, **data)


def _check_partitions(partitions: int) -> None:
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= MOST_PARTITIONS:
        raise InvalidArgument("partitions", f"a whole number from 1 to {MOST_PARTITIONS}")


def _check_reason(reason: str) -> None:
    if len(reason) > MAX_REASON or codec.clean_text(reason, MAX_REASON) != reason:
        raise InvalidArgument("reason", f"at most {MAX_REASON} characters, no NUL and no lone surrogate")


def _check_workflow(app: App, workflow: str) -> None:
    known = workflow.isprintable() and Revision.objects.using(database()).filter(app=app, workflow=workflow).exists()
    if not known:
        raise UnknownWorkflow(f'no workflow {workflow[:128]!a} is stored for app "{app.name}"')
