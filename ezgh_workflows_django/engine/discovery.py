"""The modules that are found by their name in installed apps, `workflows` and `tasks`, and how a project's code is imported. Knows not what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import module_has_submodule


def modules(name: str) -> Iterator[ModuleType]:
    """The module of that name of every installed app that has one. Raises as `imported`."""
    for config in apps.get_app_configs():
        if config.module is not None and module_has_submodule(config.module, name):
            yield imported(f"{config.name}.{name}")


def imported(path: str) -> ModuleType:
    """The module of that path. Raises what its import raises; `ImproperlyConfigured` for a `sys.exit`, which would end every command without a word."""
    try:
        return import_module(path)
    except SystemExit as error:
        raise ImproperlyConfigured(
            f'{path} called sys.exit({error.code!r}) while it was imported: keep what is for a script below `if __name__ == "__main__"`, or out of it'
        ) from error
