"""One annotation, as a codec between plain JSON and Python: pydantic's TypeAdapter behind a seam. Knows no step and no body."""

from __future__ import annotations

import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from datetime import date, time
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from typing_extensions import TypedDict, is_typeddict

from ..errors import Permanent
from ..protocol import codec

MAX_SHOWN: Final = 5
"""How many fields a failure names; a list of 10,000 bad items has as many."""


class Typed:
    """An annotation with its adapter, made once."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation
        self._adapter: TypeAdapter[Any] = TypeAdapter(_modern(annotation))

    def decode(self, value: Any, where: str, parents: Sequence[str], what: str = "input") -> Any:
        """The Python value of a plain JSON one. Raises `Permanent`, naming the field of `what`, or the parent that returned nothing."""
        try:
            return self._adapter.validate_python(self._with_field_names(value, parents))
        except ValidationError as error:
            raise Permanent(f"{where}: {_told(error, value, parents, what)}") from error

    def empty(self, where: str) -> Any:
        """The type's empty value. Raises `Permanent` where it has none."""
        for candidate in self._empty_candidates():
            try:
                return self._adapter.validate_python(candidate)
            except ValidationError:
                continue
        raise Permanent(f"{where}: the run was started without a payload, and {_name(self._annotation)} has no empty value")

    def encode(self, value: Any) -> Any:
        """What goes into JSON. A value of another type than announced is encoded as what it is. Raises `InvalidPayload`."""
        try:
            return self._adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        except (ValueError, RecursionError):  # what pydantic can't write; the codec says where, or can
            return codec.plain(value, "output")

    def schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of the type, or None where it has none."""
        try:
            return self._adapter.json_schema()
        except PydanticUserError:
            return None

    @cached_property
    def _fields(self) -> frozenset[str]:
        """The names of the fields, where the type has named fields; a model's aliases included."""
        kind = _bare(self._annotation)
        models = getattr(kind, "model_fields", None)
        if isinstance(models, dict):
            return frozenset(models) | {field.alias for field in models.values() if field.alias}
        return frozenset(getattr(kind, "__annotations__", {})) | frozenset(getattr(kind, "__dataclass_fields__", {}))

    def _with_field_names(self, value: Any, parents: Sequence[str]) -> Any:
        """A parent named `await-payment` fills a field `await_payment`."""
        if len(parents) < 2 or not isinstance(value, Mapping) or not self._fields:
            return value
        return {self._field_for(key, parents): item for key, item in value.items()}

    def _field_for(self, key: str, parents: Sequence[str]) -> str:
        field = key.replace("-", "_")
        return field if key not in self._fields and field in self._fields and field not in parents else key

    def _empty_candidates(self) -> list[Any]:
        kind = _bare(self._annotation)
        if isinstance(kind, type) and issubclass(kind, (date, time, Enum)):  # pydantic takes 0 for a moment
            return [None]
        if is_dataclass(kind) or is_typeddict(kind) or hasattr(kind, "model_fields"):
            return [None, {}]
        return [None, "", 0, False, [], {}]


@lru_cache(maxsize=1_024)
def _cached(annotation: Any) -> Typed:
    return Typed(annotation)


def typed(annotation: Any, where: str) -> Typed | None:
    """The codec of an annotation; None for one that says nothing of a value. Raises `Permanent` where pydantic can make nothing of it."""
    if any(annotation is each for each in _SILENT):
        return None
    try:
        return _cached(annotation)
    except TypeError:  # an annotation that can't be hashed
        return Typed(annotation)
    except PydanticUserError as error:
        raise Permanent(f"{where}: the annotation {_name(annotation)} can't be decoded: {codec.clean_text(error.message, 300)}") from error


def _bare(annotation: Any) -> Any:
    """The class behind `Annotated` and `Optional`, or what is there."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _bare(typing.get_args(annotation)[0])
    others = [part for part in typing.get_args(annotation) if part is not type(None)]
    return _bare(others[0]) if len(others) == 1 and type(None) in typing.get_args(annotation) else annotation


def _modern(annotation: Any) -> Any:
    """The annotation with `typing.TypedDict`s made anew: before Python 3.12 pydantic takes only those of typing_extensions."""
    if sys.version_info >= (3, 12):
        return annotation
    if typing.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        fields = {name: _modern(kind) for name, kind in typing.get_type_hints(annotation, include_extras=True).items()}
        required = annotation.__required_keys__
        return TypedDict(annotation.__name__, {name: kind if name in required else _not_required(kind) for name, kind in fields.items()})  # type: ignore[operator]  # made at run time
    arguments = typing.get_args(annotation)
    modern = tuple(_modern(argument) for argument in arguments)
    if all(new is old for new, old in zip(modern, arguments, strict=True)):
        return annotation
    origin = typing.get_origin(annotation)
    return typing.Union[modern] if origin in _UNIONS else typing.Annotated[modern] if origin is typing.Annotated else origin[modern]  # noqa: UP007  (made of values)


def _not_required(kind: Any) -> Any:
    return kind if typing.get_origin(kind) is typing.NotRequired else typing.NotRequired[kind]


def _told(error: ValidationError, value: Any, parents: Sequence[str], what: str) -> str:
    problems = error.errors(include_url=False, include_context=False)
    told = [_problem(problem, value, parents, what) for problem in problems[:MAX_SHOWN]]
    more = [f"and {len(problems) - MAX_SHOWN} more"] if len(problems) > MAX_SHOWN else []
    return codec.clean_text("; ".join(dict.fromkeys(told + more)), 2_000)


def _problem(problem: Any, value: Any, parents: Sequence[str], what: str) -> str:
    place = problem["loc"]
    parent = _empty_handed(place, value, parents)
    if parent is not None:
        return f"step {parent} returned nothing, and the type of the input does not allow None there"
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return f"{what}{field} does not decode: {problem['msg']}"


def _empty_handed(place: Sequence[Any], value: Any, parents: Sequence[str]) -> str | None:
    """The parent whose `null` is what does not decode at that place, if it is one's."""
    if len(parents) == 1:
        return parents[0] if value is None else None
    if len(parents) < 2 or not place or not isinstance(value, Mapping):
        return None
    return next((parent for parent in parents if place[0] in (parent, parent.replace("-", "_")) and value.get(parent) is None), None)


def _name(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or str(annotation)


_SILENT: Final = (Any, typing.NoReturn, typing.Never)
_UNIONS: Final = (typing.Union, type(int | str))
