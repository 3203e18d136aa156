"""The bodies, queries and answers of usage, spans and the price book."""

from __future__ import annotations

from rest_framework import serializers

from ..engine.prices import MAX_PER
from ..protocol.notes import MAX_MODEL, MAX_UNIT
from .fields import CountField, DayField, MomentField, NumberField, ObjectField, PatternField, SaidField, Shape, TextField
from .pages import Page

AMOUNT = r"^-?[0-9]{1,100}(\.[0-9]{1,100})?([eE][+-]?[0-9]{1,3})?$"


class UsageTold(Shape):
    """How much of a unit was used in all. Amounts and costs are decimals as text."""

    model = SaidField(allow_null=True)
    unit = SaidField()
    amount = SaidField()
    cost = SaidField(allow_null=True, help_text="Of what had a price when it came in; null where nothing had one.")
    unpriced = SaidField(help_text="The amount that came in on days without a price.")


class SpanTold(Shape):
    """A stretch of a body's time. Its usage and cost are its own, without those of the spans within."""

    step = SaidField()
    attempt = NumberField()
    checkpoint = SaidField(help_text="The inner step it belongs to; empty: the body itself.")
    id = SaidField()
    parent = SaidField(allow_null=True)  # type: ignore[assignment]  # DRF names the shape around a field so
    name = SaidField()
    start = MomentField()
    end = MomentField()
    attributes = ObjectField()
    usage = serializers.ListField(child=UsageTold())
    cost = SaidField(allow_null=True)


class SpansTold(Shape):
    """Spans in the order they came in. `next` is the `after` of those that follow, or null."""

    spans = serializers.ListField(child=SpanTold())
    next = NumberField(allow_null=True)


class SpansQuery(Shape):
    """Which spans of a run, in the order they came in."""

    after = serializers.IntegerField(min_value=0, max_value=2**63 - 1, required=False, default=0, help_text="`next` of the page before.")
    limit = serializers.IntegerField(min_value=1, max_value=1_000, required=False, default=200)


class NewPrice(Shape):
    """What `per` units of a model cost from a day on."""

    model = TextField(max_length=MAX_MODEL, required=False, allow_null=True, allow_blank=True, help_text="Without: the price of usage that names no model.")
    unit = TextField(max_length=MAX_UNIT)
    amount = PatternField(AMOUNT, help_text="A decimal as text, in the installation's `CURRENCY`.")
    per = CountField(1, MAX_PER, required=False, default=1)
    effective_from = DayField(required=False, allow_null=True, help_text="A day in UTC; without: today.")


class PriceTold(Shape):
    """A price. It counts until the next one of that model and unit."""

    model = SaidField(allow_null=True)
    unit = SaidField()
    amount = SaidField()
    per = NumberField()
    currency = SaidField()
    effective_from = DayField()
    changed_at = MomentField()


class PricesTold(Shape):
    """A page of prices, the newest first. `next` is the cursor of the page after it, or null."""

    prices = serializers.ListField(child=PriceTold())
    next = SaidField(allow_null=True)


class PricesQuery(Page):
    """Which prices."""

    model = TextField(max_length=MAX_MODEL, required=False, allow_blank=True)
    unit = TextField(max_length=MAX_UNIT, required=False)
