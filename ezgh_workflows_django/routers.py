"""The router of projects whose workflows are in a database of their own: `"ezgh_workflows_django.routers.WorkflowsRouter"` in `DATABASE_ROUTERS`."""

from __future__ import annotations

from typing import Any, Final

from .conf import app_settings

APP: Final = "ezgh_workflows"


class WorkflowsRouter:
    """Workflow tables are in the database that `DATABASE` names, and nothing else of that project's is migrated by this rule."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        """Where workflow rows are read; no opinion on others."""
        return app_settings.DATABASE if model._meta.app_label == APP else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        """Where workflow rows are written; no opinion on others."""
        return app_settings.DATABASE if model._meta.app_label == APP else None

    def allow_relation(self, first: Any, second: Any, **hints: Any) -> bool | None:
        """Workflow rows go with each other; no opinion on pairs of others, none across."""
        ours = [each._meta.app_label == APP for each in (first, second)]
        return None if not any(ours) else all(ours)

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        """Workflow tables are made there and nowhere else; no opinion on others."""
        return db == app_settings.DATABASE if app_label == APP else None
