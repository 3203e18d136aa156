"""How often one key may start and read: so many calls a second in this process, or 429 with `Retry-After`. Workers' calls are never throttled."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Final

from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from .. import clock
from ..conf import app_settings
from ..engine.keys import Identity

MOST_KEYS: Final = 10_000


class Allowance:
    """A bucket for each key that holds `KEY_RATE` calls and is refilled at that rate each second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, rate: int, now: float) -> float:
        """Take one call; returns 0, or how many seconds later there is one again."""
        with self._lock:
            left, at = self._left.pop(key, (float(rate), now))
            left = min(float(rate), left + (now - at) * rate)
            wait = 0.0 if left >= 1 else (1 - left) / rate
            self._left[key] = (left - 1 if not wait else left, now)
            if len(self._left) > MOST_KEYS:
                self._left.popitem(last=False)
            return wait


allowance = Allowance()


class KeyThrottle(BaseThrottle):
    """Throttles keys, not people: `KEY_RATE` calls a second; 0 for no limit."""

    def __init__(self) -> None:
        self._wait = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        """Whether the key may call now."""
        identity, rate = request.auth, app_settings.KEY_RATE
        if not rate or not isinstance(identity, Identity) or identity.kind != "key":
            return True
        self._wait = allowance.take(identity.prefix, rate, clock.monotonic())
        return not self._wait

    def wait(self) -> float:
        """Seconds until it may call again."""
        return self._wait


class ReadThrottle(KeyThrottle):
    """Throttles what only looks."""

    def allow_request(self, request: Request, view: Any) -> bool:
        """Whether the key may call now."""
        return request.method != "GET" or super().allow_request(request, view)
