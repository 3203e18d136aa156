"""What a row of the file must be, and what an order costs. Pure: knows no database and no workflow."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any, Final

ORDERS: Final = Path(__file__).with_name("orders.csv")
HEADER: Final = ("number", "customer", "email", "country", "item", "quantity", "unit_price", "ordered_on")
SURPLUS: Final = "surplus"
"""Under this name a row carries what stands behind its last column."""

VAT: Final[Mapping[str, Decimal]] = {
    "AT": Decimal("0.20"),
    "DE": Decimal("0.19"),
    "ES": Decimal("0.21"),
    "FR": Decimal("0.20"),
    "IT": Decimal("0.22"),
    "NL": Decimal("0.21"),
    "PL": Decimal("0.23"),
}
DISCOUNT_FROM: Final = 10
"""Pieces of one item from which an order gets 5 %."""

_CENT: Final = Decimal("0.01")


class BadRow(ValueError):
    """A row that is no order; the text names the line and the field."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the file as it stands there; line 1 is the header."""

    line: int
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Line:
    """A row that was found to be an order."""

    line: int
    number: str
    customer: str
    email: str
    country: str
    item: str
    quantity: int
    unit_price: Decimal
    ordered_on: date


@dataclass(frozen=True, slots=True)
class Price:
    """What an order costs."""

    net: Decimal
    vat: Decimal
    total: Decimal


def read(path: Path = ORDERS) -> Iterator[Row]:
    """The rows of a file, in order. What is missing in a row is empty."""
    with path.open(newline="", encoding="utf-8") as file:
        for number, fields in enumerate(csv.DictReader(file, restkey=SURPLUS, restval=""), start=2):
            yield Row(number, {name: value if isinstance(value, str) else ",".join(value) for name, value in fields.items()})


def check(row: Row) -> Line:
    """The order in a row. Raises `BadRow` for the first thing that is wrong with it."""
    if SURPLUS in row.fields:
        raise BadRow(f"line {row.line}: more fields than the header has, from {row.fields[SURPLUS]!r} on")
    values: dict[str, Any] = {}
    for name, reading in _READINGS.items():
        text = row.fields.get(name, "").strip()
        try:
            values[name] = reading(text)
        except ValueError as error:
            raise BadRow(f"line {row.line}: {name} {error}") from error
    return Line(line=row.line, **values)


def price(line: Line) -> Price:
    """What an order costs, rounded to cents where money is counted."""
    gross = line.quantity * line.unit_price
    net = (gross * (Decimal("0.95") if line.quantity >= DISCOUNT_FROM else 1)).quantize(_CENT, ROUND_HALF_UP)
    vat = (net * VAT[line.country]).quantize(_CENT, ROUND_HALF_UP)
    return Price(net=net, vat=vat, total=net + vat)


def _matching(pattern: str, wanted: str) -> Callable[[str], str]:
    """A reading of texts that match; `wanted` ends the sentence that refuses others."""

    def reading(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"is {text!r}, not {wanted}" if text else "is missing")
        return text

    return reading


def _country(text: str) -> str:
    if text not in VAT:
        raise ValueError(f"is {text!r}, but the shop sells to {', '.join(VAT)}")
    return text


def _quantity(text: str) -> int:
    _matching(r"-?\d{1,6}", "a whole number")(text)
    if int(text) < 1:
        raise ValueError(f"is {text}, and an order has at least 1 piece")
    return int(text)


def _unit_price(text: str) -> Decimal:
    return Decimal(_matching(r"\d{1,6}\.\d\d", "an amount such as 12.50")(text))


def _date(text: str) -> date:
    _matching(r"\d{4}-\d\d-\d\d", "a date such as 2024-01-31")(text)
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"is {text}, a day that does not exist") from error


_READINGS: Final[Mapping[str, Callable[[str], Any]]] = {
    "number": _matching(r"S-\d{5}", "a number such as S-10001"),
    "customer": _matching(r".{1,100}", "a name"),
    "email": _matching(r"[^@\s]+@[^@\s]+\.[a-z]+", "an address"),
    "country": _country,
    "item": _matching(r"[A-Z]{2}-\d{3}", "an item such as KT-104"),
    "quantity": _quantity,
    "unit_price": _unit_price,
    "ordered_on": _date,
}
