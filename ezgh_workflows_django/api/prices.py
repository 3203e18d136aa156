"""The project's price book."""

from __future__ import annotations

from datetime import date
from http import HTTPStatus
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from ..conf import app_settings
from ..engine import prices
from ..errors import InvalidArgument
from ..models import Price
from ..protocol import amounts
from . import reach, run_answers, usage_shapes
from .base import ApiView, caller
from .docs import TENANCY, call
from .pages import page
from .plain_json import to_response


class PricesView(ApiView):
    """What units cost, and since when."""

    needs = {"POST": (prices.UPDATE,), "GET": (prices.READ,)}

    @call(TENANCY, "Set a price", usage_shapes.NewPrice, usage_shapes.PriceTold, status=HTTPStatus.CREATED)
    def post(self, request: Request) -> HttpResponse:
        """From a day on; a price of that very day is put right, every other one stays. What was recorded keeps its cost. A key of one app can't."""
        asked = self.read(request, usage_shapes.NewPrice)
        day = asked.get("effective_from")
        price = prices.set_price(
            reach.project(caller(request), {}),
            by=caller(request),
            model=asked.get("model") or "",
            unit=asked["unit"],
            amount=asked["amount"],
            per=asked["per"],
            effective_from=None if day is None else date.fromisoformat(day),
        )
        return to_response(_told(price), HTTPStatus.CREATED)

    @call(TENANCY, "List prices", None, usage_shapes.PricesTold, query=usage_shapes.PricesQuery)
    def get(self, request: Request) -> HttpResponse:
        """The newest first, those of the past and of days to come too."""
        asked = self.read_query(request, usage_shapes.PricesQuery)
        rows = prices.prices_of(reach.project(caller(request), {}))
        for name in ("model", "unit"):
            if name in asked:
                rows = rows.filter(**{name: _asked(name, asked[name])})
        shown, following = page(rows, asked)
        return to_response({"prices": [_told(price) for price in shown], "next": following})


def _asked(name: str, text: str) -> str:
    if not reach.is_clean(text):
        raise InvalidArgument(name, "a text is needed, without NUL and lone surrogates")
    return text


def _told(price: Price) -> dict[str, Any]:
    return {
        "model": price.model or None,
        "unit": price.unit,
        "amount": amounts.text_of(price.amount),
        "per": price.per,
        "currency": app_settings.CURRENCY,
        "effective_from": price.effective_from.isoformat(),
        "changed_at": run_answers.moment(price.changed_at),
    }
