"""What a body notes for its outcome, or one of its inner steps for its record: a patch of the state, usage, spans. Safe from any thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from ..protocol import codec
from ..protocol.messages import Usage
from ..protocol.notes import MAX_SPANS
from .usage import Amount, Meter, Span, merged


class Notes:
    """Notes that go together with one outcome or record. `root` is the span that its spans hang under."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._meter: Meter | None = None
        self._patch: dict[str, Any] = {}
        self._absorbed_usage: tuple[Usage, ...] = ()
        self._absorbed_spans: tuple[Mapping[str, Any], ...] = ()

    def patch_state(self, values: Mapping[str, Any]) -> None:
        """Set top-level keys. Raises `InvalidPayload`, naming the key, and changes nothing then."""
        encoded = {key: codec.loads(codec.dumps(value, limit=None, what=f"state.{key}")) for key, value in values.items()}
        self._patch = {**self._patch, **encoded}

    def set_usage(self, model: str | None, amounts: Mapping[str, Amount]) -> None:
        """See `Meter.set_usage`."""
        self._metered().set_usage(model, amounts)

    def span(self, name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[Span]:
        """See `Meter.span`."""
        return self._metered().span(name, attributes)

    @property
    def patch(self) -> Mapping[str, Any]:
        """The keys that were set, with their plain values."""
        return self._patch

    @property
    def usage(self) -> tuple[Usage, ...]:
        """What was used."""
        own = self._meter.usage if self._meter is not None else ()
        return merged(self._absorbed_usage + own) if self._absorbed_usage else own

    @property
    def spans(self) -> tuple[Mapping[str, Any], ...]:
        """The spans that have ended, no more than one report may have."""
        return (self._absorbed_spans + (self._meter.spans if self._meter is not None else ()))[:MAX_SPANS]

    def overtaken(self, keys: Iterable[str]) -> None:
        """These keys of the state were set by something that is stored already, and came later: what is noted of them no longer counts."""
        gone = frozenset(keys)
        self._patch = {key: value for key, value in self._patch.items() if key not in gone}

    def absorb(self, others: Iterable[Notes]) -> None:
        """The notes of members of a group go on as notes of the one that opened it."""
        for other in others:
            self._patch = {**self._patch, **other.patch}
            self._absorbed_usage += other.usage
            self._absorbed_spans += other.spans

    def forget(self) -> None:
        """What was noted so far went out with an earlier pass, or with a transaction that was rolled back."""
        self._patch, self._absorbed_usage, self._absorbed_spans = {}, (), ()
        if self._meter is not None:
            self._meter.forget()

    def _metered(self) -> Meter:
        if self._meter is None:
            self._meter = Meter(self._root)
        return self._meter
