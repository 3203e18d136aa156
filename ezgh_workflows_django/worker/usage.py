"""What a body used, and the spans it used it in. Adds up; never prices."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ..errors import InvalidArgument
from ..protocol import codec
from ..protocol.messages import Usage

Amount = int | float | Decimal
"""How much of a unit; zero or more."""

_UsageKey = tuple[str | None, str]

_inside: ContextVar[str | None] = ContextVar("ezgh_workflows_span", default=None)
"""The span that surrounds what is running here."""


class Span:
    """A named stretch of a body's time. `attributes` are plain JSON values by name."""

    def __init__(self, name: str, parent: str, attributes: Mapping[str, Any]) -> None:
        self.id: Final = secrets.token_hex(8)
        self.name = name
        self.parent = parent
        self.attributes = dict(attributes)
        self._started_at = _now()
        self._used: dict[_UsageKey, Decimal] = {}

    def set_usage(self, *, model: str | None = None, **amounts: Amount) -> None:
        """What was used in this span, not counting the spans inside it, as `unit=amount`. A later call for a model and unit replaces it."""
        self._used |= amounts_by_unit(model, amounts)

    @property
    def used(self) -> Mapping[tuple[str | None, str], Decimal]:
        """The amounts, by model and unit."""
        return self._used

    def to_json(self) -> dict[str, Any]:
        """The wire form, ending now."""
        ended: dict[str, Any] = {"id": self.id, "parent": self.parent, "name": self.name, "start": self._started_at, "end": _now()}
        if self.attributes:
            ended["attributes"] = self.attributes
        if self._used:
            ended["usage"] = [usage_to_json(usage) for usage in usages(self._used)]
        return ended


class Meter:
    """The usage and the spans of one attempt. Safe from any thread of the body."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._added: dict[_UsageKey, Decimal] = {}
        self._overridden: dict[_UsageKey, Decimal] | None = None
        self._ended: list[dict[str, Any]] = []

    def set_usage(self, model: str | None, amounts: Mapping[str, Amount]) -> None:
        """Override what the spans add up to. A later call for a model and unit replaces it."""
        counted = amounts_by_unit(model, amounts)
        with self._lock:
            self._overridden = (self._overridden or {}) | counted

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, Any]) -> Iterator[Span]:
        """A span under the one around it; recorded when it ends, however it ends."""
        span = Span(codec.clean_text(name, 200), _inside.get() or self._root, _encoded(attributes))
        token = _inside.set(span.id)
        try:
            yield span
        finally:
            _inside.reset(token)
            self._end(span)

    def _end(self, span: Span) -> None:
        with self._lock:
            self._ended.append(span.to_json())
            for key, amount in span.used.items():
                self._added[key] = self._added.get(key, Decimal(0)) + amount

    @property
    def usage(self) -> tuple[Usage, ...]:
        """What was used so far: the override where there is one, else the sum of the ended spans."""
        with self._lock:
            return usages(self._added if self._overridden is None else self._overridden)

    @property
    def spans(self) -> tuple[Mapping[str, Any], ...]:
        """The ended spans, in the order they ended."""
        with self._lock:
            return tuple(self._ended)


def amounts_by_unit(model: str | None, amounts: Mapping[str, Amount]) -> dict[tuple[str | None, str], Decimal]:
    """The amounts as exact decimals, by model and unit. Raises `InvalidArgument`, naming the unit."""
    return {(model, unit): _decimal(unit, amount) for unit, amount in amounts.items()}


def usages(used: Mapping[tuple[str | None, str], Decimal]) -> tuple[Usage, ...]:
    """The wire's shape of these amounts."""
    return tuple(Usage(unit=unit, amount=format(amount, "f"), model=model) for (model, unit), amount in used.items())


def usage_to_json(usage: Usage) -> dict[str, Any]:
    """The wire form of one amount; the model is left out where there is none."""
    return {"unit": usage.unit, "amount": usage.amount} | ({"model": usage.model} if usage.model is not None else {})


def _decimal(unit: str, amount: Amount) -> Decimal:
    if isinstance(amount, bool) or not isinstance(amount, (int, float, Decimal)):
        raise InvalidArgument(unit, f"an amount is a number, not {type(amount).__name__}")
    try:
        exact = Decimal(str(amount))
    except InvalidOperation as error:
        raise InvalidArgument(unit, f"{amount!r} is no amount") from error
    if not exact.is_finite() or exact < 0:
        raise InvalidArgument(unit, f"{amount} is no amount: give a finite number of zero or more")
    return exact


def _encoded(attributes: Mapping[str, Any]) -> dict[str, Any]:
    encoded: dict[str, Any] = codec.loads(codec.dumps(dict(attributes), limit=None, what="attributes"))
    return encoded


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
