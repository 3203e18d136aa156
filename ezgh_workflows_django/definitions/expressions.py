"""CEL behind one seam: compile, check, evaluate. Every error is an `ExpressionError` with the expression in it.

The library has no limits, holds the GIL, and is quadratic in places, so what it is given is bounded here: 2 KB of text, no loop within a loop,
1,000 items in a `map` or `filter`, integers of 64 bits, and only the names the expression mentions. Evaluates; knows no run and no step.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Mapping
from functools import cache, cached_property, lru_cache, partial
from typing import Any, Final

from ..errors import ExpressionError, InvalidPayload
from ..protocol import codec
from .cel_text import COSTLY_LOOPS, CelText

NAMES: Final = ("payload", "labels", "steps", "state", "run_id")
"""What an expression may name."""
EMPTY_AT_START: Final = ("steps", "state")
"""Of these, what has nothing in it yet where it is evaluated as a run starts."""
MAX_SOURCE_BYTES: Final = 2_048
MAX_LOOP_ITEMS: Final = 1_000
MAX_COPIED: Final = 500_000_000
"""Characters and items that an expression's `+` may copy, at the worst: `a + b + …` copies its left side at each sign."""
CACHED_PROGRAMS: Final = 1_024

_LIMIT: Final = "__limit__"
_FAILURES: Final = (KeyError, TypeError, RuntimeError, ZeroDivisionError, OverflowError, ValueError, IndexError, AttributeError)
_DASHED_STEP: Final = re.compile(r"\bsteps\s*\.\s*([A-Za-z_][A-Za-z0-9_]*(?:\s*-\s*[A-Za-z_][A-Za-z0-9_]*)+)")


class Expression:
    """One compiled expression. Raises `ExpressionError` where it does not compile, breaks a bound, or names what it may not."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._refuse_size()
        self._text = CelText(source)
        if any(token.text == _LIMIT for token in self._text.tokens):
            raise self._error(f"names {_LIMIT}, which is reserved")
        self._program = self._compile(source)
        if self._text.has_nested_loops:
            raise self._error("has a macro within a macro, which is not allowed: its cost multiplies")
        self.names = tuple(name for name in self._program.variables() if name in NAMES or name not in self._text.loop_names)
        self._refuse_unknown_names()
        self._has_costly_loops = any(loop.macro in COSTLY_LOOPS for loop in self._text.loops)
        self._guarded = self._compile(self._with_guards()) if self._has_costly_loops else self._program

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """The value, as plain JSON. Reads no name of `names` but those it mentions. Raises `ExpressionError`."""
        values = {name: names[name] for name in self.names if name in names}
        self._refuse_values(values)
        return self._plain(self._execute(values))

    @property
    def step_names(self) -> tuple[str, ...]:
        """The steps it names."""
        return self._text.step_names

    def step_fault(self, steps: Collection[str], before: Container[str] | None = None) -> str | None:
        """What is wrong with the steps it names, where the workflow has these, and `before` those whose outputs are there; or None."""
        unknown = [name for name in self.step_names if name not in steps]
        if unknown:
            return str(self._error(f"names step {unknown[0]}, which the workflow does not have{self._dash_hint()}"))
        late = [name for name in self._text.read_step_names if before is not None and name not in before]
        return str(self._error(f"names step {late[0]}, which does not come before it: its output is never there")) if late else None

    def start_fault(self) -> str | None:
        """What it reads that no run has at its start; or None."""
        empty = [name for name in EMPTY_AT_START if self._text.reads(name)]
        return str(self._error(f"names {empty[0]}, which is empty when a run starts: it may name payload, labels and run_id")) if empty else None

    def _execute(self, values: dict[str, Any]) -> Any:
        if not self._has_costly_loops:
            return self._call(self._program, values)
        sizes: list[int] = []
        context = _library().Context(values)
        context.add_function(_LIMIT, partial(_is_within_limit, sizes))
        result = self._call(self._guarded, context)
        if max(sizes, default=0) > MAX_LOOP_ITEMS:
            raise self._error(f"loops over {max(sizes)} items with map or filter, at most {MAX_LOOP_ITEMS} are allowed")
        return result

    def _call(self, program: Any, context: Any) -> Any:
        try:
            return program.execute(context)
        except KeyError as error:
            raise self._error(f"there is no {error.args[0] if error.args else ''}".rstrip()) from error
        except _FAILURES as error:
            raise self._error(codec.clean_text(error, 300)) from error

    def _compile(self, source: str) -> Any:
        try:
            return _library().compile(source)
        except _FAILURES as error:
            raise self._error(f"does not compile: {_reason(error)}") from error

    def _with_guards(self) -> str:
        """The text with what a `map` or `filter` loops over put behind a look at its size; a chain is looked at where it begins."""
        edits: dict[int, str] = {}
        text, source = self._text, self.source
        bases = {loop.receiver: min(other.name for other in text.loops if other.receiver == loop.receiver) for loop in text.loops if loop.macro in COSTLY_LOOPS}
        for first, name in bases.items():
            over = text.text_of(first, name - 1)
            edits[first] = f"({_LIMIT}(size({over})) ? ({over}) : [])"
        for first in sorted(edits, reverse=True):
            start, end = text.tokens[first].start, text.tokens[bases[first] - 2].end
            source = source[:start] + edits[first] + source[end:]
        return source

    def _refuse_size(self) -> None:
        size = len(self.source.encode(errors="replace"))
        if size > MAX_SOURCE_BYTES:
            raise self._error(f"has {size} bytes, at most {MAX_SOURCE_BYTES} are allowed")

    def _refuse_unknown_names(self) -> None:
        unknown = [name for name in self.names if name not in NAMES]
        if unknown:
            known = ", ".join(NAMES)
            raise self._error(f"names {', '.join(unknown)}, which is unknown here: it may name {known}{self._dash_hint()}")

    def _dash_hint(self) -> str:
        found = _DASHED_STEP.search(self.source)
        return f' (a dash reads as minus: write steps["{re.sub(chr(92) + "s", "", found.group(1))}"])' if found else ""

    def _refuse_values(self, values: Mapping[str, Any]) -> None:
        size = 0
        todo = list(values.values())
        while todo:
            value = todo.pop()
            if isinstance(value, str):
                size += len(value)
            elif isinstance(value, Mapping):
                todo += value.values()
            elif isinstance(value, (list, tuple)):
                todo += value
            elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
                raise self._error(f"is given the integer {_short(value)}, which is beyond 64 bits")
            size += 1
        if size * self._copies > MAX_COPIED:
            raise self._error("adds too much to too large values: it would copy over 500 MB")

    @cached_property
    def _copies(self) -> int:
        """How often the values may be copied by `+`, at the worst."""
        plus = [self._text.is_inside_loop(place) for place, token in enumerate(self._text.tokens) if token.text == "+"]
        inside, outside = sum(plus), len(plus) - sum(plus)
        return outside * (outside + 1) // 2 + inside * (inside + 1) // 2 * (MAX_LOOP_ITEMS if self._loops_name_outer_values else 1)

    @property
    def _loops_name_outer_values(self) -> bool:
        text = self._text
        return any(token.text in NAMES and token.text not in text.loop_names and text.is_inside_loop(place) for place, token in enumerate(text.tokens))

    def _plain(self, value: Any) -> Any:
        try:
            return codec.plain(value, "its value")
        except InvalidPayload as error:
            raise self._error(str(error)) from error

    def _error(self, reason: str) -> ExpressionError:
        shown = codec.clean_text(self.source, 200)
        return ExpressionError(f"expression `{shown}`: {reason}")


@cache
def _library() -> Any:
    import cel  # it drags in a command line of its own, a fifth of a second that only those who write expressions pay

    return cel


@lru_cache(maxsize=CACHED_PROGRAMS)
def compiled(source: str) -> Expression:
    """The compiled expression of a text; the last ones asked for are kept. Raises `ExpressionError`."""
    return Expression(source)


def evaluate(source: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression, as plain JSON. Raises `ExpressionError`."""
    return compiled(source).evaluate(names)


def fault(source: object, steps: Collection[str], before: Container[str] | None = None, *, at_start: bool = False) -> str | None:
    """What is wrong with an expression of a workflow that has these steps, before any run; or None.

    `before` are the steps whose outputs may be there (None: any); `at_start` says that it is evaluated as the run starts.
    """
    if not isinstance(source, str):
        return f"an expression is text, not {type(source).__name__}"
    try:
        expression = compiled(source)
        return expression.step_fault(steps, before) or (expression.start_fault() if at_start else None)
    except ExpressionError as error:
        return str(error)


def _is_within_limit(sizes: list[int], size: int) -> bool:
    # It does not raise: CEL's own `||` would swallow that.
    sizes.append(size)
    return size <= MAX_LOOP_ITEMS


def _reason(error: BaseException) -> str:
    # The library repeats the expression and draws an arrow under it; the first line's end says what is wrong.
    found = re.search(r"ERROR: <input>:\d+:(\d+): ([^\n]*)", str(error))
    return f"{found.group(2)[:160]} (at character {found.group(1)})" if found else codec.clean_text(error, 200)


def _short(value: int) -> str:
    return str(value) if value.bit_length() < 200 else f"of {value.bit_length()} bits"
