"""A step's body as the worker and the testing kit use it: decode its input, call it, encode its result.

Types are judged by pydantic, which is imported with the first typed body and not before. Owns no retry, no lease, no time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import Permanent
from ..protocol import codec
from . import signatures

if TYPE_CHECKING:
    from .typed import Typed


class Body:
    """One handler of a workflow's step. `where` is `workflow/step`, for errors."""

    def __init__(self, function: Callable[..., Any], where: str) -> None:
        self.function = function
        self.where = where
        self._signature = signatures.read(function)

    def __repr__(self) -> str:
        return f"<Body {self.where}>"

    @property
    def is_async(self) -> bool:
        """Whether `call` gives something to await."""
        return self._signature.is_async

    @property
    def takes_input(self) -> bool:
        """Whether the body has a parameter for its input."""
        return self._signature.input is not None

    @property
    def takes_context(self) -> bool:
        """Whether the body has a parameter for the context."""
        return self._signature.context is not None

    def decode(self, value: Any, *, has_input: bool = True, parents: Sequence[str] = ()) -> Any:
        """The Python value that the body's annotation makes of a plain JSON input.

        `has_input` is False where the run was started without a payload. `parents` names the steps the input came from, for the rules on
        null and on field names; leave it empty for a rendered input. Raises `Permanent`: the same bytes can never decode.
        """
        if self._signature.input is None:
            return None
        if not has_input and self._signature.input.default is not inspect.Parameter.empty:
            return self._signature.input.default
        if self._input is None:
            return value
        if not has_input:
            return self._input.empty(self.where)
        return self._input.decode(value, self.where, parents)

    def call(self, ctx: Any, decoded: Any) -> Any:
        """Call the body with what it takes of its context and its input; gives its result, or what to await for it."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in self._order:
            value = ctx if parameter == self._signature.context else decoded
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[parameter.name] = value
        return self.function(*positional, **named)

    def encode(self, result: Any) -> Any:
        """The plain JSON value of a result. Raises `InvalidPayload`, its path beginning with `output`."""
        return codec.plain(self._output.encode(result) if self._output is not None else result, "output")

    def annotation_faults(self) -> list[str]:
        """What is wrong with the annotations of input and result: with one that means nothing, the body fails whenever it is run."""
        found: list[str] = []
        for codec_of in ("_input", "_output"):
            try:
                getattr(self, codec_of)
            except Permanent as error:
                found.append(str(error))
        return list(dict.fromkeys(found))

    def input_schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of the input, or None where the body says nothing of it."""
        return self._input.schema() if self._input is not None else None

    @cached_property
    def _order(self) -> list[inspect.Parameter]:
        given = {parameter.name for parameter in (self._signature.context, self._signature.input) if parameter is not None}
        return [parameter for name, parameter in inspect.signature(self.function).parameters.items() if name in given]

    @cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return signatures.hints(self.function)
        except Exception as error:  # resolving annotations runs the module's own names
            wanted = self._signature.input
            if wanted is not None and wanted.annotation is not inspect.Parameter.empty:
                raise Permanent(f"{self.where}: the annotations of the body can't be resolved: {codec.clean_text(error, 200)}") from error
            return {}

    @cached_property
    def _input(self) -> Typed | None:
        parameter = self._signature.input
        return _typed(self._hints[parameter.name], self.where) if parameter is not None and parameter.name in self._hints else None

    @cached_property
    def _output(self) -> Typed | None:
        return _typed(self._hints["return"], self.where) if "return" in self._hints else None


def _typed(annotation: Any, where: str) -> Typed | None:
    if annotation is Any:
        return None
    from .typed import typed  # pydantic takes a tenth of a second to import, and many bodies have no annotations

    return typed(annotation, where)
