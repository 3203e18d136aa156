"""What a body notes for its outcome, or one of its inner steps for its record: a patch of the state, usage, spans. Safe from any thread.

A body is called again and again, and notes the same again up to where it got. So its code is seen as stretches, each from one thing that it was
given to the next, with an anchor that is the same in every pass. A pass that parks tells the anchors of what it sends; what later passes note in
those stretches is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from ..protocol import codec
from ..protocol.notes import MAX_SPANS, Usage
from .usage import Amount, Meter, Span, merged


class Notes:
    """Notes that go together with one outcome or record. `root` is the span that its spans hang under.

    `path` is that of the strand that notes; `sent` are the anchors of the stretches whose notes the server has.
    """

    def __init__(self, root: str, path: str = "", sent: Collection[str] = ()) -> None:
        self._root = root
        self._path = path
        self._sent = sent
        self.forget()

    def forget(self) -> None:
        """Begin anew: the code is called once more, or what it did was rolled back."""
        self._meter: Meter | None = None
        self._patch: Mapping[str, Any] = {}
        self._patch_now: Mapping[str, Any] = {}
        self._has_patched = False
        self._absorbed_usage: tuple[Usage, ...] = ()
        self._absorbed_spans: tuple[Mapping[str, Any], ...] = ()
        self._anchors: list[str] = []
        self._begin("")

    def turn(self, after: str) -> None:
        """Another stretch begins, after what the strand was given under this name."""
        self._patch, self._patch_now = self.patch, {}
        if self._counts and self._has_noted:
            self._anchors.append(self._anchor)
        self._has_patched = False
        self._begin(after)
        if self._meter is not None:
            self._meter.turn(counts=self._counts)

    def patch_state(self, values: Mapping[str, Any]) -> None:
        """Set top-level keys. Raises `InvalidPayload`, naming the key, and changes nothing then."""
        encoded = {key: codec.loads(codec.dumps(value, limit=None, what=f"state.{key}")) for key, value in values.items()}
        self._patch_now = {**self._patch_now, **encoded}
        self._has_patched = True

    def set_usage(self, model: str | None, amounts: Mapping[str, Amount]) -> None:
        """See `Meter.set_usage`."""
        self._metered().set_usage(model, amounts)

    def span(self, name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[Span]:
        """See `Meter.span`."""
        return self._metered().span(name, attributes)

    @property
    def patch(self) -> Mapping[str, Any]:
        """The keys that were set, with their plain values."""
        return self.seen if self._counts else self._patch

    @property
    def seen(self) -> Mapping[str, Any]:
        """The patch as the code that is at work sees it: with what it sets in this stretch, though the server may have it."""
        return {**self._patch, **self._patch_now} if self._patch_now else self._patch

    @property
    def usage(self) -> tuple[Usage, ...]:
        """What was used."""
        own = self._meter.usage if self._meter is not None else ()
        return merged(self._absorbed_usage + own) if self._absorbed_usage else own

    @property
    def spans(self) -> tuple[Mapping[str, Any], ...]:
        """The spans that have ended, no more than one report may have."""
        return (self._absorbed_spans + (self._meter.spans if self._meter is not None else ()))[:MAX_SPANS]

    @property
    def anchors(self) -> tuple[str, ...]:
        """The anchors of the stretches that these notes were made in; also where something that came later has overtaken them."""
        return (*self._anchors, self._anchor) if self._counts and self._has_noted else tuple(self._anchors)

    def overtaken(self, keys: Iterable[str]) -> None:
        """These keys of the state were set by something that is stored already, and came later: what is noted of them no longer counts."""
        gone = frozenset(keys)
        self._patch, self._patch_now = ({key: value for key, value in patch.items() if key not in gone} for patch in (self._patch, self._patch_now))

    def absorb(self, others: Iterable[Notes]) -> None:
        """The notes of members of a group go on as notes of the one that opened it."""
        for other in others:
            self._patch = {**self._patch, **other.patch}
            self._absorbed_usage += other.usage
            self._absorbed_spans += other.spans
            self._anchors += other.anchors

    @property
    def _has_noted(self) -> bool:
        return self._has_patched or (self._meter is not None and self._meter.has_noted)

    def take(self, usage: tuple[Usage, ...], spans: tuple[Mapping[str, Any], ...]) -> None:
        """Notes that were made in another process, which tells all of them each time."""
        self._absorbed_usage, self._absorbed_spans = usage, spans

    def _begin(self, after: str) -> None:
        self._anchor = anchor(self._path, after)
        self._counts = self._anchor not in self._sent

    def _metered(self) -> Meter:
        if self._meter is None:
            self._meter = Meter(self._root, counts=self._counts)
        return self._meter


def anchor(path: str, after: str) -> str:
    """What names a stretch of a strand's code to the server: short, and the same in every pass."""
    return hashlib.sha256(f"{path}\n{after}".encode()).hexdigest()[:16]
