"""What a report used, priced and kept: its records, its spans, and the totals of its step and run, in the transaction that takes the report in.

Nothing here opens a transaction. A report without usage and spans costs no statement; one with usage costs one for the prices that its transaction
has not read yet, and one insert; one with spans another insert.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal

from ..errors import InvalidPayload
from ..models import Lease, Price, SpanRecord, UsageRecord
from ..protocol.notes import MAX_PAIRS, Notes, Pair, Span
from . import prices, totals
from .locking import Held
from .totals import Total


@dataclass(frozen=True, slots=True)
class Bill:
    """A report's notes with their prices, ready to be kept: nothing of it can fail on its values any more."""

    notes: Notes
    used: tuple[Total, ...]
    of_step: tuple[Total, ...]
    of_run: tuple[Total, ...]
    book: Mapping[Pair, Price]


def bill(held: Held, lease: Lease, notes: Notes) -> Bill | None:
    """What a report's notes cost by the prices of this day, and what the step and the run come to with them; None where there are none.

    Changes nothing. Raises `InvalidPayload` where the run would have used too many different things.
    """
    if not notes:
        return None
    book = _book(held, {*notes.used, *(pair for span in notes.spans for pair in span.used)})
    used = _priced(notes.used, book)
    of_step = totals.merged([*totals.read(lease.step.usage), *used]) if used else ()
    of_run = totals.merged([*totals.read(held.run.usage), *used]) if used else ()
    if len(of_run) > MAX_PAIRS:
        raise InvalidPayload("usage", f"the run would have used {len(of_run)} pairs of model and unit, and at most {MAX_PAIRS} are told apart")
    return Bill(notes, used, of_step, of_run, book)


def keep(held: Held, lease: Lease, due: Bill | None, checkpoint: str = "") -> None:
    """Keep what was billed a moment ago, with the report that brought it: that of the checkpoint of this name, or of how the pass ended."""
    if due is None:
        return
    held.work.insert(_record(held, lease, each, checkpoint) for each in due.used)
    held.work.insert(_span(held, lease, span, due.book, checkpoint) for span in due.notes.spans)
    if due.used:
        held.work.move(lease.step, usage=totals.text_of(due.of_step))
        held.work.move(held.run, usage=totals.text_of(due.of_run))


def _book(held: Held, pairs: Collection[Pair]) -> dict[Pair, Price]:
    """The prices of these, of which only those are read that this transaction has not asked for yet."""
    known: dict[Pair, Price | None] = held.work.once(("prices", held.run.app_id), dict)
    asked = [pair for pair in pairs if pair not in known]
    if asked:
        found = prices.book(held.run.app_id, asked, prices.day_of(held.now))
        known.update((pair, found.get(pair)) for pair in asked)
    return {pair: price for pair in pairs if (price := known[pair]) is not None}


def _priced(used: Mapping[Pair, Decimal], book: Mapping[Pair, Price]) -> tuple[Total, ...]:
    return tuple(totals.priced(pair, amount, prices.cost(book.get(pair), amount)) for pair, amount in used.items())


def _record(held: Held, lease: Lease, used: Total, checkpoint: str) -> UsageRecord:
    return UsageRecord(
        run=held.run,
        step=lease.step.name,
        attempt=lease.attempt,
        lease=lease.pk,
        checkpoint=checkpoint,
        at=held.now,
        model=used.model,
        unit=used.unit,
        amount=used.amount,
        cost=used.cost,
    )


def _span(held: Held, lease: Lease, span: Span, book: Mapping[Pair, Price], checkpoint: str) -> SpanRecord:
    used = _priced(span.used, book)
    return SpanRecord(
        run=held.run,
        step=lease.step.name,
        attempt=lease.attempt,
        lease=lease.pk,
        checkpoint=checkpoint,
        span_id=span.id,
        parent=span.parent,
        name=span.name,
        started_at=span.started_at,
        ended_at=span.ended_at,
        attributes=span.attributes,
        usage=totals.text_of(used) if used else None,
        cost=totals.cost_of(used),
    )
