"""`GET health`: whether the server works, for load balancers and people. No key; says nothing secret."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers
from rest_framework.request import Request

from .. import __version__
from ..engine import maintenance
from . import threads
from .base import ApiView
from .docs import SERVER, call
from .fields import NumberField, SaidField, Shape
from .holds import holds
from .plain_json import to_response


class Health(Shape):
    """How the server is. `late_ms` is how late maintenance was with what it last dealt with; `ticked_ms_ago` is null before its first tick."""

    status = serializers.ChoiceField(choices=["ok"])
    version = SaidField()
    held = NumberField()
    ticked_ms_ago = NumberField(allow_null=True)
    late_ms = NumberField()


class HealthView(ApiView):
    """Whether the server works."""

    authentication_classes = ()
    permission_classes = ()

    @call(SERVER, "Health", None, Health, open_to_all=True)
    async def get(self, request: Request) -> HttpResponse:
        """`ok` where the database answers, else 503. `held` is how many requests this process holds."""
        tick: Any = await self.work(request, maintenance.status)
        held = holds().count if threads.is_async(request._request) else 0
        since = None if tick is None else max(0, round((tick.now - tick.ticked_at).total_seconds() * 1000))
        late = 0 if tick is None else tick.lateness_ms
        return to_response({"status": "ok", "version": __version__, "held": held, "ticked_ms_ago": since, "late_ms": late}, HTTPStatus.OK)
