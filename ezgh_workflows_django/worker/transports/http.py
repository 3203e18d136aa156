"""One server over HTTP, as a worker reaches it: sends JSON, gives replies. The only file that knows httpx; knows no call of the protocol.

The API key is in the requests' headers and nowhere else: not in a `repr`, an error or a log line.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import httpx

from ... import __version__
from ...errors import InvalidArgument, InvalidPayload, Unavailable
from ...protocol import codec
from .replies import Reply, seconds_of

PATIENCE: Final = 10.0
"""Seconds that an answer is waited for, after the time for which the server was asked to hold the call."""

IDLE_CONNECTION: Final = 4.0
"""Seconds after which a connection that lies idle is not used again: uvicorn closes it after five."""

_KEY: Final = re.compile(r"[!-~]+\Z")
_OPENED: Final = (".connect_tcp.complete", ".connect_unix_socket.complete", ".start_tls.complete")


class Line:
    """One server and one key: sends a request, gives its reply. Safe from several threads; held calls have connections of their own."""

    def __init__(self, base_url: str, api_key: str, *, through: httpx.BaseTransport | None = None) -> None:
        self.url = _checked_url(base_url)
        key = _checked_key(api_key)
        self._calls, self._holds = (_client(self.url, key, through) for _ in range(2))
        self._streams: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_closed = False
        self.is_interrupted = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        patience: float = PATIENCE,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request and wait `patience` seconds for its reply; bytes go as they are. Raises `Unavailable` where none comes."""
        return self._sent(self._calls, method, path, body, patience, {"params": query, "headers": headers})

    def held(self, path: str, body: Mapping[str, Any], hold: float) -> Reply:
        """As `call`, for a request that the server may hold for so many seconds; `interrupt` ends it."""
        return self._sent(self._holds, "POST", path, body, hold + PATIENCE, {"extensions": {"trace": self._trace}})

    def interrupt(self) -> None:
        """Cut the connections of held calls: the server sees that nobody waits any more."""
        with self._lock:
            self.is_interrupted = True
            streams = list(self._streams)
        for stream in streams:
            _cut(stream)

    def close(self) -> None:
        """Close every connection."""
        self._is_closed = True
        self._calls.close()
        self._holds.close()

    def _sent(self, client: httpx.Client, method: str, path: str, body: Mapping[str, Any] | bytes | None, patience: float, options: Mapping[str, Any]) -> Reply:
        call = f"{method} {path}"
        if self._is_closed:
            raise Unavailable(f"{call}: the connection to the server was closed by this process")
        content = body if body is None or isinstance(body, bytes) else _encoded(body)
        timeout = httpx.Timeout(PATIENCE, read=patience)
        try:
            response = client.request(method, path, content=content, timeout=timeout, **options)
        except httpx.RequestError as error:
            raise Unavailable(f"{call}: {type(error).__name__}: {error}") from None  # its cause holds the request, with the key
        return _reply(call, response)

    def _trace(self, event: str, facts: Mapping[str, Any]) -> None:
        """Take note of each connection that a held call opens, since only from outside the waiting thread can it be cut."""
        if not event.endswith(_OPENED):
            return
        with self._lock:
            self._streams.add(facts["return_value"])
            is_late = self.is_interrupted
        if is_late:
            _cut(facts["return_value"])


def _client(url: httpx.URL, key: str, through: httpx.BaseTransport | None) -> httpx.Client:
    headers = {
        "Authorization": f"Bearer {key}",
        "Accept": "application/json",
        "Content-Type": "application/json",
        "User-Agent": f"ezgh-workflows-django/{__version__}",
    }
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=IDLE_CONNECTION)
    return httpx.Client(base_url=url, headers=headers, limits=limits, transport=through)


def _encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors="replace")


def _reply(call: str, response: httpx.Response) -> Reply:
    try:
        value = codec.loads(response.content) if response.content else None
    except InvalidPayload:
        if response.is_success:  # something in between: a login page, a maintenance page
            raise Unavailable(f"{call} was answered {response.status_code} with what is not JSON: does the base URL lead to the server itself?") from None
        value = None
    return Reply(call, response.status_code, value, seconds_of(response.headers.get("Retry-After")))


def _cut(stream: Any) -> None:
    """End both directions of a connection, which wakes the thread that waits on it; closing it from here would not."""
    connection = stream.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not an SSL socket's own, which would take its state away from the waiting thread


def _checked_url(base_url: str) -> httpx.URL:
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError):
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidArgument("base_url", "has to be the address of the server, such as https://example.com/workflows/")
    if url.userinfo:
        raise InvalidArgument("base_url", "can't hold a name and a password: the api_key is what the server asks for, and one request carries one of them")
    return url


def _checked_key(api_key: str) -> str:
    if not isinstance(api_key, str) or not _KEY.match(api_key.strip()):
        raise InvalidArgument("api_key", "has to be a key as `manage.py workflows_key create` prints it: ezw_…, without blanks")
    return api_key.strip()
