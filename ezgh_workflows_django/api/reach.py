"""What exists for a caller: the leases, sessions and runs of the apps it reaches. What is not in its reach is not found."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from django.db.models import QuerySet

from ..conf import app_settings
from ..engine import groups, schedules
from ..engine.keys import Identity
from ..engine.transactions import database
from ..errors import InvalidArgument, UnknownApp, UnknownProject, UnknownRun, UnknownWorker
from ..models import App, Lease, Project, Run, Schedule, Worker

_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Nothing here is older, and MariaDB can't be asked about all that is."""


def apps(identity: Identity) -> QuerySet[App]:
    """The apps it reaches."""
    found = App.objects.using(database()).filter(project=identity.project_id)
    return found if identity.app_id is None else found.filter(pk=identity.app_id)


def app(identity: Identity, named: str | None, where: Mapping[str, str] | None = None) -> App:
    """An app by name or id; without one the key's own, else `DEFAULT_APP`. `where` are the organization and project that the path names, if any.

    Raises `UnknownProject`, `UnknownApp`.
    """
    _check_project(identity, where or {})
    found = apps(identity).select_related("project")
    if named is None:
        app = found.first() if identity.app_id is not None else found.filter(name=app_settings.DEFAULT_APP).first()
    else:
        app = found.filter(name=named).first() or (found.filter(pk=int(named)).first() if named.isascii() and named.isdigit() and len(named) < 19 else None)
    if app is None:
        raise UnknownApp(f"there is no app {(named or app_settings.DEFAULT_APP)[:64]!a}")
    return app


def project(identity: Identity, where: Mapping[str, str]) -> Project:
    """The caller's project, which the path is to name. Raises `UnknownProject`."""
    _check_project(identity, where)
    return Project.objects.using(database()).select_related("organization").get(pk=identity.project_id)


def schedule(identity: Identity, schedule_id: str, where: Mapping[str, str]) -> Schedule:
    """A schedule by its id. Raises `UnknownProject`, `UnknownSchedule`."""
    return schedules.find(schedule_id, project(identity, where), identity.app_id)


def runs(identity: Identity) -> QuerySet[Run]:
    """The runs it reaches."""
    found = Run.objects.using(database())
    return found.filter(app__project=identity.project_id) if identity.app_id is None else found.filter(app=identity.app_id)


def run(identity: Identity, run_id: str) -> Run:
    """A run by its id. Raises `UnknownRun`."""
    found = runs(identity).select_related("app").filter(pk=run_id).first() if groups.is_uuid(run_id) else None
    if found is None:
        raise UnknownRun(f"there is no run {run_id[:64]}")
    return found


def leases(identity: Identity, lease_ids: Iterable[str]) -> frozenset[str]:
    """Which of these leases it may use: one statement."""
    known = [lease_id for lease_id in lease_ids if groups.is_uuid(lease_id)]
    found = Lease.objects.using(database()).filter(pk__in=known, worker__app__project=identity.project_id)
    if identity.app_id is not None:
        found = found.filter(worker__app=identity.app_id)
    return frozenset(map(str, found.values_list("pk", flat=True)))


def _check_project(identity: Identity, where: Mapping[str, str]) -> None:
    if where.get("organization", identity.organization) not in (identity.organization, str(identity.organization_id)):
        raise UnknownProject(f"there is no organization {where['organization'][:64]!a}")
    if where.get("project", identity.project) not in (identity.project, str(identity.project_id)):
        raise UnknownProject(f"there is no project {where['project'][:64]!a}")


def moment(field: str, text: str) -> datetime:
    """A moment that every database here can be asked about. Raises `InvalidArgument`."""
    try:
        return max(datetime.fromisoformat(text).astimezone(UTC), _FIRST)
    except (ValueError, OverflowError):
        raise InvalidArgument(field, "no moment that a database can hold") from None


def check_session(identity: Identity, worker_id: str) -> None:
    """Raises `UnknownWorker` where it reaches no worker session of that id, left ones included."""
    workers = Worker.objects.using(database()).filter(app__project=identity.project_id)
    if identity.app_id is not None:
        workers = workers.filter(app=identity.app_id)
    try:
        known = workers.filter(pk=uuid.UUID(worker_id)).exists()
    except ValueError:
        known = False
    if not known:
        raise UnknownWorker(f"worker session {worker_id[:64]} is not known: register again")
