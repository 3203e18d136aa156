"""Finding apps by name, and the default ones that exist after `migrate`."""

from __future__ import annotations

from datetime import datetime

from ..conf import app_settings
from ..errors import UnknownApp
from ..models import App, Organization, Project
from .clock import Now, read_at
from .transactions import database, verb

DEFAULT = "default"


def app_now(name: str | None) -> tuple[App, datetime]:
    """An app by name (None: `DEFAULT_APP`), and the database's moment: one statement. Raises `UnknownApp`.

    A developer's own app (`dev-…`) is made by whoever asks for it first.
    """
    wanted = name or str(app_settings.DEFAULT_APP)
    app = App.objects.using(database()).annotate(now=Now()).filter(name=wanted).order_by("pk").first()
    if app is not None:
        return app, read_at(app)
    if wanted.startswith(App.DEV_PREFIX):
        provision()
        return app_now(create_app(wanted, queue=wanted).name)
    raise UnknownApp(f'there is no app "{wanted}": create it, or mend DEFAULT_APP; `migrate` makes the app "{DEFAULT}"')


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
