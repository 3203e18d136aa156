"""Whether a JSON value has the shape a JSON Schema says. Knows the few keywords our schemas use; judges no meaning."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, (list, tuple)),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}

MAX_FAULTS: Final = 100
"""A hostile value has as many faults as it has bytes; nobody reads more than these."""


def shape_faults(value: Any, schema: Schema, path: str) -> list[str]:
    """Every way in which `value` misses the schema, each with its path; at most `MAX_FAULTS`."""
    faults: list[str] = []
    todo: list[tuple[Any, Schema, str]] = [(value, schema, path)]
    while todo and len(faults) < MAX_FAULTS:
        here, wanted, where = todo.pop()
        found = _own_faults(here, wanted)
        faults += [f"{where}: {fault}" for fault in found]
        if not found:
            todo += _parts(here, wanted, where)
    return faults


def _own_faults(value: Any, schema: Schema) -> list[str]:
    types = schema.get("type")
    if types is not None and not any(_TYPES[name](value) for name in ([types] if isinstance(types, str) else types)):
        return [f"{_short(value)} is no {types if isinstance(types, str) else ' or '.join(types)}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{_short(value)} is none of {', '.join(map(repr, schema['enum']))}"]
    return [*_range_faults(value, schema), *_size_faults(value, schema), *_missing(value, schema)]


def _range_faults(value: Any, schema: Schema) -> list[str]:
    if not _TYPES["number"](value):
        return []
    low, high = schema.get("minimum"), schema.get("maximum")
    below, above = low is not None and not value >= low, high is not None and not value <= high
    return [f"{_short(value)} is below {low}"] * below + [f"{_short(value)} is above {high}"] * above


def _size_faults(value: Any, schema: Schema) -> list[str]:
    if isinstance(value, str):
        faults = [f"is over {schema['maxLength']} characters"] if len(value) > schema.get("maxLength", len(value)) else []
        pattern = schema.get("pattern")
        return faults + ([f"{_short(value)} does not match {pattern}"] if pattern and ("\n" in value or not re.search(pattern, value)) else [])
    if isinstance(value, (list, tuple)) and len(value) < schema.get("minItems", 0):
        return [f"has fewer than {schema['minItems']} items"]
    return []


def _missing(value: Any, schema: Schema) -> list[str]:
    return [f"{name} is missing" for name in schema.get("required", ()) if isinstance(value, Mapping) and name not in value]


def _parts(value: Any, schema: Schema, path: str) -> list[tuple[Any, Schema, str]]:
    if isinstance(value, Mapping):
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        pairs = [(name, known.get(name, others)) for name in value]
        return [(value[name], part, f"{path}.{name}") for name, part in pairs if isinstance(part, Mapping)]
    if isinstance(value, (list, tuple)) and "items" in schema:
        return [(item, schema["items"], f"{path}[{index}]") for index, item in enumerate(value)]
    return []


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, (str, int, float, bool, type(None))) else f"a value of type {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
