"""`GET metrics`: what Prometheus scrapes, for the apps in a key's reach. Needs the extra `metrics`."""

from __future__ import annotations

from http import HTTPStatus
from importlib.util import find_spec
from typing import Final

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request

from ..engine import metrics
from ..engine.metrics import Reading
from . import reach, threads
from .base import ApiView, caller
from .docs import SERVER, call
from .errors import Told
from .holds import holds

MISSING: Final = "metrics need prometheus-client on the server: pip install ezgh-workflows-django[metrics]"


class MetricsView(ApiView):
    """The page of metrics."""

    needs = {"GET": ("workflows.metrics.read",)}

    @call(SERVER, "Get metrics", None, OpenApiTypes.STR, media="text/plain", also=(501,))
    async def get(self, request: Request) -> HttpResponse:
        """For Prometheus, of the apps in the key's reach. 501 where the server lacks the extra `metrics`."""
        can_tell = find_spec("prometheus_client") is not None
        readings = await self.work(request, lambda: list(metrics.read(reach.apps(caller(request)))) if can_tell else [])
        if not can_tell:
            return Told(HTTPStatus.NOT_IMPLEMENTED, "not_available", MISSING).to_response()
        from . import exposition  # it imports what may be missing

        held = holds().count if threads.is_async(request._request) else 0
        return HttpResponse(exposition.text_of([*readings, Reading("held_requests", (), held)]), content_type=exposition.MEDIA)
