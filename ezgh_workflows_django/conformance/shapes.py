"""What the objects of the protocol have: the fields of an answer, each with what it is. Says what is wrong with one; expects nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from ..protocol.states import CheckpointKind, Delivery, RunStatus, StepStatus

_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


Shape = Mapping[str, Kind]


def _counts(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def or_null(kind: Kind) -> Kind:
    """That kind, or null."""
    return Kind(f"{kind.words}, or null", lambda value: value is None or kind.holds(value))


def one_of(values: type[Any]) -> Kind:
    """One of the values of an enum."""
    known = [str(each.value) for each in values]
    return Kind(f"one of {', '.join(known)}", lambda value: value in known)


def pattern(words: str, regex: str) -> Kind:
    """A text that matches as a whole."""
    return Kind(words, lambda value: isinstance(value, str) and re.fullmatch(regex, value) is not None)


ANY: Final = Kind("any JSON value", lambda value: True)
TEXT: Final = Kind("a text that is not empty", lambda value: isinstance(value, str) and value != "")
STRING: Final = Kind("a text", lambda value: isinstance(value, str))
COUNT: Final = Kind("a whole number of 0 or more", lambda value: _counts(value, 0))
POSITIVE: Final = Kind("a whole number of 1 or more", lambda value: _counts(value, 1))
OBJECT: Final = Kind("an object", lambda value: isinstance(value, dict))
LIST: Final = Kind("a list", lambda value: isinstance(value, list))
TEXTS: Final = Kind("a list of texts", lambda value: isinstance(value, list) and all(isinstance(each, str) and each for each in value))
MOMENT: Final = Kind("a moment in RFC 3339, in UTC", lambda value: isinstance(value, str) and _MOMENT.fullmatch(value) is not None)

REGISTERED: Final[Shape] = {
    "worker_id": TEXT,
    "lease_ttl_ms": POSITIVE,
    "recovery_ms": POSITIVE,
    "offer_ttl_ms": POSITIVE,
    "heartbeat_ms": POSITIVE,
    "max_wait_ms": COUNT,
    "max_claim": POSITIVE,
    "definitions": LIST,
}
LEASE: Final[Shape] = {
    "id": TEXT,
    "token": POSITIVE,
    "run_id": TEXT,
    "workflow": TEXT,
    "version": TEXT,
    "revision": TEXT,
    "step": TEXT,
    "attempt": POSITIVE,
    "input": ANY,
    "steps": OBJECT,
    "state": OBJECT,
    "labels": OBJECT,
    "correlation_id": STRING,
    "idempotency_key": TEXT,
    "delivery": one_of(Delivery),
    "traceparent": pattern("a W3C trace context", r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"),
    "trace_id": pattern("32 hex digits", r"[0-9a-f]{32}"),
    "span_id": pattern("16 hex digits", r"[0-9a-f]{16}"),
    "expires_at": MOMENT,
    "expires_in_ms": POSITIVE,
    "timeout_ms": or_null(POSITIVE),
    "deadline": or_null(MOMENT),
    "checkpoints": LIST,
    "failure": or_null(OBJECT),
}
EXTENDED: Final[Shape] = {"expires_at": MOMENT, "expires_in_ms": POSITIVE}
ENDED: Final[Shape] = {"step": one_of(StepStatus), "run": one_of(RunStatus)}
PARKED: Final[Shape] = {"step": one_of(StepStatus)}
ERROR: Final[Shape] = {"code": TEXT, "message": TEXT}
CHECKPOINT: Final[Shape] = {"name": TEXT, "pos": COUNT, "kind": one_of(CheckpointKind)}


def faults(value: Any, shape: Shape) -> list[str]:
    """What keeps a value from being an object of that shape, a text for each field; empty where it is one. More fields are no fault."""
    if not isinstance(value, dict):
        return ["an object"]
    return [f"`{name}`: {kind.words}" for name, kind in shape.items() if name not in value or not kind.holds(value[name])]


def error_faults(value: Any) -> list[str]:
    """What keeps a body from being the one shape of errors, `{"error": {"code", "message", "fields"?}}`."""
    error = value.get("error") if isinstance(value, dict) else None
    wrong = faults(error, ERROR)
    fields = error.get("fields", {}) if isinstance(error, dict) else {}
    if not isinstance(fields, dict) or not all(isinstance(each, str) for each in fields.values()):
        wrong.append("`fields`: an object of texts")
    return wrong


def moment(text: Any) -> datetime:
    """A moment of an answer. Raises `ValueError` for what is none."""
    if not MOMENT.holds(text):
        raise ValueError(f"{text!r} is no moment in RFC 3339, in UTC")
    return datetime.fromisoformat(str(text))


@dataclass(frozen=True, slots=True)
class Durations:
    """The durations that a server works with, in milliseconds. The defaults stand in for what a server fails to say; `register-answer` tells of that."""

    lease_ttl: int = 30_000
    recovery: int = 30_000
    offer_ttl: int = 10_000
    heartbeat: int = 20_000
    max_wait: int = 24_000

    @classmethod
    def of(cls, told: Any) -> Durations:
        """Those of an answer to `register`."""
        given = told if isinstance(told, dict) else {}
        named = {name: given.get(f"{name}_ms") for name in cls.__slots__}
        return cls(**{name: value for name, value in named.items() if isinstance(value, int) and _counts(value, 0)})
