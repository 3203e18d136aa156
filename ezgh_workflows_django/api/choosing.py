"""Which runs are meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.db.models import QuerySet

from ..engine.start_requests import MAX_LABELS
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
    """The runs of these that a filter means. Raises `InvalidArgument` for what no label can be."""
    same = {"status": "status", "workflow": "workflow", "app": "app__name", "correlation_id": "correlation_id", "idempotency_key": "idempotency_key"}
    runs = runs.filter(**{column: wanted[name] for name, column in same.items() if wanted.get(name) is not None})
    if wanted.get("since"):
        runs = runs.filter(created_at__gte=reach.moment("since", wanted["since"]))
    if wanted.get("until"):
        runs = runs.filter(created_at__lt=reach.moment("until", wanted["until"]))
    if len(labels) > MAX_LABELS:
        raise InvalidArgument("labels", f"a run has at most {MAX_LABELS}, not {len(labels)}")
    for name, value in labels.items():
        if not isinstance(value, str) or not reach.is_clean(name + value):
            raise InvalidArgument(f"labels.{codec.clean_text(name, 100)}", "a text is needed, without NUL and lone surrogates")
        runs = runs.filter(pk__in=RunLabel.objects.using(database()).filter(name=name, value=value).values("run"))
    return runs
