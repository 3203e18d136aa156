"""How a held request gets out when the server is told to go: its answer is sent at once, past Django, to which its client has gone.

Django's own way out takes each request through a dozen hops between threads: too long for a thousand of them to leave within a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from typing import Any, Final

from django.http import HttpRequest, HttpResponse

logger = logging.getLogger("ezgh_workflows.api")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Message], Awaitable[None]]
Leave = Callable[[HttpResponse], bool]
"""Sends a held request that answer. False where only Django can: the application is not `bounded`."""

_KEY: Final = "ezgh_workflows.exit"
_GONE: Final = {"type": "http.disconnect"}


class Exit:
    """One request's way out, between the server and Django: give Django `scope`, `receive` and `send` of this."""

    def __init__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        self.scope = {**scope, _KEY: self}
        self._receive = receive
        self._send = send
        self._answering: asyncio.Task[None] | None = None
        self._listening: asyncio.Timeout | None = None

    async def receive(self) -> Any:
        """What comes from the server; that the client has gone, once this request has left."""
        if self._answering is not None:
            return _GONE
        try:
            async with asyncio.timeout(None) as self._listening:
                return await self._receive()
        except TimeoutError:
            return _GONE
        finally:
            self._listening = None

    async def send(self, message: Message) -> None:
        """Pass Django's answer on, unless this request has left with another."""
        if self._answering is None:
            await self._send(message)

    async def end(self) -> None:
        """Wait until the answer of a request that has left is sent."""
        if self._answering is not None:
            await self._answering

    def take(self, answer: HttpResponse) -> None:
        """Leave now, with this answer. Only for a request that Django has not begun to answer."""
        if self._answering is None:
            self._answering = asyncio.get_running_loop().create_task(self._leave(answer), name="ezgh-workflows-exit")

    async def _leave(self, answer: HttpResponse) -> None:
        await send_response(self._send, answer)
        if self._listening is not None:
            self._listening.reschedule(asyncio.get_running_loop().time())


def leaving(request: HttpRequest) -> Leave:
    """How a request that is about to be held leaves, when the time comes."""
    way = getattr(request, "scope", {}).get(_KEY)
    if way is None:
        _tell_once()
        return lambda answer: False

    def leave(answer: HttpResponse) -> bool:
        way.take(answer)
        return True

    return leave


@cache
def _tell_once() -> None:
    logger.warning("asgi.py does not wrap its application in ezgh_workflows_django.api.asgi.bounded: requests that are held end slowly when this server does")


async def send_response(send: Send, answer: HttpResponse, *, is_last: bool = True) -> None:
    """Send a whole answer by ASGI. Unless that is the last, an empty body has to follow: the server closes only then."""
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.items()]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": [*headers, (b"content-length", str(len(answer.content)).encode())]})
    await send({"type": "http.response.body", "body": answer.content, "more_body": not is_last})
