"""The hot statements through the ORM, the same on every database."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import connections
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from ...models import Step, WorkflowPause
from ...protocol.states import StepStatus
from ..clock import Now, StatementNow, read_at
from ..transactions import database


@dataclass(frozen=True, slots=True)
class Candidate:
    """A step that a look found claimable, before anything is locked."""

    step_id: int
    partition: int
    version: str


def look(serving: Mapping[int, frozenset[str] | None], banned: Collection[int], run_id: uuid.UUID | None, limit: int) -> list[Candidate]:
    """Claimable steps over all partitions, in claim order, none of an app or a workflow that is paused: one statement, no lock."""
    steps = _not_held_back(Step.objects.using(database()).claimable(list(serving), StatementNow()))
    if any(names is not None for names in serving.values()):
        steps = steps.filter(_served(serving))
    if banned:
        steps = steps.exclude(definition__in=banned)
    if run_id is not None:
        steps = steps.filter(run=run_id)
    found = steps.order_by("claim_order", "id").values_list("id", "partition", "definition__version")[:limit]
    return [Candidate(*row) for row in found]


def lock_claimable(step_ids: Collection[int]) -> list[Step]:
    """Lock those of these steps that are still claimable and that nobody holds; each carries `now`."""
    features = connections[database()].features
    steps = Step.objects.using(database()).filter(pk__in=step_ids, claim_order__isnull=False, available_at__lte=StatementNow()).annotate(now=Now())
    if features.has_select_for_update:
        steps = steps.select_for_update(skip_locked=True, no_key=features.has_select_for_no_key_update)
    return list(steps)


def lease_steps(step_ids: Collection[int]) -> int:
    """Mark locked steps as leased, each with the next token; returns how many that were."""
    ready = Step.objects.using(database()).filter(pk__in=step_ids, status=StepStatus.READY)
    return ready.update(status=StepStatus.LEASED, token=F("token") + 1, claim_order=None)


def next_available(serving: Mapping[int, frozenset[str] | None]) -> tuple[datetime, datetime] | None:
    """When the next step becomes available, and the moment now; None where there is none, or what there is is paused."""
    waiting = _not_held_back(Step.objects.using(database()).filter(revision_id__in=list(serving), claim_order__isnull=False))
    found = waiting.annotate(now=Now()).order_by("available_at").first()
    return None if found is None or found.available_at is None else (found.available_at, read_at(found))


def _not_held_back(steps: QuerySet[Step]) -> QuerySet[Step]:
    """Steps of apps and workflows that nobody has paused."""
    paused = WorkflowPause.objects.using(database()).filter(app=OuterRef("revision__app"), workflow=OuterRef("revision__workflow"))
    return steps.filter(~Exists(paused), revision__app__paused_at=None)


def _served(serving: Mapping[int, frozenset[str] | None]) -> Q:
    served = Q()
    for revision_id, names in serving.items():
        served |= Q(revision_id=revision_id) if names is None else Q(revision_id=revision_id, name__in=names)
    return served
