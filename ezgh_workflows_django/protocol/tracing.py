"""W3C trace context, as far as runs need it: which trace, which span in it, whether it is recorded. Pure text; knows no tracer.

What is malformed counts as not given (https://www.w3.org/TR/trace-context/): a start never fails for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

HEADER: Final = "traceparent"

_FORM: Final = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?P<trace>(?!0{32})[0-9a-f]{32})-(?P<span>(?!0{16})[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)
_SAMPLED: Final = 1


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span of a trace: 32 and 16 hex digits. `is_sampled`: it is recorded, and so is to be what hangs under it."""

    trace_id: str
    span_id: str
    is_sampled: bool = True

    def to_text(self) -> str:
        """The `traceparent` that says so."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.is_sampled else '00'}"


def read(traceparent: object) -> TraceContext | None:
    """What a `traceparent` says; None where it is malformed, or none."""
    form = _FORM.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if form is None or (form["version"] == "00" and form["more"] is not None):
        return None
    return TraceContext(form["trace"], form["span"], bool(int(form["flags"], 16) & _SAMPLED))
