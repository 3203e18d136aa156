"""Which way a worker reaches its server, from what it is told; and what that way can't do, said before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import InvalidArgument, NotAvailable
from .base import Surroundings, Transport

if TYPE_CHECKING:
    from ..serving import Serving
    from .http import Line


def transport_to(transport: Transport | None, base_url: str | None, api_key: str | None) -> Transport:
    """The transport that was given, or one over HTTP. Raises `InvalidArgument` where it is neither, or both."""
    if transport is not None:
        if base_url is not None or api_key is not None:
            raise InvalidArgument("base_url", "a worker has one way to its server: give a transport, or base_url and api_key")
        return transport
    if base_url is None or api_key is None:
        raise InvalidArgument("base_url" if base_url is None else "api_key", "is missing: a worker needs the server's base_url and an api_key")
    return over_http(base_url, api_key)


def over_http(base_url: str, api_key: str, *, surroundings: Surroundings | None = None, makes_app: bool = False) -> Transport:
    """A transport over HTTP; one that `makes_app` is a developer's. Raises `InvalidArgument`, also where httpx is not installed."""
    with _needing_httpx():
        from .dev_http import DevHttpTransport  # a worker beside its database does not need these
        from .over_http import HttpTransport
    kind = DevHttpTransport if makes_app else HttpTransport
    return kind(base_url, api_key, surroundings=surroundings)


def line_to(base_url: str, api_key: str) -> Line:
    """What sends requests to a server. Raises as `over_http`."""
    with _needing_httpx():
        from .http import Line
    return Line(base_url, api_key)


@contextmanager
def _needing_httpx() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "httpx":
            raise
        raise InvalidArgument("base_url", "a server is reached over HTTP by httpx: pip install 'ezgh-workflows-django[worker]'") from error


def refuse_transactions(serving: Serving, transport: Transport) -> None:
    """Raise `NotAvailable` where a step that is served is transactional and this way knows no transactions."""
    names = serving.transactional()
    if names and not getattr(transport, "does_transactions", True):
        left_out = " ".join(f"--except {name}" for name in names)
        raise NotAvailable(
            f"{', '.join(names)}: a transactional step and its result are one database transaction, which can't be had over HTTP. Run it with the direct "
            f"transport (`manage.py runworker` without --url), and leave it to that worker here: except_={list(names)!r}, or {left_out}"
        )
