"""What a step or a run used in all, by model and unit, with what that cost: kept on its row as JSON, so that nothing is added up to show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ..protocol import amounts, codec
from ..protocol.notes import Pair
from . import payloads


@dataclass(frozen=True, slots=True)
class Total:
    """How much of a unit was used. `model` is empty where none was named.

    `cost` is what the priced part of it cost, None where none of it was; `unpriced` is the part that came in on days without a price.
    """

    model: str
    unit: str
    amount: Decimal
    cost: Decimal | None = None
    unpriced: Decimal = Decimal(0)

    @property
    def pair(self) -> Pair:
        """What it is a total of."""
        return self.model, self.unit

    def to_json(self) -> dict[str, Any]:
        """As it is stored, and answered: amounts as text."""
        return {
            "model": self.model or None,
            "unit": self.unit,
            "amount": amounts.text_of(self.amount),
            "cost": None if self.cost is None else amounts.text_of(self.cost),
            "unpriced": amounts.text_of(self.unpriced),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Total:
        """Read it back."""
        cost = None if value["cost"] is None else Decimal(value["cost"])
        return cls(value["model"] or "", value["unit"], Decimal(value["amount"]), cost, Decimal(value["unpriced"]))


def priced(pair: Pair, amount: Decimal, cost: Decimal | None) -> Total:
    """The total of one amount; `cost` None: there was no price."""
    return Total(*pair, amount, cost, Decimal(0) if cost is not None else amount)


def read(text: str | None) -> tuple[Total, ...]:
    """The totals of a stored text."""
    stored: Sequence[Mapping[str, Any]] = payloads.from_text(text) or ()
    return tuple(map(Total.from_json, stored))


def text_of(totals: Iterable[Total]) -> str:
    """As they are stored."""
    return codec.dumps([each.to_json() for each in totals], limit=None, what="usage")


def merged(totals: Iterable[Total]) -> tuple[Total, ...]:
    """One total for each model and unit, in the order they were first met."""
    by_pair: dict[Pair, Total] = {}
    for each in totals:
        before = by_pair.get(each.pair)
        by_pair[each.pair] = each if before is None else _sum(before, each)
    return tuple(by_pair.values())


def cost_of(totals: Iterable[Total]) -> Decimal | None:
    """What they cost together, without what had no price; None where nothing had one."""
    cost: Decimal | None = None
    for each in totals:
        cost = _both(cost, each.cost)
    return cost


def _sum(first: Total, second: Total) -> Total:
    amount, unpriced = amounts.total(first.amount, second.amount), amounts.total(first.unpriced, second.unpriced)
    return Total(first.model, first.unit, amount, _both(first.cost, second.cost), unpriced)


def _both(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    if first is None or second is None:
        return first if second is None else second
    return amounts.total(first, second)
