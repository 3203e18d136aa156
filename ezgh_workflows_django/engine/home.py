"""The app of this project's own definitions: the one that `DEFAULT_APP` names, where its starts and workers go; and leaving the one it was.

A definition that is stored in two apps fires its schedules in both. So when `DEFAULT_APP` is changed, the next `migrate` stores the definitions
in the app that is named now, and pauses their schedules in the one that was named before. A pause is seen, says why, and can be ended.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from django.db.models import QuerySet

from ..conf import app_settings
from ..definitions.registry import registry
from ..errors import InvalidArgument
from ..models import App, Project, Schedule, Trail
from . import schedules, tenancy, trail
from .apps import name_fault
from .clock import Now, read_at
from .transactions import database, verb

logger = logging.getLogger("ezgh_workflows.engine")

REASON: Final = "DEFAULT_APP names another app now, and this schedule fires there"
"""Why a schedule was paused that was left behind: by it those are known that fire again when the setting is changed back."""

CHANGED: Final = "ChangeDefaultApp"


def app() -> App:
    """The app of the site's own project that `DEFAULT_APP` names; made where it is missing. Raises `InvalidArgument`."""
    found = App.objects.using(database()).filter(pk=tenancy.meant(None)).first()
    if found is not None:
        return found
    name = str(app_settings.DEFAULT_APP)
    if fault := name_fault(name):
        raise InvalidArgument("DEFAULT_APP", fault)
    return tenancy.create_app(name, queue=name if name.startswith(App.DEV_PREFIX) else tenancy.DEFAULT)


def settle(here: App) -> None:
    """Let this project's schedules fire here and no more where `DEFAULT_APP` sent them before; idempotent, each in a transaction of its own.

    A developer's own app is another copy of the project: it takes nothing along, and nobody comes from it.
    """
    if here.is_dev:
        return
    for schedule in _ours(here).filter(paused_reason=REASON):
        schedules.resume(schedule.pk, by=trail.SYSTEM)
    former = _former()
    if former == here.name:
        return
    left = list(_firing(former))
    for schedule in left:
        schedules.pause(schedule.pk, by=trail.SYSTEM, reason=REASON)
    _remember(here, former)
    if left:
        logger.warning('DEFAULT_APP was "%s" and is "%s" now: %d schedules were paused in the former, and fire in the new one', former, here.name, len(left))


def left_behind() -> str | None:
    """The app named before, where this project's schedules fire until `migrate` has run; None where there is none. Two statements at most."""
    name, former = str(app_settings.DEFAULT_APP), _former()
    if name == former or name.startswith(App.DEV_PREFIX):
        return None
    return former if _firing(former).exists() else None


def _former() -> str:
    """The app that `DEFAULT_APP` named when `migrate` last ran: the trail has each change of it."""
    rows = Trail.objects.using(database()).filter(project=tenancy.own_project(), action=CHANGED)
    last = rows.order_by("-pk").values_list("target", flat=True).first()
    return tenancy.DEFAULT if last is None else last


@verb
def _remember(here: App, former: str) -> None:
    now = read_at(Project.objects.using(database()).annotate(now=Now()).get(pk=here.project_id))
    trail.record(here.project_id, now, CHANGED, actor=trail.SYSTEM, target=("app", here.name), was=former)


def _firing(name: str) -> QuerySet[Schedule]:
    """This project's schedules that fire in the app of that name."""
    return _ours(tenancy.meant(name)).filter(paused_at=None)


def _ours(app_id: Any) -> QuerySet[Schedule]:
    """The schedules in that app of the workflows whose code is here."""
    return Schedule.objects.using(database()).current().filter(app=app_id, workflow__in={workflow.name for workflow in registry}).order_by("pk")
