"""What must exist after `migrate`: the default tenancy, the tick's row, and the definitions this project's code holds."""

from __future__ import annotations

import logging

from ..definitions.graph import Workflow
from ..definitions.registry import registry
from ..models import App
from . import catalog, maintenance, tenancy
from .transactions import database, verb

logger = logging.getLogger("ezgh_workflows.engine")


def provision(using: str) -> None:
    """Make what is missing, where `using` is the workflows' database; idempotent. Each definition is a transaction of its own."""
    if using != database():
        return
    app = tenancy.provision()
    maintenance.ensure_row()
    for workflow in registry:
        _store(app, workflow)


@verb
def _store(app: App, workflow: Workflow) -> None:
    _, now = tenancy.app_now(app.name)
    catalog.store(app, workflow.to_spec(), now)
