"""Values to JSON text and back: what every database here can keep unchanged, and nothing else.

Owns the rules of what may be stored (spec: engine.md "Data") and names the place of what may not, as in `output.items[3].name`.
Knows no type of a user's but by its shape; decoding into one is `definitions.bodies`.

Beyond plain JSON it takes what Django users expect: datetimes, dates, times (ISO 8601, UTC as `Z`, microseconds kept), timedeltas (ISO 8601
durations), Decimals and UUIDs (text), enums (their value), dataclasses, named mappings, tuples, sets (in a stable order), pydantic models, lazy texts.
Keys are text; an int, UUID or enum as a key becomes text, and two keys that become the same text are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from ..errors import InvalidPayload, PayloadTooLarge

MAX_DEPTH: Final = 100
"""Containers within containers; the databases' own limits differ, this one is the same everywhere."""

MAX_PATH: Final = 200
"""Characters of a path in an error; a longer one is cut in its middle."""

MAX_DIGITS: Final = 4_300
"""Python itself writes and reads no longer integer."""

_PLAIN_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_NUL: Final = "\0"
_ESCAPED_NUL: Final = "\\u0000"
_NAMES_OF_UNSTORABLE: Final = {True: "a NUL", False: "a lone surrogate"}
_NAMES_OF_FLOATS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_TEXT_ONLY: Final = frozenset({str})
_CHECKED: Final = frozenset({str, int, float})
_TOO_LONG: Final = 10**MAX_DIGITS


def dumps(value: Any, *, limit: int | None, what: str) -> str:
    """The JSON text of a value, key order kept, at most `limit` bytes of UTF-8. `what` starts the path in errors.

    Raises `InvalidPayload` or `PayloadTooLarge`; never anything else, whatever the value.
    """
    if not _is_plain(value, limit):
        value = plain(value, what, limit)
    try:
        text = _ENCODER.encode(value)
    except (ValueError, RecursionError) as error:
        raise _first_fault(value, what) or InvalidPayload(what, str(error)) from None
    _refuse_unstorable(text, value, what)
    _refuse_oversize(text, limit, what)
    return text


def loads(text: str | bytes) -> Any:
    """The value of a JSON text. Raises `InvalidPayload` for what is not JSON, NaN and Infinity included, and for hostile depth."""
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise InvalidPayload("payload", f"is nested deeper than {MAX_DEPTH}") from None
    except ValueError as error:
        raise InvalidPayload("payload", f"is not JSON: {error}") from None


def plain(value: Any, what: str, limit: int | None = None) -> Any:
    """The plain JSON value of `value`: dicts with text keys, lists, str, int, float, bool, None. Raises `InvalidPayload`.

    With a `limit` in bytes, a value that has more items than that is refused before it is walked to its end.
    """
    return _Walk(what, limit).plain(value, 0)


def clean_text(text: Any, limit: int) -> str:
    """A text that can always be stored: NUL and lone surrogates as U+FFFD, at most `limit` characters. Never raises."""
    try:
        cleaned = _UNSTORABLE.sub("\ufffd", str(text))
    except Exception as error:  # noqa: BLE001 - a user's own __str__
        cleaned = f"<{type(text).__name__} whose text failed: {type(error).__name__}>"
    return cleaned if len(cleaned) <= limit else cleaned[: max(0, limit - 1)] + "…"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def _is_plain(value: Any, limit: int | None) -> bool:
    """Whether the fast way is safe: exact JSON types, text keys, no hostile depth or spread. Looks at containers only, so it is cheap."""
    if type(value) in _PLAIN_SCALARS:
        return True
    level, budget = [value], limit or 1 << 62
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            if type(container) is dict:
                if not _TEXT_ONLY.issuperset(map(type, container)):
                    return False
                items: Any = container.values()
            elif type(container) is list:
                items = container
            else:
                return False
            budget -= len(items)  # each item is a byte at least
            below += [item for item in items if type(item) not in _PLAIN_SCALARS]
        if not below:
            return True
        if budget < 0:
            return False
        level = below
    return False


class _Walk:
    """One slow walk through a value: turns it plain, and knows the path it is at. Recursion is bounded by `MAX_DEPTH`."""

    def __init__(self, what: str, limit: int | None) -> None:
        self._path = [what]
        self._limit = limit
        self._items = 0

    def plain(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in _PLAIN_SCALARS:
            return self._scalar(value)
        if depth > MAX_DEPTH:
            raise self._fault(f"is nested deeper than {MAX_DEPTH}")
        if kind in (dict, list):
            return self._container(value, depth)
        return self.plain(self._converted(value), depth + 1 if isinstance(value, Enum) else depth)

    def _scalar(self, value: Any) -> Any:
        if type(value) is str and (found := _UNSTORABLE.search(value)):
            raise self._fault(f"holds {_NAMES_OF_UNSTORABLE[found.group() == _NUL]} at character {found.start()}")
        if type(value) is float and value - value != 0:
            raise self._fault(f"is {_NAMES_OF_FLOATS.get(str(value), value)}, which is not JSON")
        if type(value) is int and abs(value) >= _TOO_LONG:
            raise self._fault(f"is an integer of over {MAX_DIGITS} digits")
        return value

    def _container(self, value: Any, depth: int) -> Any:
        self._items += len(value)
        if depth >= MAX_DEPTH:
            raise self._fault(f"is nested deeper than {MAX_DEPTH}")
        if self._limit is not None and self._items > self._limit:
            raise PayloadTooLarge(self._path[0], f"is over {self._limit} bytes: keep it elsewhere and pass its address")
        return self._mapping(value, depth) if type(value) is dict else [self._item(f"[{index}]", item, depth) for index, item in enumerate(value)]

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, item in value.items():
            text = self._key(key)
            if text in result:
                raise self._fault(f"has two keys that are both {text!r} as text")
            result[text] = self._item(_as_path(text), item, depth)
        return result

    def _key(self, key: Any) -> str:
        text = key.value if isinstance(key, Enum) else key
        if isinstance(text, (int, UUID)) and not isinstance(text, bool):
            text = str(text)
        if not isinstance(text, str):
            raise self._fault(f"has a key of type {type(key).__name__}, keys are text: use str(...) on {key!r:.60}")
        if _UNSTORABLE.search(text):
            raise self._fault(f"has a key with a NUL or a lone surrogate: {text!a:.60}")
        return str.__str__(text)

    def _item(self, part: str, item: Any, depth: int) -> Any:
        if type(item) in _PLAIN_SCALARS and type(item) not in _CHECKED:
            return item
        self._path.append(part)
        result = self.plain(item, depth + 1)
        self._path.pop()
        return result

    def _converted(self, value: Any) -> Any:
        try:
            for kind, convert in _CONVERSIONS:
                if isinstance(value, kind):
                    return convert(value)
            if is_dataclass(value) and not isinstance(value, type):
                return {field.name: getattr(value, field.name) for field in fields(value)}
            if hasattr(value, "model_dump") and not isinstance(value, type):
                return value.model_dump(mode="json", by_alias=True)
        except InvalidPayload:
            raise
        except Exception as error:  # a user's own properties, and what pydantic makes of them
            raise self._fault(f"can't be turned into JSON: {type(error).__name__}: {clean_text(error, 200)}") from error
        if type(value).__name__ == "__proxy__":  # Django's lazy texts; this package half does not know Django
            return str(value)
        raise self._fault(f"is a {type(value).__name__}, which can't be stored as JSON")

    def _fault(self, reason: str) -> InvalidPayload:
        path = "".join(self._path)
        return InvalidPayload(path if len(path) <= MAX_PATH else f"{path[: MAX_PATH // 2]}…{path[-MAX_PATH // 2 :]}", reason)


def _as_path(key: str) -> str:
    return f".{key}" if _NAME.match(key) else f"[{key!a:.60}]"


def _refuse_unstorable(text: str, value: Any, what: str) -> None:
    if _ESCAPED_NUL not in text and (text.isascii() or not _LONE_SURROGATE.search(text)):
        return
    # The escape may also be a text about an escape: only a walk tells, and it names the place.
    plain(value, what)


def _refuse_oversize(text: str, limit: int | None, what: str) -> None:
    if limit is None or (len(text) <= limit and text.isascii()) or len(text) * 4 <= limit:
        return
    size = len(text.encode())
    if size > limit:
        raise PayloadTooLarge(what, f"is {size} bytes of JSON, at most {limit} are kept: keep it elsewhere and pass its address")


def _first_fault(value: Any, what: str) -> InvalidPayload | None:
    try:
        plain(value, what)
    except InvalidPayload as fault:
        return fault
    return None


def _moment(value: datetime) -> str:
    text = value.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


def _span(value: timedelta) -> str:
    microseconds = value // timedelta(microseconds=1)
    days, rest = divmod(abs(microseconds), 86_400_000_000)
    hours, rest = divmod(rest, 3_600_000_000)
    minutes, rest = divmod(rest, 60_000_000)
    seconds, fraction = divmod(rest, 1_000_000)
    tail = f".{fraction:06d}" if fraction else ""
    return f"{'-' if microseconds < 0 else ''}P{days}DT{hours:02d}H{minutes:02d}M{seconds:02d}{tail}S"


def _in_stable_order(value: Any) -> list[Any]:
    # A set of texts has another order in each process; the same value must give the same text (idempotency compares it).
    return sorted(value, key=lambda item: (type(item).__name__, str(item)))


_CONVERSIONS: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (Enum, lambda value: value.value),
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (datetime, _moment),
    ((date, time), lambda value: value.isoformat()),
    (timedelta, _span),
    ((Decimal, UUID), str),
    (Mapping, dict),
    ((list, tuple), list),
    ((set, frozenset), _in_stable_order),
)
