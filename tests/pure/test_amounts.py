"""Amounts: exact against fractions, one text for each, and nothing else taken for one."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ezgh_workflows_django.protocol import amounts

digits = some.text("0123456789", min_size=1, max_size=30)
texts = some.builds(lambda whole, places: f"{whole}.{places}" if places else whole, digits, some.just("") | digits)
prices = some.builds(
    lambda whole, places: f"{whole}.{places}", some.text("0123456789", min_size=1, max_size=15), some.text("0123456789", min_size=1, max_size=18)
)


@given(texts)
def test_a_text_is_read_and_written_without_a_digit_lost(text: str) -> None:
    amount = amounts.read(text)
    written = amounts.text_of(amount)
    assert (Fraction(amount), Fraction(written), len(written) <= amounts.MAX_TEXT) == (Fraction(text), Fraction(text), True)
    assert amounts.text_of(amounts.read(written)) == written


@given(some.lists(texts, max_size=20))
def test_sums_are_exact(several: list[str]) -> None:
    summed = Decimal(0)
    with localcontext(prec=1):
        for text in several:
            summed = amounts.total(summed, amounts.read(text))
    assert Fraction(summed) == sum(map(Fraction, several))


@given(texts, prices, some.integers(0, 12))
def test_a_cost_is_exact_for_a_price_of_a_power_of_ten(amount: str, price: str, power: int) -> None:
    cost = amounts.cost(amounts.read(amount), amounts.read(price), 10**power)
    assert Fraction(cost) == Fraction(amount) * Fraction(price) / 10**power
    assert len(amounts.text_of(cost)) <= amounts.MAX_TEXT


@given(texts, prices, some.integers(1, 10**12))
def test_a_cost_without_an_end_is_off_by_half_a_digit_at_most(amount: str, price: str, per: int) -> None:
    cost = amounts.cost(amounts.read(amount), amounts.read(price), per)
    assert abs(Fraction(cost) - Fraction(amount) * Fraction(price) / per) <= Fraction(1, 2 * 10**amounts.MAX_COST_PLACES)


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "+1", ".5", "1.", "1_0", "١", "0x1", "NaN", "Infinity", "1e", "1e9999", "1" * 31, "0." + "1" * 31, "-0.1", "1\n"]
)
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"it has more|no decimal number|below zero"):
        amounts.read(text)


def test_a_size_that_would_fill_the_memory_is_refused_before_it_does() -> None:
    with pytest.raises(ValueError, match="more than"):
        amounts.bounded(Decimal("1e999999"))
