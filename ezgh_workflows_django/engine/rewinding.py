"""Putting steps back to their beginning: what their bodies have stored goes, what they had taken is free again, their budgets are whole.

Every function here works under the run's lock; none opens a transaction, and none decides when a step begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ..models import Checkpoint, Receipt, Step, Wait
from .transactions import database

BEGINNING: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "failures": 0,
        "reclaims": 0,
        "input": None,
        "output": None,
        "failure": None,
        "claim_order": None,
        "available_at": None,
        "timer_at": None,
        "parked": None,
        "is_resuming": False,
        "has_checkpoints": False,
        "noted": None,
        "begun_at": None,
        "started_at": None,
        "ended_at": None,
    }
)
"""The columns of a step that has not begun. Its tokens, attempt numbers and usage go on; its status, blockers and wait key are its caller's."""


def forget(steps: Sequence[Step]) -> None:
    """Delete what the bodies of these steps stored and waited for; events they had taken are free again.

    Their children are left behind, to be seen to after the commit (`progress.see_to_kin`). What was gathered for these rows is written already.
    """
    keys = [step.pk for step in steps]
    Checkpoint.objects.using(database()).filter(step__in=keys).delete()
    Receipt.objects.using(database()).filter(step__in=keys).delete()
    Wait.objects.using(database()).filter(step__in=keys).delete()
