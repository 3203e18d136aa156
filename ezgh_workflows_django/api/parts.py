"""Leases too large for one answer: their largest values stay behind and are fetched one by one, by the place they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ..engine import describing
from ..engine.clock import Now, read_at
from ..engine.transactions import database
from ..errors import UnknownLease
from ..models import Lease
from ..protocol import leases_json

PLACES: Final = ("input", "state")


def cut(lease: dict[str, Any]) -> dict[str, Any]:
    """The lease without its largest values, as few of them as bring its answer under `MAX_LEASE_BYTES`; `parts` has a reference for each that is left out."""
    excess = describing.size_of(lease) - describing.room_of_an_answer()
    if excess <= 0:
        return lease
    excess += describing.size_of({"parts": {}})
    references: dict[str, str] = {}
    for size, place in sorted(((describing.size_of(value), place) for place, value in _values(lease)), reverse=True):
        gained = size - describing.size_of({place: place})
        if excess <= 0 or gained <= 0:
            break
        _take(lease, place)
        references[place] = place
        excess -= gained
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
    for index, each in enumerate(lease["checkpoints"]):
        yield from ((f"checkpoints/{index}/{key}", each[key]) for key in ("output", "error") if key in each)


def _take(lease: dict[str, Any], place: str) -> None:
    *path, last = place.split("/")
    target: Any = lease
    for step in path:
        target = target[int(step)] if isinstance(target, list) else target[step]
    del target[last]
