"""The four examples of the docs: an order that waits and sleeps, an approval that times out, a quote that joins, an export that is stuck."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ezgh_workflows_django import Context, Sleep, Step, Wait, Workflow, step_info

LINES: list[str] = []
"""What the examples' bodies have to say; the demo prints it."""


@dataclass
class Order:
    """What an order is started with."""

    order: str


@dataclass
class Payment:
    """What the payment service sends."""

    order: str
    paid: int


@dataclass
class Parts:
    """The outputs of the two steps that a quote joins."""

    price: int
    stock: int


def reserve(order: Order) -> Order:
    """Reserve stock, pass the order on."""
    return order


def ship(payment: Payment) -> str:
    """Ship what was paid for."""
    LINES.append(f"ship {payment.order} (paid {payment.paid})")
    return "shipped"


order = Workflow(
    "order",
    steps=[
        Step("reserve", run=reserve),
        # Each run waits for the payment of its own order.
        Step("await_payment", after=["reserve"], wait=Wait("payment.succeeded", key=lambda run: run.labels["order"])),
        Step("cool_off", after=["await_payment"], sleep=Sleep(timedelta(hours=24))),
        Step("ship", after=["cool_off"], run=ship),
    ],
)


def escalate(expense: str) -> None:
    """Nobody approved: tell a person."""
    LINES.append(f'on failure: escalate "{expense}"')


approval = Workflow(
    "approval",
    # A fixed key: every run waits for the same event.
    steps=[Step("await_approval", wait=Wait("expense.approved", key="finance", timeout=timedelta(hours=72)))],
    on_failure=escalate,
)


def price(item: str) -> int:
    """What it costs."""
    return 120


def stock(item: str) -> int:
    """How many there are."""
    return 7


def make_quote(parts: Parts) -> str:
    """Both parents' outputs, by name."""
    info = step_info()
    assert info is not None
    LINES.append(f"{info.workflow}/{info.step} attempt {info.attempt}: price {parts.price}, stock {parts.stock}")
    return "ok"


quote = Workflow(
    "quote",
    steps=[
        # Neither names a parent: both start with the run.
        Step("price", run=price),
        Step("stock", run=stock),
        Step("quote", after=["price", "stock"], run=make_quote),
    ],
)


def write(ctx: Context) -> None:
    """A call that is stuck; only the timeout ends it."""
    ctx.cancelled.wait()


export = Workflow("export", steps=[Step("write", run=write)], timeout=timedelta(seconds=30))
