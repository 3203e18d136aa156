"""Users' values on a page: decoded, masked by `REDACT`, cut to a size. It never marks a value as safe: every one goes through `format_html`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..conf import app_settings
from ..protocol import codec

MAX_SHOWN: Final = 64 * 1024
"""Characters of one value on a page."""

MAX_BRIEF: Final = 200
"""Characters of one value in a line of a list."""

MASK: Final = "••••••"
NOTHING: Final = "-"

ENGINE_KEYS: Final = ("token",)
"""Of the journal: a lease's number within its step, which is no secret."""


def block(text: str | None, *, plain: Sequence[str] = ()) -> SafeString | str:
    """Stored JSON text as an escaped, indented block; a dash where nothing is stored. `plain` is as in `masked`."""
    return NOTHING if text is None else value_block(codec.loads(text), plain=plain)


def value_block(value: Any, *, plain: Sequence[str] = ()) -> SafeString:
    """A value as an escaped, indented block of at most `MAX_SHOWN` characters that says how much it leaves out."""
    return text_block(json.dumps(masked(value, plain=plain), ensure_ascii=False, indent=2))


def text_block(text: str) -> SafeString:
    """Any text as an escaped block, its lines kept, cut as `value_block` is."""
    block_of_text = format_html('<pre class="ezw-block" tabindex="0">{}</pre>', text[:MAX_SHOWN])
    if len(text) <= MAX_SHOWN:
        return block_of_text
    left_out = _("Shortened: the first %(shown)d of %(all)d characters.") % {"shown": MAX_SHOWN, "all": len(text)}
    return format_html('{}<p class="help">{}</p>', block_of_text, left_out)


def brief(text: str | None, *, plain: Sequence[str] = ()) -> str:
    """Stored JSON text as one short line, with nothing for an empty object. Plain text: the template escapes it."""
    if text is None or text == "{}":
        return ""
    return shortened(json.dumps(masked(codec.loads(text), plain=plain), ensure_ascii=False))


def shortened(text: str) -> str:
    """A text of at most `MAX_BRIEF` characters."""
    return text if len(text) <= MAX_BRIEF else f"{text[: MAX_BRIEF - 1]}…"


def pairs(text: str) -> str:
    """A stored object as `name=value, name=value`, as labels are written."""
    return shortened(", ".join(f"{name}={value}" for name, value in masked(codec.loads(text)).items()))


def masked(value: Any, *, plain: Sequence[str] = ()) -> Any:
    """The value with a mask in place of whatever stands under a key that `REDACT` names, in any case, `-` read as `_`.

    Top-level keys in `plain` stay as they are: the engine's own, which only look like a secret.
    """
    shown = {name: value[name] for name in plain if name in value} if isinstance(value, dict) else {}
    covered = _masked(value, frozenset(map(_folded, app_settings.REDACT)))
    return {**covered, **shown} if shown else covered


def _masked(value: Any, secret: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {name: MASK if _folded(name) in secret else _masked(item, secret) for name, item in value.items()}
    return [_masked(item, secret) for item in value] if isinstance(value, list) else value


def _folded(name: str) -> str:
    return name.casefold().replace("-", "_")
