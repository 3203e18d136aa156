"""Maintenance in a server process: it has no loop of its own, so whoever calls gives it a turn."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from django.db import DatabaseError, InterfaceError

from ..engine import maintenance

logger = logging.getLogger("ezgh_workflows.api")

TICK_AFTER: Final = 1.0
"""Seconds since this process's last tick after which the next call brings another."""


class Ticking:
    """When this process last ticked; one tick at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ticked_at = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether the last tick is over a second old."""
        return time.monotonic() - self._ticked_at >= TICK_AFTER

    def tick_if_due(self) -> None:
        """One tick, unless the last is young or another thread is at it. A database that is away is the next call's matter."""
        if not self.is_due or not self._lock.acquire(blocking=False):
            return
        try:
            self._ticked_at = time.monotonic()
            maintenance.tick()
        except (DatabaseError, InterfaceError) as error:
            logger.warning("maintenance could not look for what is due: %s: %s", type(error).__name__, error)
        except Exception:  # the call that brought the tick is not to suffer for it
            logger.exception("maintenance failed; the next tick tries again")
        finally:
            self._lock.release()


ticking = Ticking()
