"""What the OpenAPI document says of a call: its shapes, and the errors that any call of its kind can be answered with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers

from .fields import JsonField, SaidField, Shape

View = TypeVar("View", bound=Callable[..., Any])

WORKER: Final = "worker"
RUNS: Final = "runs"
TENANCY: Final = "tenancy"
SERVER: Final = "server"

JSON: Final = "application/json"


class ErrorTold(Shape):
    """What went wrong. `fields` has one text for each bad field; `outcome` is the stored one, with `already_applied`."""

    code = SaidField()
    message = SaidField()
    fields = serializers.DictField(child=serializers.CharField(), required=False)  # type: ignore[assignment]
    outcome = JsonField(required=False)


class Error(Shape):
    """Every error has this one shape."""

    error = ErrorTold()


_LINES: Final[Mapping[int, str]] = {
    400: "`invalid`: every bad field is in `fields`.",
    401: "`unauthenticated`: no key, or one that is unknown, expired or revoked.",
    403: "`forbidden`: the message names the permission that is missing.",
    404: "There is no such thing in the key's reach.",
    411: "`length_required`: the server decodes no chunks; say how long the body is.",
    413: "`payload_too_large`: the request, or a value in it.",
    429: "`throttled`: this key calls too often; see `Retry-After`.",
    501: "`not_available`: an optional package is missing on the server; the message says which.",
    503: "`unavailable` or `busy`: the same again, after `Retry-After`.",
}


def call(
    tag: str,
    summary: str,
    body: Any = None,
    answer: Any = None,
    *,
    status: int | Iterable[int] = 200,
    conflicts: str = "",
    query: Any = None,
    also: Iterable[int] = (),
    open_to_all: bool = False,
    media: str = JSON,
    headers: Iterable[OpenApiParameter] = (),
) -> Callable[[View], View]:
    """Describe a view's method. `conflicts` are the codes of its 409s, `also` more statuses that it can answer with, `query` the shape of its query.

    Reads are throttled, but for those of workers: they have a 429. `media` is the type of its answers that are no errors; `headers` are those that it reads.
    """
    statuses = [status] if isinstance(status, int) else list(status)
    told: dict[Any, Any] = {(code if media == JSON else (code, media)): OpenApiResponse(answer, "") for code in statuses}
    usual = [503] if open_to_all else [400, 401, 403, 404, *([411, 413] if body is not None else []), 503]

    def decorate(method: View) -> View:
        read = [429] if method.__name__ == "get" and tag != WORKER and not open_to_all else []
        refused = {code: OpenApiResponse(Error, _LINES[code]) for code in sorted({*usual, *also, *read})}
        conflict = {409: OpenApiResponse(Error, f"{conflicts}.")} if conflicts else {}
        describe: Any = extend_schema(
            tags=[tag],
            operation_id=re.sub(r"[^a-z]+", "_", summary.lower().replace("'", "")),
            summary=summary,
            request=body,
            responses={**told, **refused, **conflict},
            parameters=[*([query] if query is not None else []), *headers],
            auth=[] if open_to_all else None,
        )
        vars(method)["schema"] = AutoSchema  # else that of the host's REST_FRAMEWORK is built upon
        described: View = describe(method)
        return described

    return decorate


def unlisted(method: View) -> View:
    """Leave a view's method out of the document: it is for people, not for programs."""
    vars(method)["schema"] = AutoSchema
    described: View = extend_schema(exclude=True)(method)
    return described
