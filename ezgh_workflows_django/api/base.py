"""What every view of the API is: DRF with classes of its own, whatever the host project sets, and database work where it costs no connection a request.

A view's methods are plain functions, done in one go off the event loop; one that holds its request is `async` and uses `work` by itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from asgiref.sync import markcoroutinefunction
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from drf_spectacular.openapi import AutoSchema
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.permissions import BasePermission
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.serializers import Serializer
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from ..conf import app_settings
from ..engine import permissions
from ..engine.keys import Identity
from ..errors import KeyRefused, NotPermitted
from . import errors, threads, watch
from .callers import KeyAuthentication, Permitted, StaffAuthentication
from .plain_json import JsonParser, refuse_the_rest
from .received import Received
from .throttles import ReadThrottle
from .ticking import ticking

T = TypeVar("T")


class JsonOnly(BaseContentNegotiation):
    """Bodies and answers are JSON, whatever is said or asked for."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        """A body is taken for JSON whatever its type says: a worker in shell sends what `curl -d` sends."""
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        """The one there is."""
        return renderers[0], renderers[0].media_type


class ApiView(APIView):
    """A view of the API. `needs` names, by method, the permissions that a call needs."""

    authentication_classes: Sequence[type[BaseAuthentication]] = (KeyAuthentication,)
    permission_classes: Sequence[type[BasePermission]] = (Permitted,)
    throttle_classes: Sequence[type[BaseThrottle]] = (ReadThrottle,)
    parser_classes = (JsonParser,)
    renderer_classes = (JSONRenderer,)
    content_negotiation_class = JsonOnly
    versioning_class = None
    schema = AutoSchema()
    http_method_names = ["get", "post", "patch", "delete"]

    needs: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        """The view function: awaited by Django, and in no transaction of the host's (`ATOMIC_REQUESTS`) on any of its databases."""
        view: Any = super().as_view(**initkwargs)
        for alias in connections:
            view = transaction.non_atomic_requests(using=alias)(view)
        return markcoroutinefunction(view)

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """As DRF's, with a body however it was sent."""
        parsers, authenticators = self.get_parsers(), self.get_authenticators()
        return Received(request, parsers, authenticators, self.get_content_negotiator(), self.get_parser_context(request))

    async def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:  # type: ignore[override]
        """Answer one request. Only what is a fault of ours comes through as an exception."""
        self.args, self.kwargs, self.headers = args, kwargs, {}
        self.request = call = self.initialize_request(request, *args, **kwargs)
        try:
            response = await self._handle(call, **kwargs)
        except Exception as error:  # noqa: BLE001 - the table of errors tells which are answers; the others are raised again
            response = self.handle_exception(error)
        self.response = self.finalize_response(call, response, *args, **kwargs)
        return self.response if request.method != "HEAD" else _without_body(self.response)

    async def work(self, request: Request, call: Callable[[], T]) -> T:
        """Check who is calling, then do `call`, both off the event loop. Raises what either raises."""
        return await threads.work(request._request, lambda: self._checked(request, call))

    async def work_again(self, request: Request, call: Callable[[], T]) -> T:
        """As `work`, for a request that is answered late or bit by bit: who is calling is checked anew, so that a key which was revoked is told no more."""
        return await threads.work(request._request, lambda: self._checked_again(request, call))

    def read(self, request: Request, shape: type[Serializer[Any]]) -> Any:
        """The request's body in that shape, unknown fields left out. Raises `ValidationError` with every bad field."""
        serializer = shape(data=request.data)
        serializer.is_valid(raise_exception=True)
        return serializer.validated_data

    def read_query(self, request: Request, shape: type[Serializer[Any]]) -> Any:
        """The request's query in that shape. Raises `ValidationError` with every bad field."""
        serializer = shape(data=request.query_params.dict())
        serializer.is_valid(raise_exception=True)
        return serializer.validated_data

    def get_exception_handler(self) -> Callable[[Exception, Any], Any]:
        """Ours, whatever the host has set."""
        return _handle_exception

    def handle_exception(self, exc: Exception) -> Any:
        """The answer to an error; raises what is none of the table."""
        told = errors.told_of(exc)
        if told is None:
            raise exc
        return told.to_response()

    def permission_denied(self, request: Request, message: str | None = None, code: str | None = None) -> Any:
        """Nobody is calling."""
        raise exceptions.NotAuthenticated

    async def _handle(self, request: Request, **kwargs: Any) -> Any:
        name = (request.method or "").lower()
        handler = getattr(self, name, None) if name in self.http_method_names else None
        if handler is None:
            self.headers = {"Allow": ", ".join(self.allowed_methods)}
            raise exceptions.MethodNotAllowed(request.method or "")
        if inspect.iscoroutinefunction(handler):
            return await handler(request, **kwargs)
        return await self.work(request, lambda: handler(request, **kwargs))

    def _checked(self, request: Request, call: Callable[[], T]) -> T:
        _refuse_oversize(request)
        with _watched(request):
            self.initial(request, *self.args, **self.kwargs)
            return call()

    def _checked_again(self, request: Request, call: Callable[[], T]) -> T:
        with _watched(request):
            found = next((found for each in self.get_authenticators() if (found := each.authenticate(request)) is not None), (None, None))
            request.auth = found[1]
            self.check_permissions(request)
            return call()


class WorkerView(ApiView):
    """A view for workers: its calls keep maintenance going, and are never throttled."""

    throttle_classes = ()
    needs: ClassVar[Mapping[str, tuple[str, ...]]] = {"POST": (permissions.POLL,), "GET": (permissions.POLL,)}

    async def _handle(self, request: Request, **kwargs: Any) -> Any:
        answer = await super()._handle(request, **kwargs)
        if ticking.is_due and threads.is_async(request._request):
            threads.threads.post(ticking.tick_if_due)  # the answer does not wait for it
        elif ticking.is_due:
            await threads.work(request._request, ticking.tick_if_due)
        return answer


class RunView(ApiView):
    """A view that staff of the Django site may use too."""

    authentication_classes = (KeyAuthentication, StaffAuthentication)


def caller(request: Request) -> Identity:
    """Who is calling, once that has been checked."""
    identity = request.auth
    assert isinstance(identity, Identity)
    return identity


def _handle_exception(error: Exception, context: Any) -> Any:
    told = errors.told_of(error)
    return None if told is None else told.to_response()


@contextmanager
def _watched(request: Request) -> Iterator[None]:
    """Who is turned away in here is in the trail."""
    try:
        yield
    except (KeyRefused, NotPermitted) as error:
        watch.refused(request._request, error, getattr(request, "_auth", None))
        raise


def _without_body(response: HttpResponse) -> HttpResponse:
    """What HEAD is answered: not every server leaves the body out by itself."""
    response.headers["Content-Length"] = str(len(response.content))
    response.content = b""
    return response


def _refuse_oversize(request: Request) -> None:
    """Raises `TooLarge` before anything is kept, where the request says how long it is."""
    told = request.META.get("CONTENT_LENGTH") or "0"
    if told.isdecimal() and int(told) > app_settings.MAX_REQUEST_BYTES:
        refuse_the_rest(request._request)
