"""How one order gets in: check the row, work out the price, store the order."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Final

from ezgh_workflows_django import Permanent, Retry, Step, Workflow, step_info

from . import rows
from .models import Order

RATE_SECONDS: Final = 0.02
"""How long the tax office's service takes to answer; so long, a worker that is killed has work in its hands."""


@dataclass(frozen=True, slots=True)
class Job:
    """A row of an upload."""

    upload: int
    row: rows.Row


@dataclass(frozen=True, slots=True)
class Checked:
    """An order that can be priced."""

    upload: int
    line: rows.Line


@dataclass(frozen=True, slots=True)
class Priced:
    """An order that can be stored."""

    upload: int
    line: rows.Line
    price: rows.Price


def validate(job: Job) -> Checked:
    """A bad row stays bad: no attempt mends it."""
    try:
        return Checked(job.upload, rows.check(job.row))
    except rows.BadRow as error:
        raise Permanent(str(error)) from error


def price(checked: Checked) -> Priced:
    """Ask for the rates, and work it out."""
    time.sleep(RATE_SECONDS)
    return Priced(checked.upload, checked.line, rows.price(checked.line))


def store(priced: Priced) -> str:
    """Store the order once, however often this is run: a second attempt finds what the first one wrote."""
    info = step_info()
    assert info is not None
    fields = asdict(priced.line) | asdict(priced.price) | {"upload_id": priced.upload, "run": info.run_id}
    del fields["unit_price"]
    number = priced.line.number
    order, is_new = Order.objects.get_or_create(number=number, defaults=fields)
    if not is_new and str(order.run) != info.run_id:
        raise Permanent(f"line {priced.line.line}: order {number} was imported already, from line {order.line}")
    return number


import_order = Workflow(
    "import_order",
    steps=[
        Step("validate", run=validate),
        Step("price", run=price, after=["validate"], retry=Retry(max_attempts=3)),
        Step("store", run=store, after=["price"], retry=Retry(max_attempts=3)),
    ],
)
