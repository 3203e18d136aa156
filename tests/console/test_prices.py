"""Prices and costs in the console: the book is written by the engine, its history stays; a run shows what it cost and what had no price."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from ezgh_workflows_django.engine import prices, tenancy
from ezgh_workflows_django.models import Price, Trail
from ezgh_workflows_django.protocol.notes import Usage
from tests.console.conftest import Shop, list_of, page_of, staff, text
from tests.engine.conftest import Desk

ADD = "admin:ezgh_workflows_price_add"


def filled(**more: Any) -> dict[str, Any]:
    """The form of a new price."""
    return {"project": tenancy.find_project().pk, "model": "opus", "unit": "tokens", "amount": "15.50", "per": 1000, "effective_from": "2024-01-01", **more}


@pytest.fixture
def keeper(desk: Desk) -> Client:
    """May view and change the book, and no more."""
    tenancy.provision()
    return staff("eva", "view_price", "add_price", "change_price")


def test_a_price_is_added_and_put_right_in_the_users_name(keeper: Client) -> None:
    assert keeper.post(reverse(ADD), filled()).status_code == 302
    price = Price.objects.get()
    assert (price.amount, price.per) == (Decimal("15.5"), 1000)
    # What it is of and since when is no field of the form any more; what is sent for it changes nothing.
    assert keeper.post(page_of(price), filled(amount="16", per=100, unit="other", effective_from="2020-01-01")).status_code == 302
    price.refresh_from_db()
    assert (price.unit, price.amount, price.per, str(price.effective_from), Price.objects.count()) == ("tokens", Decimal(16), 100, "2024-01-01", 1)
    assert list(Trail.objects.filter(action="SetPrice").values_list("actor_kind", "actor")) == [("user", "eva")] * 2
    assert "16 USD / 100" in text(keeper, list_of("price"))


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("amount", {"amount": "-1"}),
        ("amount", {"amount": "1e-30"}),
        ("amount", {"amount": "dear"}),
        ("per", {"per": 0}),
        ("unit", {"unit": "a\tb"}),
        ("unit", {"unit": ""}),
    ],
)
def test_a_price_that_is_none_is_told_beside_its_field(keeper: Client, field: str, wrong: dict[str, Any]) -> None:
    answer = keeper.post(reverse(ADD), filled(**wrong))
    assert (answer.status_code, list(answer.context["adminform"].form.errors), Price.objects.count()) == (200, [field], 0)


def test_a_second_price_of_one_day_is_no_new_one(keeper: Client) -> None:
    keeper.post(reverse(ADD), filled())
    answer = keeper.post(reverse(ADD), filled(amount="1"))
    assert (answer.status_code, Price.objects.get().amount) == (200, Decimal("15.5"))


def test_who_may_only_view_changes_nothing_and_nobody_deletes(keeper: Client, viewer: Client, root: Client) -> None:
    keeper.post(reverse(ADD), filled())
    price = Price.objects.get()
    assert [viewer.post(address, filled(amount="1")).status_code for address in (reverse(ADD), page_of(price))] == [403, 403]
    assert root.post(reverse("admin:ezgh_workflows_price_delete", args=[price.pk]), {"post": "yes"}).status_code == 403
    assert "delete_selected" not in text(root, list_of("price"))
    assert Price.objects.get().amount == Decimal("15.5")


def test_a_run_shows_what_it_cost_and_what_had_no_price(shop: Shop, viewer: Client) -> None:
    prices.set_price(tenancy.find_project(), unit="tokens", amount="0.000000001", model="opus", by=("user", "eva"))
    used = (Usage(unit="tokens", amount="1234567", model="opus"), Usage(unit="pages", amount="2"))
    run = shop.failed(usage=used)
    shown = text(viewer, page_of(run))
    assert "0.001234567 USD" in shown
    assert "<li>1234567 tokens (opus): 0.001234567 USD</li><li>2 pages, without a price</li>" in shown
    assert "<li>2 pages, without a price</li>" in text(viewer, page_of(run.steps.get(name="reserve")))
    assert "≈ 0.001234 USD" in text(viewer, list_of("run"))
