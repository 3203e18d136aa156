"""What a body used, and the spans it used it in. Adds up; never prices."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from .. import clock
from ..definitions import names
from ..errors import InvalidArgument
from ..protocol import amounts, codec
from ..protocol.calls_json import usage_to_json
from ..protocol.notes import MAX_ATTRIBUTES_BYTES, MAX_MODEL, MAX_SPAN_NAME, MAX_SPAN_PAIRS, MAX_SPANS, MAX_UNIT, Usage
from . import telemetry

Amount = int | float | Decimal
"""How much of a unit; zero or more."""

_UsageKey = tuple[str | None, str]

_log = logging.getLogger("ezgh_workflows.worker")

_inside: ContextVar[str | None] = ContextVar("ezgh_workflows_span", default=None)
"""The span that surrounds what is running here."""


class Span:
    """A named stretch of a body's time. `attributes` are plain JSON values by name."""

    def __init__(self, name: str, parent: str, attributes: Mapping[str, Any]) -> None:
        self.id: Final = secrets.token_hex(8)
        self.name = name
        self.parent = parent
        self.attributes = dict(attributes)
        self._started_at = datetime.now(UTC)
        self._began = clock.monotonic()
        self._used: dict[_UsageKey, Decimal] = {}

    def set_usage(self, *, model: str | None = None, **amounts: Amount) -> None:
        """What was used in this span, not counting the spans inside it, as `unit=amount`. A later call for a model and unit replaces it."""
        used = self._used | amounts_by_unit(model, amounts)
        if len(used) > MAX_SPAN_PAIRS:
            raise InvalidArgument("unit", f"span {self.name} has more than {MAX_SPAN_PAIRS} pairs of model and unit")
        self._used = used

    @property
    def used(self) -> Mapping[_UsageKey, Decimal]:
        """The amounts, by model and unit."""
        return self._used

    def forget(self) -> None:
        """The amounts that were noted so far went out with an earlier pass; the span goes on without them."""
        self._used = {}

    def to_json(self) -> dict[str, Any]:
        """The wire form, ending now. How long it took is told by the monotonic clock: the wall's may have been put back meanwhile."""
        took = timedelta(seconds=max(0.0, clock.monotonic() - self._began))
        started, ended_at = (_text(self._started_at + offset) for offset in (timedelta(0), took))
        ended: dict[str, Any] = {"id": self.id, "parent": self.parent, "name": self.name, "start": started, "end": ended_at}
        if self.attributes:
            ended["attributes"] = self.attributes
        if self._used:
            ended["usage"] = usage_to_json(usages(self._used))
        return ended


@dataclass(slots=True)
class _Tally:
    """What was noted in some stretch of the code: the sums of its spans, what overrides them, the spans that ended."""

    added: dict[_UsageKey, Decimal] = field(default_factory=dict)
    overridden: dict[_UsageKey, Decimal] = field(default_factory=dict)
    ended: list[dict[str, Any]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.added or self.overridden or self.ended)

    def __add__(self, later: _Tally) -> _Tally:
        return _Tally(added(self.added, later.added), self.overridden | later.overridden, self.ended + later.ended)


class Meter:
    """The usage and the spans of one attempt. Safe from any thread of the body.

    It goes on from stretch to stretch of the code; `counts` says whether what is noted in the one that begins now is wanted.
    """

    def __init__(self, root: str, *, counts: bool = True) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._before = _Tally()
        self._now = _Tally()
        self._counts = counts
        self._open: list[Span] = []
        self._is_full = False

    @property
    def has_noted(self) -> bool:
        """Whether anything was noted in this stretch."""
        with self._lock:
            return bool(self._now)

    def turn(self, *, counts: bool) -> None:
        """Another stretch begins. What was noted in one that does not count is dropped; spans that are open go on, empty."""
        with self._lock:
            if not self._counts:
                for span in self._open:
                    span.forget()
            elif self._now:
                self._before += self._now
            self._now, self._counts = _Tally(), counts

    def set_usage(self, model: str | None, amounts: Mapping[str, Amount]) -> None:
        """Override what the spans add up to. A later call for a model and unit replaces it."""
        counted = amounts_by_unit(model, amounts)
        with self._lock:
            self._now.overridden |= counted

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, Any]) -> Iterator[Span]:
        """A span under the one around it; recorded when it ends, however it ends. Raises `InvalidPayload` for attributes that can't be kept."""
        span = Span(codec.clean_text(name, MAX_SPAN_NAME) or "span", _inside.get() or self._root, _encoded(attributes))
        token = _inside.set(span.id)
        with self._lock:
            self._open.append(span)
        try:
            with telemetry.span(span.id, span.name, span.attributes):
                yield span
        finally:
            _inside.reset(token)
            self._end(span)

    def _end(self, span: Span) -> None:
        with self._lock:
            self._open.remove(span)
            if len(self._before.ended) + len(self._now.ended) < MAX_SPANS:
                self._now.ended.append(span.to_json())
            elif not self._is_full:
                self._is_full = True
                _log.warning("span %s and those after it are not kept: one report has at most %d; their usage counts all the same", span.name, MAX_SPANS)
            self._now.added = added(self._now.added, span.used)

    @property
    def usage(self) -> tuple[Usage, ...]:
        """What was used so far: the override where there is one, else the sum of the ended spans."""
        with self._lock:
            counted = self._counted()
            return usages(counted.overridden or counted.added)

    @property
    def spans(self) -> tuple[Mapping[str, Any], ...]:
        """The ended spans, in the order they ended: the first 1,000."""
        with self._lock:
            return tuple(self._counted().ended)

    def _counted(self) -> _Tally:
        return self._before + self._now if self._counts else self._before


def amounts_by_unit(model: str | None, used: Mapping[str, Amount]) -> dict[_UsageKey, Decimal]:
    """The amounts as exact decimals, by model and unit. Raises `InvalidArgument`, naming the model or the unit."""
    fault = None if model is None else names.text_fault(model, MAX_MODEL) or ("is empty" if not model else None)
    if fault:
        raise InvalidArgument("model", f"a model's name {fault}")
    return {(model, unit): _decimal(unit, amount) for unit, amount in used.items()}


def added(first: Mapping[_UsageKey, Decimal], second: Mapping[_UsageKey, Decimal]) -> dict[_UsageKey, Decimal]:
    """Both together, exactly."""
    return {**first, **{key: amounts.total(first.get(key, Decimal(0)), amount) for key, amount in second.items()}}


def usages(used: Mapping[_UsageKey, Decimal]) -> tuple[Usage, ...]:
    """The wire's shape of these amounts."""
    return tuple(Usage(unit=unit, amount=amounts.text_of(amount), model=model) for (model, unit), amount in used.items())


def merged(used: Iterable[Usage]) -> tuple[Usage, ...]:
    """The same, one for each model and unit."""
    together: dict[_UsageKey, Decimal] = {}
    for each in used:
        together = added(together, {(each.model, each.unit): Decimal(each.amount)})
    return usages(together)


def _decimal(unit: str, amount: Amount) -> Decimal:
    fault = names.text_fault(unit, MAX_UNIT) or ("is empty" if not unit else None)
    if fault:
        raise InvalidArgument("unit", f"the name of a unit {fault}")
    if isinstance(amount, bool) or not isinstance(amount, (int, float, Decimal)):
        raise InvalidArgument(unit, f"an amount is a number, not {type(amount).__name__}")
    try:
        return amounts.bounded(amounts.of_float(amount) if isinstance(amount, float) else Decimal(amount))
    except ValueError as error:
        raise InvalidArgument(unit, f"no amount: {error}") from error


def _encoded(attributes: Mapping[str, Any]) -> dict[str, Any]:
    encoded: dict[str, Any] = codec.loads(codec.dumps(dict(attributes), limit=MAX_ATTRIBUTES_BYTES, what="attributes"))
    return encoded


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
