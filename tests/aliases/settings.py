"""The test project with three databases: `default`, `workflows`, and a `replica` that never catches up. Its router leads readers astray."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from testproject import settings as of_the_project
from testproject.settings import *  # noqa: F403 - settings are a module's names

ALIAS = "workflows"
OURS = "ezgh_workflows"


def _beside(name: str) -> dict[str, Any]:
    database = deepcopy(of_the_project.DATABASES["default"])
    return {**database, "NAME": f"{database['NAME']}.{name}"}


DATABASES = {"default": of_the_project.DATABASES["default"], ALIAS: _beside(ALIAS), "replica": _beside("replica")}
DATABASE_ROUTERS = ["tests.aliases.settings.Router"]
EZGH_WORKFLOWS = {"DATABASE": ALIAS}


class Router:
    """Sends reads of workflow tables to the replica, which lags for ever."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        """Where rows are read."""
        return "replica" if model._meta.app_label == OURS else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        """Where rows are written."""
        return ALIAS if model._meta.app_label == OURS else None

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        """Workflow tables are in their own database, all others in `default`."""
        return db == (ALIAS if app_label == OURS else "default")
