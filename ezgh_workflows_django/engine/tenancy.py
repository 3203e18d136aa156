"""Finding apps by name, and the default ones that exist after `migrate`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import QuerySet, Subquery

from ..conf import app_settings
from ..errors import UnknownApp, UnknownProject
from ..models import App, Organization, Project
from .clock import Now, read_at
from .transactions import database, verb

DEFAULT = "default"


def app_now(wanted: App | str | None) -> tuple[App, datetime]:
    """An app as it was found before, or by its name (None: `DEFAULT_APP`), and the database's moment: one statement. Raises `UnknownApp`.

    A developer's own app (`dev-…`) is made by whoever asks for it first.
    """
    app = App.objects.using(database()).annotate(now=Now()).filter(pk=meant(wanted)).first()
    if app is not None:
        return app, read_at(app)
    name = _name_of(wanted)
    if name.startswith(App.DEV_PREFIX):
        provision()
        return app_now(create_app(name, queue=name))
    raise UnknownApp(f'there is no app "{name}": create it, or mend DEFAULT_APP; `migrate` makes the app that it names')


def meant(wanted: App | str | None) -> Any:
    """The id of the app that is meant, to filter by. Code in this process knows apps by name only, and means those of the site's own project."""
    if isinstance(wanted, App):
        return wanted.pk
    return Subquery(App.objects.using(database()).filter(name=_name_of(wanted), project=own_project()).values("pk")[:1])


def own_project() -> Any:
    """The id of the site's own project, to filter by: the first one, which `migrate` makes. The others are those of tenants."""
    return Subquery(Project.objects.using(database()).order_by("pk").values("pk")[:1])


def is_own(app_id: int) -> bool:
    """Whether an app is one of the site's own project: one statement."""
    return App.objects.using(database()).filter(pk=app_id, project=own_project()).exists()


def _name_of(wanted: App | str | None) -> str:
    return wanted.name if isinstance(wanted, App) else wanted or str(app_settings.DEFAULT_APP)


def find_project(organization: str | None = None, project: str | None = None) -> Project:
    """A project by slug or id, for who may see all of them; the oldest that fits. Raises `UnknownProject`."""
    rows = Project.objects.using(database()).select_related("organization").order_by("pk")
    for field, wanted in (("organization", organization), ("project", project)):
        path = "organization__" if field == "organization" else ""
        fitting = rows if wanted is None else rows.filter(**{f"{path}slug": wanted})
        if wanted is not None and wanted.isascii() and wanted.isdecimal() and len(wanted) < 19 and not fitting.exists():
            fitting = rows.filter(**{f"{path}pk": int(wanted)})
        if not fitting.exists():
            raise UnknownProject(f"there is no {field} {wanted[:64]!a}" if wanted is not None else "there is no project in it: `migrate` makes the default one")
        rows = fitting
    return rows[0]


def apps_of(project: Project) -> QuerySet[App]:
    """A project's apps by name."""
    return App.objects.using(database()).filter(project=project).order_by("name")


def find_app(project: Project, name: str) -> App:
    """An app of a project by name or id. Raises `UnknownApp`."""
    apps = apps_of(project)
    app = apps.filter(name=name).first()
    if app is None and name.isascii() and name.isdecimal() and len(name) < 19:
        app = apps.filter(pk=int(name)).first()
    if app is None:
        raise UnknownApp(f'project "{project.slug}" has no app {name[:64]!a}')
    return app


@verb
def create_app(name: str, *, queue: str = DEFAULT, partitions: int = 4) -> App:
    """Create an app of the default project where it is missing; gives back the one that is there."""
    project = Project.objects.using(database()).order_by("pk")[0]
    defaults = {"queue": queue, "partitions": partitions, "created_at": Now()}
    return App.objects.using(database()).get_or_create(project=project, name=name, defaults=defaults)[0]


@verb
def provision() -> App:
    """The default organization, project and app, made where they are missing; idempotent."""
    organization, _ = Organization.objects.using(database()).get_or_create(slug=DEFAULT, defaults={"name": "Default", "created_at": Now()})
    project, _ = Project.objects.using(database()).get_or_create(organization=organization, slug=DEFAULT, defaults={"name": "Default", "created_at": Now()})
    return App.objects.using(database()).get_or_create(project=project, name=DEFAULT, defaults={"created_at": Now()})[0]
