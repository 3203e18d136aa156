"""The Django app: finds the projects' workflows, fills the seam, provisions after `migrate`. No query at import or `ready`."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate

from .errors import InvalidWorkflow

MODULE = "workflows"
DUPLICATE = "ezgh_workflows.E008"


class EzghWorkflowsConfig(AppConfig):
    """`INSTALLED_APPS = [..., "ezgh_workflows_django"]`."""

    name = "ezgh_workflows_django"
    label = "ezgh_workflows"
    verbose_name = "Workflows"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Fill the seam, collect every installed app's `workflows` module, register the checks."""
        from . import checks, code_checks  # noqa: F401 - register themselves
        from .contrib import telemetry
        from .contrib.tasks import wiring as tasks
        from .definitions import seam
        from .engine.entry import Entry

        seam.fill(Entry())
        telemetry.connect()
        collect_workflows()
        tasks.connect()
        post_migrate.connect(_provision, sender=self, dispatch_uid="ezgh_workflows.provision")


def collect_workflows() -> None:
    """Import the `workflows` module of every installed app that has one, and register what is bound there.

    Raises `InvalidWorkflow`, with every fault of a module, where two different workflows have one name and revision; `ImproperlyConfigured`
    where a module calls `sys.exit`.
    """
    from .engine import discovery

    for module in discovery.modules(MODULE):
        _collect(module)


def _collect(module: ModuleType) -> None:
    from .definitions.registry import registry

    try:
        registry.collect(module)
    except InvalidWorkflow as error:
        raise InvalidWorkflow([f"({DUPLICATE}) {fault}" for fault in error.faults]) from error


def _provision(sender: Any, using: str = "default", **_: Any) -> None:
    from .contrib.tasks import wiring as tasks
    from .engine.provision import provision

    provision(using)
    tasks.provision(using)
