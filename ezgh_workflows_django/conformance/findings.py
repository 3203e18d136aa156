"""What a check finds: what was sent, what the protocol lets one expect, what came. Sends nothing and prints nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .catalogue import Check


class Outcome(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer that was judged."""

    sent: str
    expected: str
    came: str


class Mismatch(Exception):
    """An answer is not what the protocol promises; the last thing that was seen says which."""


class NotApplicable(Exception):
    """A check can't be made here: this key may not, the server has no such thing, or it would take too long. Its text is the reason."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check. `seen` is everything it judged, in order; of one that failed the last is what failed it."""

    check: Check
    outcome: Outcome
    seen: tuple[Seen, ...] = ()
    reason: str = ""
    seconds: float = 0.0
