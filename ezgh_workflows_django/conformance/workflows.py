"""Workflows as they travel: the wire form of a definition, written out. Nothing here knows Python's authoring words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Spec = Mapping[str, Any]
"""A definition on the wire, or one of its steps."""

AT_ONCE: Final[Spec] = {"max_attempts": 5, "initial_ms": 1, "factor": 1, "maximum_ms": 1, "jitter": 0}
"""A retry policy that tries again at once, four times."""

ONCE_MORE: Final[Spec] = {**AT_ONCE, "max_attempts": 2}


def workflow(name: str, *steps: Spec, **options: Any) -> Spec:
    """A definition of these steps; `options` are its policies."""
    return {"name": name, "revision": "1", "steps": list(steps), **options}


def step(name: str, *after: str, **options: Any) -> Spec:
    """A step that a worker runs, after these others."""
    return {"name": name, "kind": "run", **({"after": list(after)} if after else {}), **options}


def serve(spec: Spec, *steps: str) -> Spec:
    """What a claim says to serve a definition: all of its steps, or only these."""
    return {"name": spec["name"], "revision": spec["revision"], **({"steps": list(steps)} if steps else {})}


def sleep(name: str, ms: int, pos: int = 1) -> Spec:
    """A wait of a suspend: for so many milliseconds."""
    return {"name": name, "kind": "sleep", "ms": ms, "pos": pos}


def event(name: str, of: str, key: str = "", pos: int = 1, **options: Any) -> Spec:
    """A wait of a suspend: for an event of that name and key."""
    return {"name": name, "kind": "event", "event": of, "key": key, "pos": pos, **options}
