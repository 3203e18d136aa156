"""JSON in and out: read within bounds, written plainly."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import IO, Any, Final, NoReturn

from django.http import HttpRequest, HttpResponse
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from ..conf import app_settings

LINGERING: Final = 10.0
"""Seconds for which the rest of a request that is refused is taken from its client, unread."""


class TooLarge(Exception):
    """A request over `MAX_REQUEST_BYTES`."""


class JsonParser(BaseParser):
    """Strict JSON in UTF-8. What is none is a 400 that says where."""

    media_type = "application/json"

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        """The value. Raises `ParseError`, `TooLarge`, and `RecursionError` for what is nested too deep."""
        most = app_settings.MAX_REQUEST_BYTES
        try:
            text = stream.read(most + 1)
        except OSError:
            raise ParseError("the connection ended before the body did") from None
        if len(text) > most:
            refuse_the_rest(stream)
        if not text.strip(b" \t\r\n"):
            return {}
        try:
            return json.loads(text, parse_constant=_refuse)
        except ValueError as error:  # UnicodeDecodeError too
            raise ParseError(f"the body is no JSON: {error}") from None


def to_response(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """An answer in JSON."""
    response = HttpResponse(json.dumps(body, separators=(",", ":")), content_type="application/json", status=status, headers=dict(headers or {}))
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        vars(response)["_has_been_logged"] = True  # a refusal is an answer: Django would write a warning for each
    return response


def refuse_the_rest(stream: IO[Any] | HttpRequest) -> NoReturn:
    """Raise `TooLarge` once the client has sent the rest, or for `LINGERING` seconds.

    A server that closes on a client that is still sending resets the connection (RFC 9112, 9.6), and the client never reads why.
    """
    until = time.monotonic() + LINGERING
    with suppress(OSError):  # it has gone
        while time.monotonic() < until and stream.read(65_536):
            continue
    raise TooLarge(too_large())


def too_large() -> str:
    """What is wrong with a request that is not read."""
    return f"a request has at most {app_settings.MAX_REQUEST_BYTES} bytes (MAX_REQUEST_BYTES)"


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")
