"""A request as DRF has it, but for its body: one that comes without a length (in chunks, over HTTP/2) counts as any other.

DRF takes a request without `Content-Length` for one without a body, and would have a worker's output stored as none.
"""

from __future__ import annotations

import io
from typing import Any

from rest_framework.request import Request

from . import threads


class LengthRequired(Exception):
    """The body is in chunks that this server hands on undecoded: nobody can tell where it ends."""


class Received(Request):
    """One request. Its body is read from wherever the server has put it."""

    def _load_stream(self) -> None:
        """Find the body. Raises `LengthRequired`."""
        self._stream: Any = None
        given, meta = self._request, self._request.META
        if threads.is_async(given) or meta.get("CONTENT_LENGTH"):  # under ASGI Django has read it to its end, however long it said to be
            self._stream = io.BytesIO(self.body) if vars(given).get("_read_started") else given
        elif meta.get("wsgi.input_terminated"):  # the server decodes chunks, and ends its input where the body ends
            self._stream = meta["wsgi.input"]
        elif meta.get("HTTP_TRANSFER_ENCODING"):
            raise LengthRequired("a body needs a Content-Length here: this server decodes no chunks")
