"""How a body wants to be called: with an input, with the context, with neither. Read once from its signature; calls nothing."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_CONTEXT: Final = ("ezgh_workflows_django.worker.context", "Context")
# The worker is above this layer, so its class is known by name.
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME: Final = (*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)


class StandsFor:
    """An object that, where it is called, calls its `function` with what it is given: as a body it is what that one is."""

    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """Which parameters of a body take its input and its context (None: it has no such parameter), and whether it is `async def`."""

    input: inspect.Parameter | None
    context: inspect.Parameter | None
    is_async: bool


def read(function: Callable[..., Any]) -> Signature:
    """How that body wants to be called. Raises `ValueError` where no call of ours fits."""
    if not callable(function):
        raise ValueError(f"{function!r} is not callable")
    try:
        parameters = [item for item in inspect.signature(function).parameters.values() if item.kind in _BY_NAME]
    except (ValueError, TypeError) as error:
        raise ValueError(f"{_name(function)} has no signature to read: wrap it in a def") from error
    context = next((item for item in parameters if _is_context(item)), None)
    others = [item for item in parameters if item is not context]
    required = [item for item in others if item.default is inspect.Parameter.empty]
    if len(required) > 1:
        raise ValueError(f"{_name(function)} takes {', '.join(item.name for item in required)}: a body takes its input, and the context as ctx, nothing else")
    wanted = required or others
    return Signature(wanted[0] if wanted else None, context, is_async(function))


def faults(function: Any) -> list[str]:
    """What is wrong with a body before it is ever called."""
    try:
        read(function)
    except ValueError as error:
        return [str(error)]
    return []


def is_async(function: Any) -> bool:
    """Whether calling the body gives something to await."""
    function = _called(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  (its code, not whether it has one)


def hints(function: Any) -> dict[str, Any]:
    """The annotations of a body, by parameter, resolved. Raises what resolving them raises."""
    function = _called(function)
    plain = function if inspect.isroutine(function) else function.__call__
    return typing.get_type_hints(inspect.unwrap(plain), include_extras=True)


def _called(function: Any) -> Any:
    """What is called in the end."""
    while isinstance(function, (functools.partial, StandsFor)):
        function = function.func if isinstance(function, functools.partial) else function.function
    return function


def _is_context(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    if parameter.name == "ctx":
        return True
    if isinstance(annotation, str):
        return annotation.strip("'\" ").rpartition(".")[2] == _CONTEXT[1]
    return isinstance(annotation, type) and any((base.__module__, base.__name__) == _CONTEXT for base in annotation.__mro__)


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
