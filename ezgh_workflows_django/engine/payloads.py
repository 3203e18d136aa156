"""Users' values on their way into the tables: encoded once, bounded by `MAX_PAYLOAD_BYTES`."""

from __future__ import annotations

from typing import Any

from ..conf import app_settings
from ..protocol import codec


def to_text(value: Any, what: str) -> str:
    """The JSON text of a user's value. Raises `InvalidPayload`, whose path begins with `what`."""
    return codec.dumps(value, limit=app_settings.MAX_PAYLOAD_BYTES, what=what)


def from_text(text: str | None) -> Any:
    """The value of stored JSON text; None where nothing is stored."""
    return None if text is None else codec.loads(text)
