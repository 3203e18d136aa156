"""The Django app: finds the projects' workflows, fills the seam, provisions after `migrate`. No query at import or `ready`."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate
from django.utils.module_loading import module_has_submodule

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
        from . import checks  # noqa: F401 - registers itself
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

    Raises `InvalidWorkflow`, with every fault of a module, where two different workflows have one name and revision.
    """
    for config in apps.get_app_configs():
        if config.module is not None and module_has_submodule(config.module, MODULE):
            _collect(import_module(f"{config.name}.{MODULE}"))


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
