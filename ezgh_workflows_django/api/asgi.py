"""`application = bounded(get_asgi_application())` in a project's asgi.py: what is too large is not read, what is held ends with the server.

Django itself reads every body to its end, to disk where it is large, before a view is asked. Only requests to this API are looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from django.urls import Resolver404, resolve

from ..conf import app_settings
from .base import ApiView
from .errors import Told
from .exits import Exit, Message, Receive, Send, send_response
from .plain_json import LINGERING, too_large

Application = Callable[[dict[str, Any], Any, Any], Coroutine[Any, Any, None]]


def bounded(application: Application) -> Application:
    """That application, which never sees a request to this API over `MAX_REQUEST_BYTES`, and lets go of what is held when the server goes."""

    async def wrapped(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        size = _told_size(scope)
        if scope["type"] != "http":
            await application(scope, receive, send)
        elif (size is not None and size <= app_settings.MAX_REQUEST_BYTES) or not _is_ours(scope):
            await _with_exit(application, scope, receive, send)
        elif size is not None:
            await _refuse(receive, send)
        else:
            await _Counted(application, receive, send).run(scope)

    vars(wrapped)["is_bounded"] = True  # check W003 looks for it
    return wrapped


async def _with_exit(application: Application, scope: dict[str, Any], receive: Receive, send: Send) -> None:
    way = Exit(scope, receive, send)
    await application(way.scope, way.receive, way.send)
    await way.end()


class _Counted:
    """A request that does not say how long it is: it is cut off where it turns out too long."""

    def __init__(self, application: Application, receive: Receive, send: Send) -> None:
        self._application = application
        self._receive = receive
        self._send = send
        self._left = app_settings.MAX_REQUEST_BYTES
        self._is_over = False

    async def run(self, scope: dict[str, Any]) -> None:
        await _with_exit(self._application, scope, self._count, self._pass_on)
        if self._is_over:
            await _refuse(self._receive, self._send)

    async def _count(self) -> Any:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        self._is_over = self._is_over or self._left < 0
        return {"type": "http.disconnect"} if self._is_over else message

    async def _pass_on(self, message: Message) -> None:
        if not self._is_over:
            await self._send(message)


def _told_size(scope: dict[str, Any]) -> int | None:
    """How long the request says it is; 0 where it has no body, None where it doesn't say. Only HTTP/1 marks a body without a length."""
    headers = dict(scope.get("headers", ()))
    told = headers.get(b"content-length")
    if told is not None and told.isdigit():
        return int(told)
    return 0 if scope.get("http_version", "1.1").startswith("1") and b"transfer-encoding" not in headers else None


def _is_ours(scope: dict[str, Any]) -> bool:
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    try:
        view = getattr(resolve(path).func, "view_class", None)
    except Resolver404:
        return False
    return isinstance(view, type) and issubclass(view, ApiView)


async def _refuse(receive: Receive, send: Send) -> None:
    """Answer at once, and end only when the client has sent the rest: a client that is still sending would be reset, and never read the answer."""
    answer = Told(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "payload_too_large", too_large(), headers={"Connection": "close"}).to_response()
    await send_response(send, answer, is_last=False)
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGERING):
            while (await receive()).get("more_body"):
                continue
    await send({"type": "http.response.body"})
