"""What a process that runs bodies for `runworker` works with. Imports nothing that needs Django's apps before it has set Django up."""

from __future__ import annotations

import os

import django

from ..worker.body_process import Home
from ..worker.serving import Serving


def home(settings: str, url: str | None = None, api_key: str | None = None) -> Home:
    """Set Django up in this process, with that settings module; gives its workflows and the way to the server. Raises what Django raises."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", settings)
    django.setup()
    from ..definitions.registry import registry  # filled when the apps are loaded, and the rest can't be imported before
    from ..engine.direct import DirectEngine
    from ..worker.transports.choice import over_http
    from ..worker.transports.direct import DirectTransport
    from .building import surroundings

    transport = over_http(url, api_key, surroundings=surroundings()) if url and api_key else DirectTransport(DirectEngine())
    return Home(transport, Serving(list(registry)))
