"""What a function returns, as it is stored and given back: by its return annotation, as bodies are. Runs no function."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..protocol import codec
from . import signatures

if TYPE_CHECKING:
    from .graph import Workflow
    from .typed import Typed


class Result:
    """The codec of one function's results. `where` names it in errors."""

    def __init__(self, function: Callable[..., Any] | None, where: str) -> None:
        self._function = function
        self._where = where

    def check(self) -> None:
        """Raise `Permanent` where the annotation is no type that JSON can be decoded into: asked before the function is called."""
        _ = self._typed

    def encode(self, value: Any) -> Any:
        """The plain JSON value of a result, which is sure to decode again. Raises `InvalidPayload` or `Permanent`, naming the place."""
        plain = codec.plain(self._typed.encode(value) if self._typed is not None else value, "output")
        self.decode(plain)
        return plain

    def decode(self, plain: Any) -> Any:
        """The value that the caller gets: the same type on the first pass and on every replay, and the caller's own to change."""
        if self._typed is None:
            return copy.deepcopy(plain)
        return self._typed.decode(plain, self._where, (), "output")

    @cached_property
    def _typed(self) -> Typed | None:
        annotation = _return_annotation(self._function)
        if annotation is Any:
            return None
        from .typed import typed  # pydantic takes a tenth of a second to import, and many functions have no annotations

        return typed(annotation, self._where)


def result_of_run(workflow: Workflow | str) -> Result:
    """The codec of what a run of that workflow comes to: that of its last step where there is one, with a body that is held here."""
    if not isinstance(workflow, str) and len(workflow.plan.leaves) == 1:
        last = workflow.step(workflow.plan.leaves[0])
        if last.run is not None:
            return Result(last.run, f"{workflow.name}/{last.name}")
    return Result(None, str(getattr(workflow, "name", workflow)))


def _return_annotation(function: Callable[..., Any] | None) -> Any:
    """The resolved annotation; `Any` where there is none, or none that can be resolved."""
    if function is None:
        return Any
    try:
        return signatures.hints(function).get("return", Any)
    except Exception:  # noqa: BLE001 - resolving annotations runs the module's own names
        return Any
