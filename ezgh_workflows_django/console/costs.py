"""Usage and costs in words. Asks no database, registers nothing."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..conf import app_settings
from ..engine import totals
from ..engine.totals import Total
from ..protocol import amounts
from .values import NOTHING

SHORT_PLACES: Final = 6
"""Digits after the point that a list shows of a cost."""


def money(cost: Decimal | None) -> str:
    """A cost to its last digit; a dash for none."""
    return NOTHING if cost is None else f"{amounts.text_of(cost)} {app_settings.CURRENCY}"


def money_in_short(cost: Decimal | None) -> str:
    """A cost as a list shows it."""
    if cost is None:
        return NOTHING
    text = amounts.text_of(cost)
    whole, _point, places = text.partition(".")
    return money(cost) if len(places) <= SHORT_PLACES else f"≈ {whole}.{places[:SHORT_PLACES]} {app_settings.CURRENCY}"


def cost_of(usage: str | None) -> Decimal | None:
    """What stored totals come to."""
    return totals.cost_of(totals.read(usage))


def usage_lines(usage: str | None) -> SafeString | str:
    """Stored totals, a line each: what was used, what that cost, and what of it had no price."""
    lines = [(each,) for each in _lines(totals.read(usage))]
    return format_html("<ul>{}</ul>", format_html_join("", "<li>{}</li>", lines)) if lines else NOTHING


def _lines(used: tuple[Total, ...]) -> Iterator[str]:
    for each in used:
        named = {
            "amount": amounts.text_of(each.amount),
            "what": f"{each.unit} ({each.model})" if each.model else each.unit,
            "cost": money(each.cost),
            "unpriced": amounts.text_of(each.unpriced),
        }
        if each.cost is None:
            yield _("%(amount)s %(what)s, without a price") % named
        elif each.unpriced:
            yield _("%(amount)s %(what)s: %(cost)s, and %(unpriced)s of it without a price") % named
        else:
            yield _("%(amount)s %(what)s: %(cost)s") % named
