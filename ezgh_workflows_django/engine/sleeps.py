"""How long a claim that is held sleeps between two looks."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from . import wakeups
from .sql import looking

AT_LEAST: Final = 0.05
"""Seconds between two looks for which no bell rings: what is due and yet not to be had is somebody's, and is not waited for in a spin."""


def seconds_to_next(wanted: looking.Wanted) -> float:
    """How long after a look that found nothing the next one is due, where no bell rings: until a step of its own is due, or its patience ends.

    Asks the database only where it tells of new work: elsewhere the next look comes soon anyway.
    """
    patience = wakeups.listener.patience
    if patience <= wakeups.LOOK_EVERY or not wanted.serving:
        return patience
    found = looking.next_available(wanted, timedelta(seconds=patience))
    if found is None:
        return patience
    available_at, now = found
    return max(AT_LEAST, (available_at - now).total_seconds())
