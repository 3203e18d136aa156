"""The price book: what a unit costs from a day on. Each change is in the trail; what has been recorded keeps its cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

from django.db.models import QuerySet

from ..definitions import names
from ..errors import InvalidArgument, NotPermitted
from ..models import Price, Project
from ..protocol import amounts
from ..protocol.notes import MAX_MODEL, MAX_UNIT, Pair
from . import trail, uniques
from .clock import Now, read_at
from .keys import Caller, Identity, actor_of
from .transactions import database, verb

UPDATE: Final = "workflows.prices.update"
READ: Final = "workflows.prices.read"

MAX_WHOLE: Final = 15
MAX_PLACES: Final = 18
MAX_PER: Final = 10**12


@verb
def set_price(
    project: Project,
    *,
    unit: str,
    amount: Decimal | str,
    by: Caller,
    model: str = "",
    per: int = 1,
    effective_from: date | None = None,
) -> Price:
    """What `per` units cost from that day on (UTC; None: today's). A price of that very day is put right; every other one stays.

    Raises `InvalidArgument`, `NotPermitted`. Locks nothing but, for a moment, the price's unique key.
    """
    if isinstance(by, Identity):
        by.need(UPDATE)
        if by.app_id is not None or by.project_id != project.pk:
            raise NotPermitted([UPDATE], "the price book is the project's, and this key belongs to one app of it")
    told = check(model=model, unit=unit, amount=amount, per=per, effective_from=effective_from)
    now = read_at(Project.objects.using(database()).annotate(now=Now()).get(pk=project.pk))
    price = Price(project=project, model=model, unit=unit, amount=told, per=per, effective_from=effective_from or day_of(now), changed_at=now)
    same_day = prices_of(project).filter(model=price.model, unit=price.unit, effective_from=price.effective_from)
    kept = uniques.insert_or_find(price, same_day.select_for_update().first)
    was = {} if kept is price else {"was": _told(kept)}
    if was:
        kept.amount, kept.per, kept.changed_at = price.amount, price.per, now
        kept.save(using=database(), update_fields=["amount", "per", "changed_at"])
    trail.record(project.pk, now, "SetPrice", actor=actor_of(by), target=("price", _said(kept)), **_told(kept), **was)
    return kept


def prices_of(project: Project) -> QuerySet[Price]:
    """A project's prices: by model and unit, the newest first."""
    return Price.objects.using(database()).filter(project=project).order_by("model", "unit", "-effective_from")


def book(app_id: int, pairs: Collection[Pair], day: date) -> dict[Pair, Price]:
    """The prices of that day for these models and units, in the project of that app: one statement. A pair without a price is in it not."""
    rows = Price.objects.using(database()).filter(project__apps=app_id, effective_from__lte=day)
    rows = rows.filter(model__in={model for model, _ in pairs}, unit__in={unit for _, unit in pairs})
    return {(row.model, row.unit): row for row in rows.order_by("effective_from")}  # the last of a pair stays


def cost(price: Price | None, amount: Decimal) -> Decimal | None:
    """What an amount costs; None without a price."""
    return None if price is None else amounts.cost(amount, price.amount, price.per)


def day_of(moment: datetime) -> date:
    """The day whose prices count at a moment: the one in UTC."""
    return moment.astimezone(UTC).date()


def check(*, model: str, unit: str, amount: Decimal | str, per: int, effective_from: date | None = None) -> Decimal:
    """Whether this can be a price; gives the amount as it is kept. Raises `InvalidArgument`."""
    for field, text, limit in (("model", model, MAX_MODEL), ("unit", unit, MAX_UNIT)):
        fault = names.text_fault(text, limit) or ("is empty" if field == "unit" and not text else None)
        if fault:
            raise InvalidArgument(field, fault)
    if isinstance(per, bool) or not isinstance(per, int) or not 1 <= per <= MAX_PER:
        raise InvalidArgument("per", f"a whole number from 1 to {MAX_PER:,} is needed, such as 1000000 for a price of a million units")
    if effective_from is not None and (not isinstance(effective_from, date) or isinstance(effective_from, datetime)):
        raise InvalidArgument("effective_from", "a day is needed, as in 2026-01-31")
    try:
        return amounts.read(str(amount), MAX_WHOLE, MAX_PLACES)
    except ValueError as error:
        raise InvalidArgument("amount", str(error)) from None


def _told(price: Price) -> Mapping[str, Any]:
    return {"amount": amounts.text_of(price.amount), "per": price.per, "effective_from": price.effective_from}


def _said(price: Price) -> str:
    return f"{price.model}/{price.unit}" if price.model else price.unit
