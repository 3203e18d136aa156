"""The parts of leases that an answer had no room for: fetched one by one, and put where they belong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote

from .replies import Reply, accepted, of_leases, refusal


class Asker(Protocol):
    """What sends a request."""

    def call(self, method: str, path: str) -> Reply:
        """Send it; gives the reply."""


class Parts:
    """Completes the leases of a claim's answer.

    A lease names what was left out in `parts`: the place (`input`, `state`, `steps/<name>`, `checkpoints/<index>/output` or `error`) and its reference.
    """

    def __init__(self, line: Asker) -> None:
        self._line = line

    def filled_in(self, claimed: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer with whole leases; one that is lost meanwhile is left out. Raises as `replies.accepted`: the claim is then to be repeated."""
        if not any(lease.get("parts") for lease in claimed["leases"]):
            return claimed
        return {**claimed, "leases": [lease for lease in claimed["leases"] if self._fill_in(lease)]}

    def _fill_in(self, lease: dict[str, Any]) -> bool:
        for place, reference in (lease.get("parts") or {}).items():
            reply = of_leases(self._line.call("GET", f"v1/api/steps/{lease['id']}/parts/{quote(reference, safe='')}"))
            if refusal(reply) is not None:
                return False
            _put(lease, place, accepted(reply))
        return True


def _put(lease: dict[str, Any], place: str, value: Any) -> None:
    *path, last = place.split("/")
    target: Any = lease
    for step in path:
        target = target[int(step)] if isinstance(target, list) else target.setdefault(step, {})
    target[last] = value
