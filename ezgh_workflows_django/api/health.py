"""`GET health`: whether the server works, for load balancers and people. No key; says nothing secret."""

from __future__ import annotations

import math
import time
from http import HTTPStatus
from typing import Any, Final

from django.http import HttpResponse
from rest_framework import serializers
from rest_framework.request import Request

from .. import __version__
from ..engine import apps, maintenance
from . import threads
from .base import ApiView
from .docs import SERVER, call
from .fields import NumberField, SaidField, Shape
from .holds import holds
from .plain_json import to_response

COUNTED_EVERY: Final = 30.0
"""Seconds for which a process that has counted the stranded runs says the same number: anybody may ask for health, as often as he likes."""

MOST_COUNTED: Final = 1_000


class StrandedCount:
    """How many runs are stranded, of all apps: as this process last counted them."""

    def __init__(self) -> None:
        self._counted_at, self._count = -math.inf, 0

    def count(self, now: float) -> int:
        """The number, at most `MOST_COUNTED`, counted anew where that was `COUNTED_EVERY` ago; `now` is in seconds of a monotonic clock."""
        if now - self._counted_at >= COUNTED_EVERY:
            self._count, self._counted_at = apps.count_stranded(MOST_COUNTED), now
        return self._count


STRANDED: Final = StrandedCount()


class Health(Shape):
    """How the server is.

    `late_ms` is how late maintenance was with what it last dealt with; `ticked_ms_ago` is null before its first tick. `stranded` counts the
    open runs of all apps that no live worker serves, up to 1,000, as of at most half a minute ago.
    """

    status = serializers.ChoiceField(choices=["ok"])
    version = SaidField()
    held = NumberField()
    ticked_ms_ago = NumberField(allow_null=True)
    late_ms = NumberField()
    stranded = NumberField()


class HealthView(ApiView):
    """Whether the server works."""

    authentication_classes = ()
    permission_classes = ()
    http_method_names = ["get", "head"]  # monitors ask by HEAD

    @call(SERVER, "Health", None, Health, open_to_all=True)
    async def get(self, request: Request) -> HttpResponse:
        """`ok` where the database answers, else 503. `held` is how many requests this process holds."""
        tick, stranded = await self.work(request, _look)
        held = holds().count if threads.is_async(request._request) else 0
        since = None if tick is None else max(0, round((tick.now - tick.ticked_at).total_seconds() * 1000))
        late = 0 if tick is None else tick.lateness_ms
        told = {"status": "ok", "version": __version__, "held": held, "ticked_ms_ago": since, "late_ms": late, "stranded": stranded}
        return to_response(told, HTTPStatus.OK)


def _look() -> tuple[Any, int]:
    """The tick's row, and how many runs are stranded."""
    return maintenance.status(), STRANDED.count(time.monotonic())
