"""Whether two workflows of one name and revision are one: the same definition with the same code. Compares; calls nothing of what it compares.

A definition says nothing of its bodies, so one place in a factory can make many workflows of one version. A module that is imported anew, or
reloaded, makes equals of what it made before, which is no second workflow: code is compared by what it is named and closes over, not by identity.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from .signatures import StandsFor

if TYPE_CHECKING:
    from .graph import Workflow

MAX_SEEN: Final = 10_000
"""How many values are looked at; what is left then counts as the same."""

_PLAIN: Final = (str, bytes, int, float, complex, type(None), timedelta, date, time, tzinfo, Decimal, UUID)
_UNNAMED: Final = ("<locals>", "<lambda>")


def is_same(one: Workflow, other: Workflow) -> bool:
    """Whether both say the same and run the same code, as far as that can be seen from outside."""
    return one is other or (one.version == other.version and all(map(is_same_code, _code_of(one), _code_of(other))))


def is_same_code(one: Any, other: Any) -> bool:
    """Whether two callables, or values that they hold, are the same.

    A function of a module is what its name says. A lambda, or one within another, is its code with what it closes over and its defaults; a
    `partial`, a method, a dataclass or an object that is called is what it is made of. Of other objects only the class counts: nobody can tell more.
    """
    seen: dict[tuple[int, int], tuple[Any, Any]] = {}  # it keeps what it has seen: an id is one object's only while that is there
    todo = [(one, other)]
    while todo and len(seen) < MAX_SEEN:
        pair = todo.pop()
        if pair[0] is pair[1] or (id(pair[0]), id(pair[1])) in seen:
            continue
        seen[id(pair[0]), id(pair[1])] = pair
        this, that = map(_meant, pair)
        if _name_of(type(this)) != _name_of(type(that)) or (isinstance(this, _PLAIN) and repr(this) != repr(that)):
            return False
        todo += _parts(this, that)
    return True


def _code_of(workflow: Workflow) -> Iterator[Any]:
    """All that only code can say. Of two workflows of one version these are as many, in the same order."""
    yield workflow.on_failure
    yield None if workflow.concurrency is None else workflow.concurrency.key
    for step in workflow.steps:
        yield step.run
        yield None if step.wait is None else step.wait.key


def _meant(value: Any) -> Any:
    return value.function if isinstance(value, StandsFor) else value


def _parts(one: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    """What has to be the same in pairs, for two of one type to be so."""
    if is_dataclass(one) and not isinstance(one, type):
        return ((getattr(one, each.name, None), getattr(other, each.name, None)) for each in fields(one))
    made_of = next((made_of for kinds, made_of in _MADE_OF if isinstance(one, kinds)), _made_of_object)
    return zip(made_of(one), made_of(other), strict=False)


def _made_of_function(function: Any) -> list[Any]:
    if not any(mark in function.__qualname__ for mark in _UNNAMED):
        return [_name_of(function)]
    return [_name_of(function), _text_of(function.__code__), function.__defaults__, function.__kwdefaults__, _closed_over(function)]


def _made_of_object(thing: Any) -> list[Any]:
    return [_name_of(thing), _held_by(thing)] if callable(thing) else []


_MADE_OF: Final[tuple[tuple[Any, Callable[[Any], Iterable[Any]]], ...]] = (
    ((type, BuiltinFunctionType), lambda named: [_name_of(named)]),
    (FunctionType, _made_of_function),
    (MethodType, lambda method: [method.__func__, _held_by(method.__self__)]),
    (functools.partial, lambda partial: [partial.func, partial.args, partial.keywords]),
    (Enum, lambda member: [member.name]),
    (Mapping, lambda mapping: [list(mapping), list(mapping.values())]),
    ((list, tuple), lambda items: [len(items), *items]),
    ((set, frozenset), lambda items: [sorted(repr(item) for item in items if isinstance(item, _PLAIN))]),
)
"""Of each kind, what one of it is made of; the first that fits counts."""


def _closed_over(function: FunctionType) -> list[Any]:
    return [_content(cell) for cell in function.__closure__ or ()]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that has no value yet
        return None


def _text_of(code: Any) -> list[Any]:
    """What a code object does, and the line it is written at; the code within it by its own text, not by identity."""
    constants = [_text_of(each) if isinstance(each, type(code)) else each for each in code.co_consts]
    return [code.co_code, list(code.co_names), list(code.co_varnames), code.co_firstlineno, constants]


def _held_by(thing: Any) -> Mapping[str, Any] | Any:
    """What a callable object, or the one a method is bound to, is made of: its plain attributes and its code. A class is itself."""
    if isinstance(thing, type):
        return thing
    held = getattr(thing, "__dict__", {})
    return {name: value for name, value in sorted(held.items()) if isinstance(value, _PLAIN) or callable(value)}


def _name_of(thing: Any) -> str:
    return f"{getattr(thing, '__module__', None)}.{getattr(thing, '__qualname__', repr(type(thing)))}"
