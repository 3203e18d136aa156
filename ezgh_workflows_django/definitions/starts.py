"""What a start asks for, and the mark for "no payload given". Holds values, starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Final

from .durations import Duration


class Missing(Enum):
    """The type of `MISSING`: a payload that was not given, which is not the payload `None`."""

    MISSING = "missing"

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing.MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start among many (`Workflow.start_many`): a payload with its own labels, key and time.

    `at` is an aware datetime, `delay` a timedelta or seconds; at most one of them. `subject` is a model instance. `traceparent` is the span (W3C)
    whose trace the run joins; without one it is the span that surrounds the call, where OpenTelemetry is installed.
    """

    payload: Any = MISSING
    labels: Mapping[str, str] = field(default_factory=dict)
    idempotency_key: str | None = None
    correlation_id: str | None = None
    at: datetime | None = None
    delay: Duration | None = None
    priority: int = 0
    subject: Any = None
    traceparent: str | None = None


def as_start(item: Any) -> Start:
    """`item` itself where it is a `Start`, else a start with that payload."""
    return item if isinstance(item, Start) else Start(payload=item)
