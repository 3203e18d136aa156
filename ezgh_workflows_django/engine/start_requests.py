"""What a start asks for, checked and encoded before anything of it is written."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import models

from ..definitions.durations import MAX_SPAN_MS, milliseconds
from ..definitions.starts import MISSING, Start
from ..errors import InvalidArgument
from ..protocol import codec
from . import payloads

MAX_LABELS = 32
MAX_LABEL = 128
MAX_PRIORITY = 100


@dataclass(frozen=True, slots=True)
class Origin:
    """What starts a run where no caller does: an occurrence of a schedule. `told` is what the run's journal says of it."""

    occurrence: int
    told: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """One start, checked and encoded: nothing of it can fail on its values any more. `run_id` is given where somebody knows the run already."""

    start: Start
    payload: str | None
    labels: str
    subject: tuple[str, str] | tuple[None, None]
    origin: Origin | None = None
    run_id: uuid.UUID | None = None


def start_at(requested: Start, now: datetime) -> datetime:
    """When the run is due. Raises `InvalidArgument`."""
    if requested.at is not None and requested.delay is not None:
        raise InvalidArgument("at", "give at or delay, not both")
    if requested.at is not None:
        if not isinstance(requested.at, datetime) or requested.at.tzinfo is None:
            raise InvalidArgument("at", "an aware datetime is needed: 09:00 of which time zone?")
        if requested.at - now > timedelta(milliseconds=MAX_SPAN_MS):
            raise InvalidArgument("at", "at most 3,650 days from now")
        return requested.at.astimezone(UTC) if requested.at > now else now  # the first day of all can't change its zone
    if requested.delay is None:
        return now
    try:
        delay_ms = milliseconds(requested.delay)
    except ValueError as error:
        raise InvalidArgument("delay", str(error)) from None
    if not 0 <= delay_ms <= MAX_SPAN_MS:
        raise InvalidArgument("delay", "0 to 3,650 days")
    return now + timedelta(milliseconds=delay_ms)


def checked(requested: Start) -> Request:
    """The request of a start. Raises `InvalidArgument`, `InvalidPayload`."""
    if isinstance(requested.priority, bool) or not isinstance(requested.priority, int) or abs(requested.priority) > MAX_PRIORITY:
        raise InvalidArgument("priority", f"a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
    for field in ("idempotency_key", "correlation_id"):
        _check_text(field, getattr(requested, field), 255)
    return Request(
        start=requested,
        payload=None if requested.payload is MISSING else payloads.to_text(requested.payload, "payload"),
        labels=_labels_text(requested.labels),
        subject=(None, None) if requested.subject is None else subject_of(requested.subject),
    )


def _labels_text(labels: Mapping[str, str] | None) -> str:
    labels = {} if labels is None else labels
    if not isinstance(labels, Mapping):
        raise InvalidArgument("labels", f"a mapping of text to text is needed, not {type(labels).__name__}")
    if len(labels) > MAX_LABELS:
        raise InvalidArgument("labels", f"at most {MAX_LABELS}, not {len(labels)}")
    for name, value in labels.items():
        if not name:
            raise InvalidArgument("labels", "a label needs a name")
        _check_text(f"labels.{name}", name, MAX_LABEL)
        _check_text(f"labels.{name}", value, MAX_LABEL)
    return codec.dumps(dict(labels), limit=None, what="labels")


def _check_text(field: str, value: object, length: int) -> None:
    if value is None and not field.startswith("labels"):
        return
    if not isinstance(value, str):
        raise InvalidArgument(field[:140], f"a text is needed, not {type(value).__name__}")
    if len(value) > length or codec.clean_text(value, length) != value:
        raise InvalidArgument(field[:140], f"at most {length} characters, no NUL and no lone surrogate")


def subject_of(subject: Any) -> tuple[str, str]:
    """The model and the key that runs of this instance are found by; a proxy means the model it stands for. Raises `InvalidArgument`."""
    if not isinstance(subject, models.Model) or subject.pk is None:
        raise InvalidArgument("subject", "a saved model instance is needed")
    model = subject._meta.concrete_model or type(subject)
    return model._meta.label_lower, str(subject.pk)
