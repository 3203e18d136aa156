"""The shop's import, but for its two processes: what a row must be, what is stored, what the ledger vouches for. `manage.py demo` does the rest in CI."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from ezgh_workflows_django import Permanent, StepInfo, with_step_info
from ezgh_workflows_django.testing.scripted import lease_of
from ezgh_workflows_django.worker.context import Context
from testproject.shop import make_orders, rows
from testproject.shop.importing import start_import
from testproject.shop.ledger import ended, ledger
from testproject.shop.models import Order, Upload
from testproject.shop.workflows import Job, Priced, import_order, price, store, validate

ROWS = {row.line: row for row in rows.read()}

REASONS = {
    38: "line 38: quantity is 'three', not a whole number",
    97: "line 97: email is 'fischer.97 at example.org', not an address",
    171: "line 171: ordered_on is 2024-02-30, a day that does not exist",
    246: "line 246: unit_price is '88,13', not an amount such as 12.50",
    333: "line 333: quantity is 0, and an order has at least 1 piece",
    402: "line 402: country is 'XX', but the shop sells to AT, DE, ES, FR, IT, NL, PL",
    489: "line 489: customer is missing",
    575: "line 575: ordered_on is '13/05/2024', not a date such as 2024-01-31",
    660: "line 660: quantity is -2, and an order has at least 1 piece",
    741: "line 741: number is missing",
    828: "line 828: quantity is missing",
    934: "line 934: more fields than the header has, from 'gift wrap' on",
}


def info_of(run: UUID) -> StepInfo:
    """What a body of that run is told about itself."""
    return Context(lease_of(import_order, "store", run_id=str(run))).info


def priced(upload: Upload, line: int = 2) -> Priced:
    """The order on that line, ready to be stored."""
    checked = validate(Job(upload.pk, ROWS[line]))
    return price(checked)


def test_the_file_is_what_its_script_writes() -> None:
    assert rows.ORDERS.read_text(encoding="utf-8") == make_orders.text()
    assert len(ROWS) == 1_000


@pytest.mark.parametrize("line", sorted(make_orders.BROKEN))
def test_a_broken_row_is_refused_with_its_reason_for_good(line: int) -> None:
    with pytest.raises(Permanent) as refused:
        validate(Job(1, ROWS[line]))
    assert str(refused.value) == REASONS[line]


def test_every_other_row_is_an_order_of_its_own() -> None:
    orders = [rows.check(row) for line, row in ROWS.items() if line not in make_orders.BROKEN]
    assert len({order.number for order in orders}) == 988


def test_an_order_costs_its_pieces_less_discount_and_with_the_tax_of_its_country() -> None:
    line = rows.check(ROWS[2])
    assert (line.quantity, str(line.unit_price), line.country) == (25, "185.28", "FR")
    assert [str(amount) for amount in (rows.price(line).net, rows.price(line).vat, rows.price(line).total)] == ["4400.40", "880.08", "5280.48"]


@pytest.mark.django_db
def test_an_order_is_stored_once_however_often_its_step_runs() -> None:
    upload, run = Upload.objects.create(name="orders.csv"), uuid4()
    with with_step_info(info_of(run)):
        assert store(priced(upload)) == store(priced(upload)) == "S-10001"
    assert [(order.number, order.run) for order in Order.objects.all()] == [("S-10001", run)]


@pytest.mark.django_db
def test_a_number_that_another_run_has_imported_is_refused() -> None:
    upload = Upload.objects.create(name="orders.csv")
    with with_step_info(info_of(uuid4())):
        store(priced(upload))
    with with_step_info(info_of(uuid4())), pytest.raises(Permanent, match="order S-10001 was imported already, from line 2"):
        store(priced(upload))


@pytest.mark.django_db
def test_the_ledger_says_what_does_not_add_up() -> None:
    upload, runs = start_import()
    assert len(runs) == 1_000
    assert ended(upload) == 0
    assert list(ledger(upload).faults()) == [
        "runs that are not over: {'running': 1000}",
        "0 orders over 0, but the file has 988 over 809122.11",
        f"lines [] failed, but lines {sorted(make_orders.BROKEN)} are broken",
    ]
