"""Looks again and again, while others work, at how many slots of one key are held (I6)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections
from django.db.models import Count

from ezgh_workflows_django.engine import slots
from ezgh_workflows_django.models import Run

EVERY = 0.005
"""Seconds between two looks."""

PATIENCE = 60
"""Seconds that the last look may take."""


@contextmanager
def sampled(limit: int) -> Iterator[list[int]]:
    """Throughout the block no more slots of one key are held than the limit; gives what each look found: one statement, so one moment."""
    most: list[int] = []
    over = threading.Event()

    def look() -> None:
        held = Run.objects.filter(slots.HOLD_SLOTS, bucket__isnull=False).order_by().values_list("bucket").annotate(n=Count("pk"))
        try:
            while not over.is_set():
                most.append(max((count for _, count in held.all()), default=0))
                time.sleep(EVERY)
        finally:
            connections.close_all()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield most
    finally:
        over.set()
        looking.join(PATIENCE)
    assert most
    assert max(most) <= limit, f"{max(most)} at once"
