"""The objects of the worker protocol as a page of Markdown: which call carries which, and of each its fields and its sample."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .docs import WORKER
from .openapi import document
from .reference import properties
from .samples import SAMPLES

_HEAD: Final = """# The objects of the worker protocol

What a worker sends and what it is answered, each object with its fields and one sample. All of it comes from [`openapi.json`](openapi.json), which has
the JSON Schemas, too; `manage.py workflows_openapi --objects` writes this page. How a worker uses them is told in [workers elsewhere](external-workers.md).
"""


def as_text() -> str:
    """The page as the file that is committed."""
    told = document()
    schemas = told["components"]["schemas"]
    return "\n".join([_HEAD, *_calls(told), *(line for name in sorted(SAMPLES) for line in _object(name, schemas[name]))])


def _calls(told: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| Call | Body | Answer |", "| --- | --- | --- |")
    for path, methods in told["paths"].items():
        for method, each in methods.items():
            if WORKER in each["tags"]:
                answers = (answer for status, answer in sorted(each["responses"].items()) if status.startswith("2"))
                body = _link(each.get("requestBody", {}))
                yield f"| `{method.upper()} {path.removeprefix('/')}` | {body} | {', '.join(filter(None, map(_link, answers)))} |"
    yield ""


def _link(carrier: Mapping[str, Any]) -> str:
    """The object that a body or an answer is, or nothing."""
    name = carrier.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "").rsplit("/", 1)[-1]
    return f"[{name}](#{name.lower()})" if name else ""


def _object(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"## {name}", "")
    if "description" in schema:
        yield from (schema["description"], "")
    yield from ("| Field | Type | Needed | What |", "| --- | --- | --- | --- |")
    for field in properties(schema):
        yield f"| `{field['name']}` | {field['type'].replace('|', 'or')} | {'yes' if field['needed'] else ''} | {field['what']} |"
    yield from ("", "```json", json.dumps(SAMPLES[name], indent=2, ensure_ascii=False), "```", "")
