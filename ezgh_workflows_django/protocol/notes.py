"""What a report may note beside its outcome: amounts that were used, and the spans they were used in. Read and bounded; prices nothing.

Both sides keep to the same bounds: the worker by never noting more, the engine by refusing whole what has more, by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from ..errors import InvalidPayload
from . import amounts, codec

MAX_PAIRS: Final = 100
"""Pairs of model and unit in one report, and in all of one run."""

MAX_SPAN_PAIRS: Final = 20
"""Pairs of model and unit in one span."""

MAX_SPANS: Final = 1_000
"""Spans in one report."""

MAX_ATTRIBUTES_BYTES: Final = 4 * 1024
"""The attributes of one span, as JSON text."""

MAX_MODEL: Final = 128
MAX_UNIT: Final = 64
MAX_SPAN_NAME: Final = 200
SPAN_ID: Final = "(?!0{16})[0-9a-f]{16}"

Pair = tuple[str, str]
"""A model (empty: none) and a unit."""

_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """An amount of something a body used. `amount` is a decimal as text, so no digit is lost."""

    unit: str
    amount: str
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of a body's time. `attributes` is JSON text of an object; `used` are the amounts of this span alone."""

    id: str
    parent: str | None
    name: str
    started_at: datetime
    ended_at: datetime
    attributes: str
    used: Mapping[Pair, Decimal]


@dataclass(frozen=True, slots=True)
class Notes:
    """What one report notes. `used` counts: what was reported as such, else what the spans add up to."""

    used: Mapping[Pair, Decimal]
    spans: tuple[Span, ...]

    def __bool__(self) -> bool:
        return bool(self.used or self.spans)


NOTHING: Final = Notes({}, ())


def read(usage: Sequence[Usage], spans: Sequence[Mapping[str, Any]]) -> Notes:
    """The notes of a report. Raises `InvalidPayload`, naming the place."""
    if not usage and not spans:
        return NOTHING
    if len(spans) > MAX_SPANS:
        raise InvalidPayload("spans", f"at most {MAX_SPANS:,}, not {len(spans):,}")
    read_spans = tuple(_span(f"spans[{place}]", span) for place, span in enumerate(spans))
    twice = _first_twice(span.id for span in read_spans)
    if twice is not None:
        raise InvalidPayload("spans", f"two have the id {twice}")
    used = _used("usage", usage, None) if usage else together(span.used for span in read_spans)
    if len(used) > MAX_PAIRS:
        raise InvalidPayload("usage", f"at most {MAX_PAIRS} pairs of model and unit, not {len(used)}")
    return Notes(used, read_spans)


def together(several: Iterable[Mapping[Pair, Decimal]]) -> dict[Pair, Decimal]:
    """All these amounts, added up by model and unit."""
    summed: dict[Pair, Decimal] = {}
    for each in several:
        for pair, amount in each.items():
            summed[pair] = amounts.total(summed.get(pair, Decimal(0)), amount)
    return summed


def _used(where: str, usage: Iterable[Usage], most: int | None) -> dict[Pair, Decimal]:
    used = together(_line(f"{where}[{place}]", line) for place, line in enumerate(usage))
    if most is not None and len(used) > most:
        raise InvalidPayload(where, f"at most {most} pairs of model and unit, not {len(used)}")
    return used


def _line(where: str, line: Usage) -> dict[Pair, Decimal]:
    model = "" if line.model is None else _text(f"{where}.model", line.model, MAX_MODEL)
    unit = _text(f"{where}.unit", line.unit, MAX_UNIT)
    try:
        return {(model, unit): amounts.read(line.amount)}
    except ValueError as error:
        raise InvalidPayload(f"{where}.amount", str(error)) from None


def _span(where: str, span: Mapping[str, Any]) -> Span:
    if not isinstance(span, Mapping):
        raise InvalidPayload(where, f"a span is an object, not {type(span).__name__}")
    started_at, ended_at = _moment(f"{where}.start", span.get("start")), _moment(f"{where}.end", span.get("end"))
    if ended_at < started_at:
        raise InvalidPayload(f"{where}.end", "it is before its start")
    parent = span.get("parent")
    return Span(
        id=_span_id(f"{where}.id", span.get("id")),
        parent=None if parent is None else _span_id(f"{where}.parent", parent),
        name=_text(f"{where}.name", span.get("name"), MAX_SPAN_NAME, _UNSTORABLE),
        started_at=started_at,
        ended_at=ended_at,
        attributes=_attributes(f"{where}.attributes", span.get("attributes")),
        used=_used(f"{where}.usage", _lines(f"{where}.usage", span.get("usage")), MAX_SPAN_PAIRS),
    )


def _lines(where: str, usage: Any) -> list[Usage]:
    if usage is None:
        return []
    if not isinstance(usage, list | tuple) or not all(isinstance(each, Mapping) for each in usage):
        raise InvalidPayload(where, "usage is a list of objects")
    return [Usage(unit=each.get("unit"), amount=each.get("amount"), model=each.get("model")) for each in usage]


def _attributes(where: str, attributes: Any) -> str:
    if attributes is None:
        return "{}"
    if not isinstance(attributes, Mapping):
        raise InvalidPayload(where, f"attributes are an object, not {type(attributes).__name__}")
    text = codec.dumps(dict(attributes), limit=None, what=where)
    if len(text.encode()) > MAX_ATTRIBUTES_BYTES:
        raise InvalidPayload(where, f"at most {MAX_ATTRIBUTES_BYTES:,} bytes of JSON, not {len(text.encode()):,}")
    return text


def _span_id(where: str, span_id: Any) -> str:
    if not isinstance(span_id, str) or not re.fullmatch(SPAN_ID, span_id):
        raise InvalidPayload(where, "a span's id is 16 of 0-9 and a-f, and not zeros alone")
    return span_id


def _text(where: str, text: Any, limit: int, never: re.Pattern[str] = _UNPRINTABLE) -> str:
    if not isinstance(text, str) or not 0 < len(text) <= limit:
        raise InvalidPayload(where, f"a text of 1 to {limit} characters is needed")
    if never.search(text):
        raise InvalidPayload(where, "it holds a control character or a lone surrogate")
    return text


def _moment(where: str, text: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None and moment.astimezone(UTC) >= _EARLIEST:
            return moment.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidPayload(where, "a moment with its time zone is needed, as in 2026-01-31T09:00:00Z")


def _first_twice(ids: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for each in ids:
        if each in seen:
            return each
        seen.add(each)
    return None
