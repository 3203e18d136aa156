"""The audit log: who did what to which thing. Rows are added, never changed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ..models import Trail
from ..protocol import codec
from .transactions import database

SYSTEM = ("system", "engine")


def record(project_id: int, now: datetime, action: str, *, actor: tuple[str, str], target: tuple[str, str], **data: Any) -> None:
    """Add a row in the caller's transaction. `actor` and `target` are a kind and a name or id; no secret goes into `data`."""
    Trail.objects.using(database()).create(
        project_id=project_id,
        at=now,
        action=action,
        actor_kind=actor[0],
        actor=actor[1][:255],
        target_kind=target[0],
        target=target[1][:255],
        data=codec.dumps(data, limit=None, what="trail"),
    )
