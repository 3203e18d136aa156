"""Leases too large for one answer: their largest values stay behind and are fetched one by one, by the place they belong to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from ..conf import app_settings
from ..engine import describing
from ..engine.clock import Now, read_at
from ..engine.transactions import database
from ..errors import UnknownLease
from ..models import Lease
from ..protocol import leases_json

PLACES: Final = ("input", "state")
KEEP: Final = 1024
"""A value of fewer characters always goes with its lease."""


def cut(lease: dict[str, Any]) -> dict[str, Any]:
    """The lease without its largest values, as few of them as bring it under `MAX_LEASE_BYTES`; `parts` has a reference for each that is left out."""
    excess = len(json.dumps(lease)) - app_settings.MAX_LEASE_BYTES
    references: dict[str, str] = {}
    for size, place in sorted(((len(json.dumps(value)), place) for place, value in _values(lease)), reverse=True):
        if excess <= 0 or size < KEEP:
            break
        _take(lease, place)
        references[place] = place
        excess -= size
    return {**lease, "parts": references} if references else lease


def fetch(lease_id: str, reference: str) -> Any:
    """One value of a live lease. Raises `UnknownLease` where the lease is over, or has no such value."""
    lease = Lease.objects.using(database()).select_related("step").annotate(now=Now()).filter(pk=lease_id, live_step__isnull=False).first()
    described = describing.describe([lease], read_at(lease))[0] if lease is not None else []
    for each in described:
        for place, value in _values(leases_json.to_json(each)):
            if place == reference:
                return value
    raise UnknownLease(f"lease {lease_id[:64]} is over, or has no part {reference[:80]!a}")


def _values(lease: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What may be left out of a lease, by its place."""
    yield from ((place, lease[place]) for place in PLACES)
    yield from ((f"steps/{name}", value) for name, value in lease["steps"].items())
    yield from ((f"checkpoints/{index}/output", each["output"]) for index, each in enumerate(lease["checkpoints"]) if "output" in each)


def _take(lease: dict[str, Any], place: str) -> None:
    *path, last = place.split("/")
    target: Any = lease
    for step in path:
        target = target[int(step)] if isinstance(target, list) else target[step]
    del target[last]
