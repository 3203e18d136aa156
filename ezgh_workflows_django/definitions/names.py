"""What names, keys and labels may look like: one pattern each. Says what is wrong, decides nothing else."""

from __future__ import annotations

import re
from typing import Final

STEP_PATTERN: Final = r"^[a-z][a-z0-9_-]{0,62}$"
WORKFLOW_PATTERN: Final = r"^[a-z][a-z0-9_.-]{0,127}$"
REVISION_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,62}$"
CLASS_PATTERN: Final = r"^[a-z0-9_]{1,64}$"
MAX_EVENT_LENGTH: Final = 128
MAX_KEY_LENGTH: Final = 255
MAX_LABELS: Final = 32
MAX_LABEL_LENGTH: Final = 128

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def matches(pattern: str, text: object) -> bool:
    """Whether `text` is a str that matches the pattern as a whole (a trailing newline does not pass)."""
    return isinstance(text, str) and "\n" not in text and re.match(pattern, text) is not None


def text_fault(text: object, limit: int) -> str | None:
    """What is wrong with a free text that is kept in a column, or None. Nothing is ever cut to fit (case B53)."""
    if not isinstance(text, str):
        return f"is {type(text).__name__}, not text"
    if len(text) > limit:
        return f"has {len(text)} characters, at most {limit} are kept"
    return "holds a control character or a lone surrogate" if _UNPRINTABLE.search(text) else None


def label_faults(labels: object) -> list[str]:
    """Everything that is wrong with a run's labels: text to text, at most 32, 128 characters each."""
    if not hasattr(labels, "items"):
        return [f"labels are {type(labels).__name__}, not a mapping of text to text"]
    pairs = list(labels.items())
    faults = [f"there are {len(pairs)} labels, at most {MAX_LABELS} are kept"] if len(pairs) > MAX_LABELS else []
    faults += ["a label needs a name"] if any(name == "" for name, _ in pairs) else []
    for name, value in pairs:
        faults += [f"the name of label {name!r:.40} {fault}" for fault in [text_fault(name, MAX_LABEL_LENGTH)] if fault]
        faults += [f"the value of label {name!r:.40} {fault}" for fault in [text_fault(value, MAX_LABEL_LENGTH)] if fault]
    return faults
