"""The testing kit users get: the real engine on the test's own database, on a clock the test moves.

Each name is imported when it is first asked for: `scripted` serves workers' tests where there is no Django.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .expectations import assert_journal, run_body
    from .lab import Lab, LabBlocked
    from .replays import assert_replays, record
    from .scripted import ScriptedTransport, lease_of
    from .turns import BodyStuck

__all__ = ["BodyStuck", "Lab", "LabBlocked", "ScriptedTransport", "assert_journal", "assert_replays", "lease_of", "record", "run_body"]

_MODULES = {
    "expectations": ("assert_journal", "run_body"),
    "lab": ("Lab", "LabBlocked"),
    "replays": ("assert_replays", "record"),
    "scripted": ("ScriptedTransport", "lease_of"),
    "turns": ("BodyStuck",),
}
_HOMES = {name: module for module, exported in _MODULES.items() for name in exported}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
