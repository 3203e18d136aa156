"""One answer of the server, as it came, and what can be expected of it. Each expectation is noted; one that does not hold ends the check."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ..worker.transports.replies import Reply
from .findings import Mismatch, Seen
from .shapes import Shape, error_faults, faults

MOST_SHOWN: Final = 2_000
"""How many characters of a request or an answer a report shows."""


class Answer:
    """What came for one request. `reply` is None where nothing came that can be read, and `came` says why."""

    def __init__(self, sent: str, reply: Reply | None, log: list[Seen], came: str = "") -> None:
        self.sent = sent
        self.came = came if reply is None else shown(f"{reply.status} {as_text(reply.value)}")
        self._reply = reply
        self._log = log

    @property
    def status(self) -> int | None:
        """The HTTP status; None where no answer came."""
        return None if self._reply is None else self._reply.status

    @property
    def value(self) -> Any:
        """The JSON body; None where there is none."""
        return None if self._reply is None else self._reply.value

    @property
    def code(self) -> str | None:
        """The code of a refusal; None where it is none in the shape of errors."""
        return None if error_faults(self.value) else str(self.value["error"]["code"])

    def __getitem__(self, field: str) -> Any:
        """A field of the body, which has to be there."""
        self.expect(isinstance(self.value, dict) and field in self.value, f"`{field}` in the answer")
        return self.value[field]

    def expect(self, holds: object, expected: str) -> None:
        """Note what was expected; raises `Mismatch` where it does not hold."""
        self._log.append(Seen(self.sent, expected, self.came))
        if not holds:
            raise Mismatch(expected)

    def ok(self, *statuses: int) -> Answer:
        """Expect a yes: 200, or one of these, with a JSON object. Returns itself."""
        wanted = statuses or (200,)
        self.expect(self.status in wanted and isinstance(self.value, dict), f"{' or '.join(map(str, wanted))} with an object")
        return self

    def shaped(self, shape: Shape) -> Answer:
        """Expect a yes whose object has these fields. Returns itself."""
        self.ok()
        self.expect(not (wrong := faults(self.value, shape)), "; ".join(wrong) or f"the fields {', '.join(shape)}")
        return self

    def refused(self, status: int, code: str | None = None) -> Mapping[str, Any]:
        """Expect this refusal, in the one shape of errors. Returns the error."""
        wanted = f'{status} {{"error": {{"code": {json.dumps(code) if code else "…"}, "message": …}}}}'
        self.expect(self.status == status and self.code is not None and code in (None, self.code), wanted)
        error: Mapping[str, Any] = self.value["error"]
        return error


def as_text(value: Any) -> str:
    """A JSON value as a report shows it; bytes as they were sent."""
    if isinstance(value, bytes):
        return value[: MOST_SHOWN * 2].decode(errors="replace")
    return json.dumps(value, ensure_ascii=False)


def shown(text: str) -> str:
    """A text cut to what a report has room for."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}… ({len(text):,} characters)"
