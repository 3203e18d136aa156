"""What no schema says of a wire form: that each step is what its kind says, and that all of it can be stored. Reads no meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import InvalidPayload
from ..protocol import codec


def spec_faults(spec: Mapping[str, Any], where: str) -> list[str]:
    """Every such fault of a wire form that has the shape of one, each with its path below `where`."""
    return [*_kind_faults(spec, where), *_unstorable(spec, where)]


def _kind_faults(spec: Mapping[str, Any], where: str) -> Iterator[str]:
    """Each step that is not what its kind says: a wait has a `wait` and a sleep its `sleep_ms`, and no other has."""
    for place, entry in enumerate(spec["steps"]):
        for key, kind in (("wait", "wait"), ("sleep_ms", "sleep")):
            if (key in entry) != (entry["kind"] == kind):
                yield f"{where}.steps[{place}]: its kind is {entry['kind']}, and it has {'a' if key in entry else 'no'} {key}"


def _unstorable(spec: Mapping[str, Any], where: str) -> Iterator[str]:
    """What no database here can keep, unknown keys included: they are stored too."""
    try:
        codec.dumps(spec, limit=None, what=where)
    except InvalidPayload as error:
        yield str(error)
