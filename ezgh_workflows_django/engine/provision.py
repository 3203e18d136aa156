"""What must exist after `migrate`: the default tenancy, the tick's row, the gates of admissions, and the definitions this project's code holds.

The app `default` is always made; the definitions are stored in the one that `DEFAULT_APP` names (`home`).
"""

from __future__ import annotations

import logging

from ..definitions.graph import Workflow
from ..definitions.registry import registry
from ..models import App, Timetable
from . import catalog, following, gates, home, maintenance, tenancy
from .transactions import database, verb

logger = logging.getLogger("ezgh_workflows.engine")


def provision(using: str) -> None:
    """Make what is missing, where `using` is the workflows' database; idempotent. Each definition is a transaction of its own.

    Raises `InvalidArgument` where `DEFAULT_APP` is no name that an app can have.
    """
    if using != database():
        return
    tenancy.provision()
    maintenance.ensure_row()
    _make_gates()
    app = home.app()
    for workflow in registry:
        _store(app, workflow)
    for timetable in Timetable.objects.using(database()).filter(due_at__isnull=False).values_list("pk", flat=True):
        following.follow(timetable)
    home.settle(app)


@verb
def _make_gates() -> None:
    gates.ensure()


@verb
def _store(app: App, workflow: Workflow) -> None:
    _, now = tenancy.app_now(app)
    catalog.store(app, workflow.to_spec(), now)
