"""What is asked below the API's paths and is none of them: a 404 in the API's own shape, not the site's page."""

from __future__ import annotations

from typing import Any, NoReturn

from django.http import Http404
from rest_framework.request import Request

from .base import ApiView


class NowhereView(ApiView):
    """There is nothing here, by no method and for nobody."""

    authentication_classes = ()
    permission_classes = ()
    throttle_classes = ()

    async def _handle(self, request: Request, **kwargs: Any) -> NoReturn:
        raise Http404
