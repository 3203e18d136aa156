"""Column types that mean the same on every database.

MariaDB's default collation takes `A-1`, `a-1` and `A-1 ` for one text, and its tables may not be utf8mb4:
identifiers and stored JSON say what they need themselves, on MariaDB only.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from ..protocol import amounts

_Set = TypeVar("_Set")
_Get = TypeVar("_Get")

if TYPE_CHECKING:

    class _Char(models.CharField[_Set, _Get]):
        """Django's class, with the parameters its stubs give it."""

    class _Text(models.TextField[_Set, _Get]):
        """Django's class, with the parameters its stubs give it."""

else:

    class _Char(models.CharField):
        """Django's class, which takes no parameters at run time."""

        def __class_getitem__(cls, parameters: object) -> type:
            return cls

    class _Text(models.TextField):
        """Django's class, which takes no parameters at run time."""

        def __class_getitem__(cls, parameters: object) -> type:
            return cls


IDENTIFIER_LENGTH = 255
NAME_LENGTH = 128


class ExactTextMixin:
    """Text compared byte by byte on MariaDB, as it is on the other databases."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        """Name the character set and an exact collation without padding, on MariaDB only."""
        parameters = super().db_parameters(connection)  # type: ignore[misc]  # a mixin over Django's fields
        if connection.vendor == "mysql" and parameters["type"]:
            parameters["type"] = f"{parameters['type']} CHARACTER SET utf8mb4"
            parameters["collation"] = "utf8mb4_nopad_bin"
        return parameters


class IdentifierField(ExactTextMixin, _Char[_Set, _Get]):
    """A name or key that is looked up; at most 255 characters unless said otherwise."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", IDENTIFIER_LENGTH)
        super().__init__(*args, **kwargs)


class WordsField(ExactTextMixin, _Char[_Set, _Get]):
    """A short text that people or programs write: a reason, a name that is only shown. Any character is kept."""


class LongWordsField(ExactTextMixin, _Text[_Set, _Get]):
    """As `WordsField`, of any length."""


class JsonTextField(ExactTextMixin, _Text[_Set, _Get]):
    """JSON kept as text: read back as it was written on every database. `protocol.codec` reads and writes it."""


if TYPE_CHECKING:

    class _Field(models.Field[_Set, _Get]):
        """Django's class, with the parameters its stubs give it."""

else:

    class _Field(models.Field):
        """Django's class, which takes no parameters at run time."""

        def __class_getitem__(cls, parameters: object) -> type:
            return cls


class ExactDecimalField(_Field[_Set, _Get]):
    """A decimal of zero or more, kept as its one text (`protocol.amounts`): no database rounds it, and equal amounts are equal texts.

    SQLite has no exact decimals, and the others bound theirs below what is reported here. Ordering and sums are Python's business.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", amounts.MAX_TEXT)
        super().__init__(*args, **kwargs)

    def get_internal_type(self) -> str:
        """A short text."""
        return "CharField"

    def from_db_value(self, value: str | None, expression: Any, connection: BaseDatabaseWrapper) -> Decimal | None:
        """The decimal of the stored text."""
        return None if value is None else Decimal(value)

    def to_python(self, value: Any) -> Decimal | None:
        """The decimal of what a form or a fixture gives. Raises `ValidationError`."""
        if value is None or isinstance(value, Decimal):
            return value
        try:
            return amounts.read(str(value))
        except ValueError as error:
            raise ValidationError(str(error)) from None

    def get_prep_value(self, value: Any) -> str | None:
        """The text that is stored. Raises `ValueError` for what is no decimal of zero or more."""
        value = super().get_prep_value(value)
        return None if value is None else amounts.text_of(amounts.bounded(Decimal(value), amounts.MAX_COST_WHOLE, amounts.MAX_COST_PLACES))

    def value_to_string(self, obj: models.Model) -> str:
        """The text, for fixtures."""
        return self.get_prep_value(self.value_from_object(obj)) or ""
