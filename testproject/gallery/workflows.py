"""`resize`, the durable function of the docs, and the same as `resize_async`; with the workflows whose runs they start."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from ezgh_workflows_django import Context, Retry, Step, Wait, Workflow, workflow

from . import ledger
from .pictures import Meta, Thumbnail, make_thumbnail, probe

CENTS_A_THUMBNAIL = 25


@dataclass(frozen=True, slots=True)
class Image:
    """A picture to resize. `path` is its file, in the folder of its album."""

    id: str
    path: str
    cool_off_seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class Result:
    """What came of it: paid, with the bill's receipt and who was told; or cancelled."""

    meta: Meta
    thumbnails: list[Thumbnail]
    outcome: str
    receipt: str | None
    told: list[str]


@dataclass(frozen=True, slots=True)
class Order:
    """What is billed."""

    image: str
    album: str
    thumbnails: int


@dataclass(frozen=True, slots=True)
class Bill:
    """What it comes to."""

    image: str
    album: str
    cents: int


@dataclass(frozen=True, slots=True)
class Message:
    """Whom to tell about which picture."""

    to: str
    image: str
    album: str


def add_up(order: Order) -> Bill:
    """What the thumbnails cost."""
    return Bill(order.image, order.album, order.thumbnails * CENTS_A_THUMBNAIL)


def charge(bill: Bill) -> str:
    """Take the money."""
    ledger.note(Path(bill.album), f"charge {bill.image} {bill.cents}")
    return f"receipt for {bill.image}: {bill.cents} cents"


billing = Workflow("billing", steps=[Step("add_up", run=add_up), Step("charge", run=charge, after=["add_up"])])


@workflow("notify")
def notify(message: Message) -> str:
    """Tell one person."""
    ledger.note(Path(message.album), f"tell {message.to}")
    return message.to


@workflow("resize", timeout=timedelta(hours=1), retry=Retry(max_attempts=3))
def resize(ctx: Context, image: Image) -> Result:
    """Thumbnails of a picture, sold: made, approved, paid, billed, and told to those who want to know."""
    meta: Meta = ctx.step("probe", probe, image.path, retry=Retry(max_attempts=5))
    thumbnails: list[Thumbnail] = ctx.map("thumbnails", make_thumbnail, meta.sizes, concurrency=4)
    ctx.sleep("cool-off", timedelta(seconds=image.cool_off_seconds))
    approval = ctx.wait_for_event("approval", event="image.approved", key=image.id, timeout=timedelta(days=3))
    first = ctx.wait_any("outcome", paid=Wait("payment.succeeded", key=image.id), cancelled=Wait("order.cancelled", key=image.id))
    if first.name == "cancelled":
        return Result(meta, thumbnails, first.name, None, [])
    receipt = ctx.run_workflow("bill", billing, order_of(image, thumbnails))
    told = ctx.run_batch("notify", notify, [message_to(user, image) for user in approval["users"]])
    return Result(meta, thumbnails, first.name, receipt, told)


@workflow("resize_async", timeout=timedelta(hours=1), retry=Retry(max_attempts=3))
async def resize_async(ctx: Context, image: Image) -> Result:
    """As `resize`."""
    meta: Meta = await ctx.step("probe", probe, image.path, retry=Retry(max_attempts=5))
    thumbnails: list[Thumbnail] = await ctx.map("thumbnails", make_thumbnail, meta.sizes, concurrency=4)
    await ctx.sleep("cool-off", timedelta(seconds=image.cool_off_seconds))
    approval = await ctx.wait_for_event("approval", event="image.approved", key=image.id, timeout=timedelta(days=3))
    first = await ctx.wait_any("outcome", paid=Wait("payment.succeeded", key=image.id), cancelled=Wait("order.cancelled", key=image.id))
    if first.name == "cancelled":
        return Result(meta, thumbnails, first.name, None, [])
    receipt = await ctx.run_workflow("bill", billing, order_of(image, thumbnails))
    told = await ctx.run_batch("notify", notify, [message_to(user, image) for user in approval["users"]])
    return Result(meta, thumbnails, first.name, receipt, told)


def order_of(image: Image, thumbnails: list[Thumbnail]) -> Order:
    """The order for a picture's thumbnails."""
    return Order(image.id, album_of(image), len(thumbnails))


def message_to(user: str, image: Image) -> Message:
    """What one person is told."""
    return Message(user, image.id, album_of(image))


def album_of(image: Image) -> str:
    """The folder of a picture."""
    return str(Path(image.path).parent)
