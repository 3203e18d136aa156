"""What JSON text may hold (spec: engine.md "Data"; cases B05, B06, B07, B50)."""

from __future__ import annotations

import json
import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ezgh_workflows_django.errors import InvalidPayload, PayloadTooLarge
from ezgh_workflows_django.protocol import codec

MIB = 1 << 20


def dumps(value: Any, limit: int | None = MIB) -> str:
    return codec.dumps(value, limit=limit, what="output")


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


class Word(StrEnum):
    YES = "yes"


@dataclass
class Order:
    id: UUID
    lines: tuple[int, ...]


class Model(BaseModel):
    price: Decimal
    at: datetime


Point = namedtuple("Point", "x y")
ID = UUID("12345678-1234-5678-1234-567812345678")


class Lazy:
    """Looks like one of Django's lazy texts, which this half of the package must not import."""

    def __str__(self) -> str:
        return "later"


Lazy.__name__ = "__proxy__"


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_what_was_written_is_what_is_read(value: Any) -> None:
    assert codec.loads(dumps(value)) == value


@given(json_values)
def test_plain_leaves_plain_json_as_it_is(value: Any) -> None:
    assert codec.plain(value, "output") == value


@given(
    st.recursive(
        st.none() | st.floats() | st.text() | st.integers() | st.binary(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    )
)
def test_any_value_is_either_storable_or_refused_by_path(value: Any) -> None:
    try:
        text = dumps(value)
    except InvalidPayload as error:
        assert error.path.startswith("output")  # noqa: PT017 - refused is one of two right answers
        return
    text.encode()
    assert "\0" not in json.dumps(codec.loads(text), ensure_ascii=False)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": 2}, '{"b":1,"a":2}'),
        (1e22, "1e+22"),
        (0.1 + 0.2, "0.30000000000000004"),
        (2**60, str(2**60)),
        (2**70, str(2**70)),
        ((1, 2), "[1,2]"),
        (Point(1, 2), "[1,2]"),
        (OrderedDict(z=1), '{"z":1}'),
        ({"b", "a"}, '["a","b"]'),
        (frozenset({2, 1}), "[1,2]"),
        (Decimal("1.10"), '"1.10"'),
        (ID, f'"{ID}"'),
        (Colour.RED, '"red"'),
        (Size.BIG, "3"),
        (Word.YES, '"yes"'),
        (datetime(2024, 1, 1, 9, 0, 0, 123456, tzinfo=UTC), '"2024-01-01T09:00:00.123456Z"'),
        (datetime(2024, 1, 1, 9, 0), '"2024-01-01T09:00:00"'),  # noqa: DTZ001 - one without a zone stays one
        (date(2024, 1, 1), '"2024-01-01"'),
        (time(9, 30), '"09:30:00"'),
        (timedelta(days=1, seconds=5), '"P1DT00H00M05S"'),
        (timedelta(days=-1), '"-P1DT00H00M00S"'),
        (timedelta(microseconds=1), '"P0DT00H00M00.000001S"'),
        (Order(ID, (1,)), f'{{"id":"{ID}","lines":[1]}}'),
        (Model(price=Decimal("2.50"), at=datetime(2024, 1, 1, tzinfo=UTC)), '{"price":"2.50","at":"2024-01-01T00:00:00Z"}'),
        (Lazy(), '"later"'),
        ({1: "a"}, '{"1":"a"}'),
        ({ID: 1}, f'{{"{ID}":1}}'),
        ({Colour.RED: 1}, '{"red":1}'),
        ("ünïcode 😀", '"ünïcode 😀"'),
        ("a text about \\u0000", '"a text about \\\\u0000"'),
    ],
)
def test_values_are_encoded_as_django_users_expect(value: Any, text: str) -> None:
    assert dumps(value) == text


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"log": "a\0b"}, "output.log", "NUL"),
        ({"items": [0, 1, 2, {"name": "\0"}]}, "output.items[3].name", "NUL"),
        ({"a\0": 1}, "output", "NUL"),
        ("\ud83d", "output", "surrogate"),
        ({"a b": ["\udc80"]}, "output['a b'][0]", "surrogate"),
        ({"\ud83d": 1}, "output", "surrogate"),
        ([math.nan], "output[0]", "NaN"),
        ({"x": {"y": math.inf}}, "output.x.y", "Infinity"),
        (-math.inf, "output", "-Infinity"),
        ({"n": 10**5000}, "output.n", "4300 digits"),
        ({"f": b"x"}, "output.f", "bytes"),
        ([object()], "output[0]", "object"),
        (Order, "output", "type"),
        ({None: 1}, "output", "NoneType"),
        ({True: 1}, "output", "bool"),
        ({1.5: 1}, "output", "float"),
        ({(1, 2): 1}, "output", "tuple"),
        ({1: "a", "1": "b"}, "output", "two keys"),
        (Order(ID, (math.nan,)), "output.lines[0]", "NaN"),  # type: ignore[arg-type]  # what a user's code does
        ({"m": {Decimal("NaN"): 1}}, "output.m", "Decimal"),
    ],
)
def test_what_no_database_keeps_is_refused_by_path(value: Any, path: str, reason: str) -> None:
    """Cases B05, B06, B07."""
    with pytest.raises(InvalidPayload) as caught:
        dumps(value)
    assert caught.value.path == path
    assert reason in caught.value.reason


def test_a_refusal_is_itself_storable() -> None:
    """Case B06: the report of a bad value must not hold it."""
    with pytest.raises(InvalidPayload) as caught:
        dumps({"a\0\ud83d": ["\0"]})
    assert str(caught.value).isprintable()
    str(caught.value).encode()


def test_depth_of_100_is_kept_and_101_refused() -> None:
    assert dumps(nested(100)) == "[" * 100 + "]" * 100
    with pytest.raises(InvalidPayload, match="deeper than 100"):
        dumps(nested(101))


def test_hostile_depth_is_refused_without_a_recursion_error() -> None:
    with pytest.raises(InvalidPayload, match="deeper than 100") as caught:
        dumps(nested(100_000))
    assert len(caught.value.path) <= codec.MAX_PATH + 1


def test_depth_in_other_containers_counts_too() -> None:
    value: Any = ()
    for _ in range(100):
        value = {"a": (value,)}
    with pytest.raises(InvalidPayload, match="deeper than 100"):
        dumps(value)


def test_a_value_within_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidPayload, match="deeper than 100"):
        dumps(value)


def test_a_value_that_spreads_without_end_is_refused_at_its_size() -> None:
    value: Any = [0]
    for _ in range(60):
        value = [value, value]
    with pytest.raises(PayloadTooLarge):
        dumps(value)


def test_the_limit_counts_bytes_of_the_text() -> None:
    assert len(dumps("a" * (MIB - 2))) == MIB
    with pytest.raises(PayloadTooLarge, match=f"{MIB + 1} bytes"):
        dumps("a" * (MIB - 1))
    with pytest.raises(PayloadTooLarge):
        dumps("é" * (MIB // 2))


def test_no_limit_keeps_all() -> None:
    assert len(dumps("a" * MIB, None)) == MIB + 2


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", "{", "", "[1,]", b"\xff", "[" * 100_000, "1" * 5_000])
def test_text_that_is_not_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidPayload):
        codec.loads(text)


def test_a_lone_surrogate_in_json_text_is_refused_when_it_is_stored() -> None:
    """Case B06: raw JSON may spell one out."""
    with pytest.raises(InvalidPayload, match="surrogate"):
        dumps(codec.loads('{"a": "\\ud83d"}'))


@pytest.mark.parametrize(
    ("text", "limit", "cleaned"),
    [
        ("a\0b", 10, "a\ufffdb"),
        ("\ud83dx", 10, "\ufffdx"),
        ("abcdef", 4, "abc…"),
        (ValueError("bad"), 10, "bad"),
        (Unprintable(), 80, "<Unprintable whose text failed: RuntimeError>"),
    ],
)
def test_failure_messages_are_cleaned_never_refused(text: Any, limit: int, cleaned: str) -> None:
    assert codec.clean_text(text, limit) == cleaned
