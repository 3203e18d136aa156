"""A run's state: a JSON object whose top-level keys a body's patch replaces, in the transaction that stores what the body came to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..protocol import codec
from . import payloads
from .locking import Held


def checked(patch: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A patch as plain JSON. Raises `InvalidPayload`."""
    if patch is None:
        return None
    read: dict[str, Any] = codec.loads(payloads.to_text(patch, "state"))
    return read


def patch(held: Held, values: dict[str, Any] | None) -> None:
    """Replace top-level keys. Raises `InvalidPayload` where the whole would be too large."""
    if values:
        merged = {**codec.loads(held.run.state), **values}
        held.work.move(held.run, state=payloads.to_text(merged, "state"))
