"""How another process of this project reaches the same engine. Imports nothing that needs Django's apps before it has set Django up."""

from __future__ import annotations

import os

import django

from ..worker.transports.direct import DirectTransport


def transport(settings: str) -> DirectTransport:
    """Set Django up in this process, with that settings module, and give a transport. Raises what Django raises."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", settings)
    django.setup()
    from .direct import DirectEngine  # its models can't be imported before the apps are loaded

    return DirectTransport(DirectEngine())
