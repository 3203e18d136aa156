"""What a step is given: the one input rule, and the templates that replace it. Pure values in, pure values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import ExpressionError
from ..protocol import codec
from . import expressions
from .cel_text import tokens_of


def step_input(parents: Sequence[str], payload: Any, outputs: Mapping[str, Any]) -> Any:
    """The one input rule: no parents, the run's payload; one, its output, unchanged; several, an object keyed by parent name.

    A missing output is `None`.
    """
    if not parents:
        return payload
    if len(parents) == 1:
        return outputs.get(parents[0])
    return {parent: outputs.get(parent) for parent in parents}


def render(template: Any, names: Mapping[str, Any]) -> Any:
    """A JSON template with its `${CEL}` computed. A text that is one `${…}` keeps the value's type. Raises `ExpressionError`."""
    if isinstance(template, str):
        return _render_text(template, names)
    if isinstance(template, Mapping):
        return {key: render(value, names) for key, value in template.items()}
    if isinstance(template, (list, tuple)):
        return [render(item, names) for item in template]
    return template


def expressions_in(template: Any) -> Iterator[str]:
    """Every expression of a template. Raises `ExpressionError` for a `${` that is never closed."""
    todo = [template]
    while todo:
        part = todo.pop()
        if isinstance(part, str):
            yield from (source for is_expression, source in _split(part) if is_expression)
        elif isinstance(part, Mapping):
            todo += reversed(list(part.values()))
        elif isinstance(part, (list, tuple)):
            todo += reversed(part)


def _render_text(text: str, names: Mapping[str, Any]) -> Any:
    pieces = _split(text)
    if len(pieces) == 1 and pieces[0][0]:
        return expressions.evaluate(pieces[0][1], names)
    return "".join(_as_text(expressions.evaluate(piece, names)) if is_expression else piece for is_expression, piece in pieces)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else codec.dumps(value, limit=None, what="template")


def _split(text: str) -> list[tuple[bool, str]]:
    """The text cut into (is an expression?, piece). A `}` within a string or a nested brace of the expression does not close it."""
    pieces: list[tuple[bool, str]] = []
    place = 0
    while (opening := text.find("${", place)) >= 0:
        closing = _closing(text, opening + 2)
        pieces += [(False, text[place:opening])] if opening > place else []
        pieces.append((True, text[opening + 2 : closing]))
        place = closing + 1
    return pieces + ([(False, text[place:])] if place < len(text) or not pieces else [])


def _closing(text: str, start: int) -> int:
    level = 0
    for token in tokens_of(text, start):
        if token.text == "}" and not level:
            return token.start
        if token.start - start > expressions.MAX_SOURCE_BYTES:
            break
        level += {"{": 1, "}": -1}.get(token.text, 0)
    raise ExpressionError(f"template {codec.clean_text(text, 200)!r} has a ${{ that is never closed, or not within {expressions.MAX_SOURCE_BYTES} bytes")
