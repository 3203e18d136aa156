"""Calls a server as one key, and notes what is sent. Raises for no answer: what came, or that nothing came, is the check's to judge."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ..errors import Unavailable
from ..worker.transports.replies import Reply
from .answers import Answer, as_text, shown
from .findings import Seen

if TYPE_CHECKING:
    from ..worker.transports.http import Line

API: Final = "v1/api"
LONGEST_REST: Final = 5.0
TRIES: Final = 5


class Wire:
    """One server and one key. `patience` is how many seconds an answer is waited for, beside what a call may be held."""

    def __init__(self, line: Line, log: list[Seen], patience: float) -> None:
        self._line = line
        self._log = log
        self._patience = patience

    def post(self, path: str, body: Mapping[str, Any] | bytes | None = None, *, hold: float = 0.0) -> Answer:
        """`POST v1/api/{path}`, with an empty object where no body is given. Bytes go as they are."""
        return self.call("POST", f"{API}/{path}", {} if body is None else body, hold=hold)

    def get(self, path: str) -> Answer:
        """`GET v1/api/{path}`."""
        return self.call("GET", f"{API}/{path}")

    def call(self, method: str, path: str, body: Mapping[str, Any] | bytes | None = None, *, hold: float = 0.0) -> Answer:
        """One request. A server that asks to come back later is asked again, a few times."""
        sent = f"{method} {path}" + ("" if body is None else f" {shown(as_text(body))}")
        for _ in range(TRIES):
            try:
                reply = self._line.call(method, path, body, patience=self._patience + hold)
            except Unavailable as error:
                return Answer(sent, None, self._log, f"no answer that can be read: {error}")
            if not _is_for_later(reply, path):
                break
            time.sleep(min(reply.retry_after or 0, LONGEST_REST))
        return Answer(sent, reply, self._log)


def _is_for_later(reply: Reply, path: str) -> bool:
    """Whether the same request is to be sent again: the database is away, or the key calls too often, which no call on a lease may be told."""
    if reply.retry_after is None:
        return False
    return reply.status == 503 or (reply.status == 429 and not path.startswith(f"{API}/steps/"))
