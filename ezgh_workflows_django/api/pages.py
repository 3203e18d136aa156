"""Pages of lists, the newest first: a cursor is the key of a page's last row, from which the next one goes back (spec: api.md)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from rest_framework import serializers

from ..errors import InvalidArgument
from .fields import Shape, TextField

Row = TypeVar("Row", bound=Model)

MOST_LISTED: Final = 200


class Page(Shape):
    """A page of a list."""

    limit = serializers.IntegerField(min_value=1, max_value=MOST_LISTED, required=False, default=50)
    cursor = TextField(max_length=200, required=False, default="", allow_blank=True, help_text="`next` of the page before.")


def page(rows: QuerySet[Row], asked: Mapping[str, Any]) -> tuple[list[Row], str | None]:
    """The rows of the `Page` that was asked for, and the cursor of the one after it, or None. One statement.

    Raises `InvalidArgument` for a cursor that no page gave.
    """
    if asked["cursor"]:
        rows = rows.filter(pk__lt=_key(rows.model, asked["cursor"]))
    found = list(rows.order_by("-pk")[: asked["limit"] + 1])
    shown = found[: asked["limit"]]
    return shown, _cursor(shown[-1]) if len(found) > len(shown) else None


def _cursor(row: Model) -> str:
    return base64.urlsafe_b64encode(str(row.pk).encode()).decode().rstrip("=")


def _key(model: type[Model], cursor: str) -> Any:
    try:
        return model._meta.pk.clean(base64.urlsafe_b64decode(cursor + "==").decode(), None)
    except (ValueError, binascii.Error, ValidationError):
        raise InvalidArgument("cursor", "give `next` of a page before, as it is") from None
