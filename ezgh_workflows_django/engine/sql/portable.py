"""The hot statements of a claim that has found something, through the ORM, the same on every database. `looking` finds it."""

from __future__ import annotations

from collections.abc import Collection

from django.db import connections
from django.db.models import F

from ...models import Step
from ...protocol.states import StepStatus
from ..clock import Now, StatementNow
from ..transactions import database


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
