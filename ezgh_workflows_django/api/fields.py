"""The fields that requests are made of, beside DRF's: plain JSON values, and texts that stay as they came."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final

from django.core.validators import RegexValidator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

MAX_INT: Final = 2**31 - 1
MAX_MS: Final = 3_650 * 24 * 3600 * 1000
"""3,650 days, the longest span anywhere here."""


class Shape(serializers.Serializer[Any]):
    """A JSON object. Fields it does not name are ignored."""


@extend_schema_field(OpenApiTypes.ANY)
class JsonField(serializers.Field[Any, Any, Any, Any]):
    """Any JSON value, null too; the engine says whether it can be kept."""

    def validate_empty_values(self, data: Any) -> tuple[bool, Any]:
        """Null is a value as any other. Said here: `allow_null` would make the document offer it twice."""
        return (True, None) if data is None else super().validate_empty_values(data)

    def to_internal_value(self, data: Any) -> Any:
        """The value itself."""
        return data

    def to_representation(self, value: Any) -> Any:
        """The value itself."""
        return value


@extend_schema_field(OpenApiTypes.OBJECT)
class ObjectField(serializers.Field[Any, Any, Any, Any]):
    """Any JSON object."""

    default_error_messages = {"no_object": "An object is needed."}

    def to_internal_value(self, data: Any) -> Any:
        """The object itself."""
        if not isinstance(data, Mapping):
            self.fail("no_object")
        return data

    def to_representation(self, value: Any) -> Any:
        """The object itself."""
        return value


class TextField(serializers.CharField):
    """A text, kept as it came: no trimming. Not empty unless `allow_blank`."""

    default_error_messages = {"no_text": "A text is needed."}

    def __init__(self, max_length: int | None = 255, **options: Any) -> None:
        least = {} if options.get("allow_blank") else {"min_length": 1}  # as it is not blank; this says so in the document too
        super().__init__(**({"trim_whitespace": False, "max_length": max_length, **least} | options))

    def to_internal_value(self, data: Any) -> str:
        """The text. A number is none."""
        if not isinstance(data, str):
            self.fail("no_text")
        return str(data)


class SaidField(TextField):
    """A text in an answer, of any length."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"max_length": None, "allow_blank": True} | options))


class NumberField(serializers.IntegerField):
    """A whole number in an answer, of any size that a database counts to."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"min_value": 0, "max_value": 2**63 - 1} | options))


@extend_schema_field(OpenApiTypes.STR)
class FreeTextField(serializers.Field[Any, Any, Any, Any]):
    """Any text at all; the engine cleans it. What says why something failed must never be refused itself."""

    default_error_messages = {"no_text": "A text is needed."}

    def to_internal_value(self, data: Any) -> str:
        """The text."""
        if not isinstance(data, str):
            self.fail("no_text")
        return data

    def to_representation(self, value: Any) -> Any:
        """The text."""
        return value


class IdField(TextField):
    """An id that this server gave."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"max_length": 64} | options))


@extend_schema_field(OpenApiTypes.DATETIME)
class MomentField(TextField):
    """A moment with its time zone (RFC 3339), kept as text."""

    default_error_messages = {"no_moment": "A moment with a time zone is needed, as in 2026-01-31T09:00:00Z."}

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"max_length": 64} | options))

    def to_internal_value(self, data: Any) -> str:
        """The text."""
        text = super().to_internal_value(data)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail("no_moment")
        if moment.tzinfo is None:
            self.fail("no_moment")
        return text


@extend_schema_field(OpenApiTypes.DATE)
class DayField(TextField):
    """A day (ISO 8601), kept as text."""

    default_error_messages = {"no_day": "A day is needed, as in 2026-01-31."}

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"max_length": 10} | options))

    def to_internal_value(self, data: Any) -> str:
        """The text."""
        text = super().to_internal_value(data)
        try:
            return date.fromisoformat(text).isoformat()
        except ValueError:
            self.fail("no_day")


class SwitchField(serializers.BooleanField):
    """True or false. A text or a number is neither: whoever writes "no" or 0 is told, and not taken at somebody's guess."""

    default_error_messages = {"no_switch": "True or false is needed."}

    def to_internal_value(self, data: Any) -> bool:
        """The truth value."""
        if not isinstance(data, bool):
            self.fail("no_switch")
        return data


class PatternField(TextField):
    """A text of which the whole has this pattern."""

    default_error_messages = {"no_match": "This is not of the form that is needed: {pattern}"}

    def __init__(self, pattern: str, **options: Any) -> None:
        super().__init__(**options)
        self._pattern = pattern
        self.validators.append(RegexValidator(pattern))  # for the document

    def to_internal_value(self, data: Any) -> str:
        """The text."""
        text = super().to_internal_value(data)
        if re.fullmatch(self._pattern, text) is None:
            self.fail("no_match", pattern=self._pattern)
        return text


class CountField(serializers.IntegerField):
    """A whole number from `least` to `most`. A text, a truth value or a fraction is none; 1.0 is one, as JSON Schema has it."""

    default_error_messages = {"no_count": "A whole number is needed."}

    def __init__(self, least: int = 0, most: int = MAX_INT, **options: Any) -> None:
        super().__init__(min_value=least, max_value=most, **options)

    def to_internal_value(self, data: Any) -> int:
        """The number."""
        is_whole = isinstance(data, int) or (isinstance(data, float) and data.is_integer())
        if isinstance(data, bool) or not is_whole:
            self.fail("no_count")
        return int(data)


def listed(child: Any, most: int, **options: Any) -> serializers.ListField:
    """A list of at most `most` of these; empty where it is not given."""
    given: dict[str, Any] = {"required": False, "default": list, **options}
    return serializers.ListField(child=child, max_length=most, **given)


def shape(name: str, what: str, /, **fields: Any) -> type[Shape]:
    """A shape whose fields have names that Python keeps for itself; `what` says what it is."""
    return type(name, (Shape,), {"__doc__": what, **fields})
