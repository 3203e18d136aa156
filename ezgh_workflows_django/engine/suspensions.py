"""What a worker's suspend may ask for, checked before anything of it is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from ..definitions import names
from ..definitions.durations import MAX_SPAN_MS
from ..errors import InvalidPayload
from ..protocol.durable import MAX_NAME, MAX_NOTED, MAX_NOTED_EACH, MAX_WAITS, WaitFor
from ..protocol.states import WaitKind


def check(waits: Sequence[WaitFor]) -> None:
    """Raise `InvalidPayload`, naming what is wrong: no waits, too many, one name twice, a duration out of range, an event without a name."""
    if not waits:
        raise InvalidPayload("waits", "a suspend that waits for nothing would never go on")
    if len(waits) > MAX_WAITS:
        raise InvalidPayload("waits", f"at most {MAX_WAITS:,}, not {len(waits):,}")
    twice = [name for name, count in Counter(wait.name for wait in waits).items() if count > 1]
    if twice:
        raise InvalidPayload("waits", f"{twice[0]!r:.80} is waited for twice")
    for wait in waits:
        fault = _fault(wait)
        if fault:
            raise InvalidPayload(f"waits.{wait.name:.80}", fault)


def check_noted(noted: Sequence[str]) -> None:
    """Raise `InvalidPayload` where what a suspend says of its notes is too much, or no plain text."""
    if len(noted) > MAX_NOTED:
        raise InvalidPayload("noted", f"at most {MAX_NOTED:,}, not {len(noted):,}")
    for place, each in enumerate(noted):
        fault = (names.text_fault(each, MAX_NOTED_EACH) or ("is empty" if not each else None)) if isinstance(each, str) else "is no text"
        if fault:
            raise InvalidPayload(f"noted[{place}]", f"it {fault}")


def _fault(wait: WaitFor) -> str | None:
    if not wait.name:
        return "a wait needs a name"
    fault = names.text_fault(wait.name, MAX_NAME)
    if fault:
        return f"the name {fault}"
    if wait.pos is not None and not 0 <= wait.pos < 2**31:
        return f"{wait.pos} is no place in a body"
    if wait.kind == WaitKind.SLEEP:
        return _sleep_fault(wait)
    return _event_fault(wait) if wait.kind == WaitKind.EVENT else None


def _sleep_fault(wait: WaitFor) -> str | None:
    if (wait.ms is None) == (wait.until is None):
        return "a sleep has either ms or until"
    if isinstance(wait.until, datetime) and wait.until.tzinfo is None:
        return "until needs a time zone"
    return _span_fault("ms", wait.ms)


def _event_fault(wait: WaitFor) -> str | None:
    if not wait.event:
        return "an event needs a name"
    for what, text, limit in (("event", wait.event, names.MAX_EVENT_LENGTH), ("key", wait.key, names.MAX_KEY_LENGTH)):
        fault = names.text_fault(text, limit)
        if fault:
            return f"its {what} {fault}"
    if wait.on_timeout not in ("fail", "continue"):
        return f"on_timeout is fail or continue, not {wait.on_timeout!r:.40}"
    return _span_fault("timeout_ms", wait.timeout_ms) or _span_fault("lookback_ms", wait.lookback_ms)


def _span_fault(what: str, milliseconds: int | None) -> str | None:
    in_range = milliseconds is None or 0 <= milliseconds <= MAX_SPAN_MS
    return None if in_range else f"{what} is 0 to 3,650 days"
