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
from ..protocol import codec

_MOST_NAMED: Final = 5
"""How many apps a refusal names, where one of several has to be chosen."""

_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Nothing here is older, and MariaDB can't be asked about all that is."""


def apps(identity: Identity) -> QuerySet[App]:
    """The apps it reaches."""
    found = App.objects.using(database()).filter(project=identity.project_id)
    return found if identity.app_id is None else found.filter(pk=identity.app_id)


def app(identity: Identity, named: str | None, where: Mapping[str, str] | None = None) -> App:
    """An app by name or id; without one the key's own, else `DEFAULT_APP`, else the project's only app.

    `where` are the organization and project that the path names, if any. Raises `UnknownProject`, `UnknownApp`, and `InvalidArgument`
    where none is named and any of several may be meant.
    """
    _check_project(identity, where or {})
    if named is not None and not is_clean(named):
        raise UnknownApp(f"there is no app {named[:64]!a}")
    found = apps(identity).select_related("project")
    if named is None:
        app = found.first() if identity.app_id is not None else found.filter(name=app_settings.DEFAULT_APP).first() or _only(found)
    else:
        app = found.filter(name=named).first() or (found.filter(pk=int(named)).first() if named.isascii() and named.isdigit() and len(named) < 19 else None)
    if app is None:
        raise UnknownApp(f"there is no app {(named or app_settings.DEFAULT_APP)[:64]!a}")
    return app


def app_for_events(identity: Identity, named: str | None) -> App:
    """An app by name or id; without one the key's own, else any that an event for the whole project reaches. Raises `UnknownApp`."""
    if named is not None or identity.app_id is not None:
        return app(identity, named)
    found = _of_the_project(apps(identity)).order_by("pk").first()
    if found is None:
        raise UnknownApp(f'project "{identity.project}" has no app that an event for all of it would reach: create one, or name a developer\'s own in `app`')
    return found


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


def _only(found: QuerySet[App]) -> App | None:
    """The one there is; None where there is none. Raises `InvalidArgument`, naming the first of several."""
    several = list(_of_the_project(found).order_by("name")[: _MOST_NAMED + 1])
    if len(several) > 1:
        names = ", ".join(each.name for each in several[:_MOST_NAMED])
        raise InvalidArgument("app", f"the project has several apps, and none is called {app_settings.DEFAULT_APP!a} (DEFAULT_APP): name one, such as {names}")
    return several[0] if several else None


def _of_the_project(found: QuerySet[App]) -> QuerySet[App]:
    """All but developers' own."""
    return found.exclude(name__startswith=App.DEV_PREFIX)


def _check_project(identity: Identity, where: Mapping[str, str]) -> None:
    if where.get("organization", identity.organization) not in (identity.organization, str(identity.organization_id)):
        raise UnknownProject(f"there is no organization {where['organization'][:64]!a}")
    if where.get("project", identity.project) not in (identity.project, str(identity.project_id)):
        raise UnknownProject(f"there is no project {where['project'][:64]!a}")


def is_clean(text: str) -> bool:
    """Whether every database here can be asked for this text."""
    return codec.clean_text(text, len(text)) == text


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
