"""The text of a CEL expression, cut into tokens: where its loops are, what they loop over, what it names. Evaluates nothing.

The library under `expressions` compiles and runs; it has no bounds of its own, so they are laid here, on the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

LOOPS: Final = frozenset({"map", "filter", "all", "exists", "exists_one", "existsOne"})
"""The macros that go through a list."""
COSTLY_LOOPS: Final = frozenset({"map", "filter"})
"""Those whose cost grows with the square of the list's length."""

_STRING: Final = r"[rRbB]{0,2}(?:\"\"\"(?s:.)*?\"\"\"|'''(?s:.)*?'''|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
_RAW_STRING: Final = r"[bB]?[rR][bB]?(?:\"\"\"(?s:.)*?\"\"\"|'''(?s:.)*?'''|\"[^\"\n]*\"|'[^'\n]*')"
_TOKEN: Final = re.compile(
    rf"(?P<space>\s+|//[^\n]*)|(?P<text>{_RAW_STRING}|{_STRING})|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<number>(?:0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)[uU]?)|(?P<sign>(?s:.))"
)
_CLOSING: Final = {")": "(", "]": "[", "}": "{"}
_OPERATORS: Final = frozenset({"in"})


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text: `kind` is text, name, number or sign; `start` and `end` are its place."""

    kind: str
    text: str
    start: int
    end: int


_NOTHING: Final = Token("", "", 0, 0)


@dataclass(frozen=True, slots=True)
class Loop:
    """A macro that goes through a list. The numbers are places in the tokens: the macro's name, what it loops over, its arguments."""

    macro: str
    name: int
    receiver: int
    first: int
    last: int


def tokens_of(source: str, start: int = 0) -> Iterator[Token]:
    """The tokens of a text from a place on, one at a time; spaces and comments are left out."""
    for match in _TOKEN.finditer(source, start):
        if match.lastgroup != "space":
            yield Token(match.lastgroup or "", match.group(), match.start(), match.end())


class CelText:
    """One expression's text, cut into tokens."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens: Sequence[Token] = list(tokens_of(source))

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Every loop, in the order of the text."""
        return tuple(self._loop(place) for place in range(1, len(self.tokens) - 1) if self._is_loop(place))

    @cached_property
    def loop_names(self) -> frozenset[str]:
        """The names that loops give to their items."""
        return frozenset(self.tokens[loop.first].text for loop in self.loops if loop.first < len(self.tokens))

    @property
    def has_nested_loops(self) -> bool:
        """Whether a loop stands in the arguments of another, or, in brackets, in what it loops over."""
        return any(self._holds_loop(loop.first, loop.last) or self._receiver_hides_loop(loop) for loop in self.loops)

    @cached_property
    def step_names(self) -> tuple[str, ...]:
        """The steps it names, as `steps.name` or `steps["name"]`."""
        return self._steps_at(self._places_of("steps"))

    @cached_property
    def read_step_names(self) -> tuple[str, ...]:
        """The steps whose outputs it reads: those it names anywhere but within a `has(…)`."""
        return self._steps_at(place for place in self._places_of("steps") if not self._is_asked_for(place))

    def reads(self, name: str) -> bool:
        """Whether it has that name, which is no loop's, anywhere but within a `has(…)`."""
        return name not in self.loop_names and any(not self._is_asked_for(place) for place in self._places_of(name))

    def is_inside_loop(self, place: int) -> bool:
        """Whether the token at that place is in the arguments of a loop."""
        return any(loop.first <= place < loop.last for loop in self.loops)

    def text_of(self, first: int, last: int) -> str:
        """The source from one token up to another, which is not included."""
        return self.source[self.tokens[first].start : self.tokens[last - 1].end]

    def _places_of(self, name: str) -> Iterator[int]:
        """Where that name stands by itself, not as a member of something."""
        return (place for place, token in enumerate(self.tokens) if token.text == name and (not place or self.tokens[place - 1].text != "."))

    def _steps_at(self, places: Iterable[int]) -> tuple[str, ...]:
        found = []
        for place in places:
            mark, name = [*self.tokens[place + 1 : place + 3], _NOTHING, _NOTHING][:2]
            found += [name.text] if mark.text == "." else [name.text.strip("\"'")] if mark.text == "[" and name.kind == "text" else []
        return tuple(found)

    def _is_asked_for(self, place: int) -> bool:
        return any(first < place < last for first, last in self._questions)

    @cached_property
    def _questions(self) -> tuple[tuple[int, int], ...]:
        """Where the brackets of each `has(…)` open and close."""
        openings = (place + 1 for place in self._places_of("has") if place + 1 < len(self.tokens) and self.tokens[place + 1].text == "(")
        return tuple((opening, self._closing(opening)) for opening in openings)

    def _is_loop(self, place: int) -> bool:
        before, token, after = self.tokens[place - 1 : place + 2]
        return token.text in LOOPS and token.kind == "name" and before.text == "." and after.text == "("

    def _loop(self, place: int) -> Loop:
        return Loop(self.tokens[place].text, place, self._start_of_operand(place - 2), place + 2, self._closing(place + 1))

    def _holds_loop(self, first: int, last: int) -> bool:
        return any(first <= loop.name < last for loop in self.loops)

    def _receiver_hides_loop(self, loop: Loop) -> bool:
        # A chain (`x.filter(…).map(…)`) is fine, it never grows. With an index, a member or brackets in between, the size is anybody's guess.
        inner = [other for other in self.loops if loop.receiver <= other.name < loop.name]
        if not inner:
            return False
        link = max(inner, key=lambda other: other.name)
        return any(other.receiver != loop.receiver for other in inner) or link.last + 2 != loop.name

    def _closing(self, opening: int) -> int:
        level = 0
        for place in range(opening, len(self.tokens)):
            level += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(self.tokens[place].text, 0)
            if not level:
                return place
        return len(self.tokens)

    def _opening(self, closing: int) -> int:
        level = 0
        for place in range(closing, -1, -1):
            level += {")": 1, "]": 1, "}": 1, "(": -1, "[": -1, "{": -1}.get(self.tokens[place].text, 0)
            if not level:
                return place
        return 0

    def _start_of_operand(self, place: int) -> int:
        """Where the operand that ends at this token begins: back over calls, indexes and members."""
        while True:
            if self.tokens[place].text in _CLOSING:
                place = self._opening(place)
                if place and self._ends_operand(place - 1):
                    place -= 1
                    continue
            if place >= 2 and self.tokens[place - 1].text == ".":
                place -= 2
                continue
            return place

    def _ends_operand(self, place: int) -> bool:
        token = self.tokens[place]
        return token.text in _CLOSING or (token.kind in ("text", "name") and token.text not in _OPERATORS)
