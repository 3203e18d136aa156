"""Amounts as exact decimals: what is one, its one text, sums, and what it costs. Pure; knows no price and no unit.

Nothing is rounded but a quotient without an end. All arithmetic is done in a context of its own: a thread's may have been given few digits.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from typing import Final

MAX_WHOLE: Final = 30
"""Digits before the point at most."""

MAX_PLACES: Final = 30
"""Digits after the point at most, in what is reported."""

MAX_COST_WHOLE: Final = 60
"""Digits before the point of a cost, or of a sum."""

MAX_COST_PLACES: Final = 60
"""Digits after the point of a cost, where the division does not end before."""

MAX_TEXT: Final = 160
"""Characters that the text of an amount, a price, a cost or a sum of those takes at most."""

_FORM: Final = re.compile(r"-?[0-9]{1,100}(\.[0-9]{1,100})?([eE][+-]?[0-9]{1,3})?")
_EXACT: Final = Context(prec=400, rounding=ROUND_HALF_EVEN, Emin=-9_999, Emax=9_999, traps=[InvalidOperation, DivisionByZero, Overflow])
_SMALLEST_COST: Final = Decimal((0, (1,), -MAX_COST_PLACES))


def read(text: str, whole: int = MAX_WHOLE, places: int = MAX_PLACES) -> Decimal:
    """The amount that a text says: a decimal number of zero or more, with so many digits at most. Raises `ValueError` that says what is wrong."""
    if not isinstance(text, str):
        raise ValueError(f"it is {type(text).__name__}, and an amount is a decimal number as text")
    if not _FORM.fullmatch(text):
        raise ValueError(f"{text[:40]!a} is no decimal number")
    return bounded(_EXACT.create_decimal(text), whole, places)


def bounded(amount: Decimal, whole: int = MAX_WHOLE, places: int = MAX_PLACES) -> Decimal:
    """The amount itself. Raises `ValueError` where it is no number, below zero, or has more digits than are kept."""
    if not amount.is_finite():
        raise ValueError(f"{amount} is no amount: give a finite number")
    if amount < 0:
        raise ValueError(f"{str(amount)[:40]} is below zero")
    if amount and amount.adjusted() >= whole:
        raise ValueError(f"it has more than {whole} digits before the point")
    if _places(amount) > places:
        raise ValueError(f"it has more than {places} digits after the point")
    return amount


def text_of(amount: Decimal) -> str:
    """The one text of an amount: no exponent, no zeros that say nothing."""
    return format(amount.normalize(_EXACT), "f") if amount else "0"


def of_float(number: float) -> Decimal:
    """What a float says, by its shortest text; digits that are too small to be kept are rounded away."""
    said = _EXACT.create_decimal(repr(number))
    return said if not said.is_finite() or _places(said) <= MAX_PLACES else said.quantize(Decimal((0, (1,), -MAX_PLACES)), context=_EXACT)


def total(first: Decimal, second: Decimal) -> Decimal:
    """The exact sum of two amounts."""
    return _EXACT.add(first, second)


def cost(amount: Decimal, price: Decimal, per: int) -> Decimal:
    """What an amount costs at a price for `per` units: exact, or where the division has no end, to 60 places, half to even."""
    exact = _EXACT.divide(_EXACT.multiply(amount, price), Decimal(per))
    return exact if _places(exact) <= MAX_COST_PLACES else exact.quantize(_SMALLEST_COST, context=_EXACT)


def _places(amount: Decimal) -> int:
    exponent = amount.normalize(_EXACT).as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0
