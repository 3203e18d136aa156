"""Which runs are meant: filters, and cursors that go from the newest back."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Mapping
from typing import Any, Final

from django.db.models import QuerySet

from ..engine.transactions import database
from ..errors import InvalidArgument
from ..models import Run, RunLabel
from ..protocol import codec
from . import reach

LABEL: Final = "label."


def labels_of(query: Mapping[str, str]) -> dict[str, str]:
    """The labels that a query asks for: `label.order=A-1`."""
    return {name.removeprefix(LABEL): value for name, value in query.items() if name.startswith(LABEL)}


def chosen(runs: QuerySet[Run], wanted: Mapping[str, Any], labels: Mapping[str, Any]) -> QuerySet[Run]:
    """The runs of these that a filter means, the newest first. Raises `InvalidArgument` for what no label can be."""
    same = {"status": "status", "workflow": "workflow", "app": "app__name", "correlation_id": "correlation_id", "idempotency_key": "idempotency_key"}
    runs = runs.filter(**{column: wanted[name] for name, column in same.items() if wanted.get(name) is not None})
    if wanted.get("since"):
        runs = runs.filter(created_at__gte=reach.moment("since", wanted["since"]))
    if wanted.get("until"):
        runs = runs.filter(created_at__lt=reach.moment("until", wanted["until"]))
    for name, value in labels.items():
        if not isinstance(value, str) or not is_clean(name + value):
            raise InvalidArgument(f"labels.{codec.clean_text(name, 100)}", "a text is needed, without NUL and lone surrogates")
        runs = runs.filter(pk__in=RunLabel.objects.using(database()).filter(name=name, value=value).values("run"))
    return runs.order_by("-pk")


def before(runs: QuerySet[Run], cursor: str) -> QuerySet[Run]:
    """Those that come after a page's last run. Raises `InvalidArgument` for a cursor that is none."""
    if not cursor:
        return runs
    try:
        last = uuid.UUID(bytes=base64.urlsafe_b64decode(cursor + "=="))
    except (ValueError, binascii.Error):
        raise InvalidArgument("cursor", "give `next` of a page before, as it is") from None
    return runs.filter(pk__lt=last)


def is_clean(text: str) -> bool:
    """Whether every database here can be asked for this text."""
    return codec.clean_text(text, len(text)) == text


def cursor_after(run: Run) -> str:
    """The cursor of the page that begins after this run."""
    return base64.urlsafe_b64encode(run.pk.bytes).decode().rstrip("=")
