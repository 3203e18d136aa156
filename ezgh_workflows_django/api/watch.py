"""What the API itself puts into the trail: who read a run, and which known key was turned away. Each once for an actor, a thing and an hour."""

from __future__ import annotations

import logging
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest

from ..engine import trail
from ..engine.clock import Now, read_at
from ..engine.keys import ACTOR, Identity, masked
from ..engine.transactions import database
from ..errors import InvalidPayload, KeyRefused, NotPermitted
from ..models import Project, Run
from ..protocol import codec

logger = logging.getLogger("ezgh_workflows.api")


def run_read(identity: Identity, run: Run) -> None:
    """Note that a caller looks at a run."""
    _note(identity.project_id, "ReadRun", identity.actor, ("run", str(run.pk)))


def refused(request: HttpRequest, error: KeyRefused | NotPermitted, identity: Identity | None) -> None:
    """Note that a known key was turned away. One that opens nothing belongs to nobody, and is in no trail."""
    if isinstance(error, KeyRefused):
        prefix, project_id, why = error.prefix, error.project_id, error.reason
    elif identity is not None and identity.kind == ACTOR:
        prefix, project_id, why = identity.prefix, identity.project_id, ", ".join(error.permissions)
    else:
        return
    if prefix is None or project_id is None:
        return
    status = 401 if isinstance(error, KeyRefused) else 403
    try:
        _note(project_id, "RefusePoll", (ACTOR, prefix), ("code", str(status)), path=codec.clean_text(masked(request.path), 255), why=why)
    except (DatabaseError, InvalidPayload) as failure:  # the refusal itself must not hang on it
        logger.warning("key %s was refused (%d), and the trail could not be told: %s", prefix, status, failure)


def _note(project_id: int, action: str, actor: tuple[str, str], target: tuple[str, str], **data: Any) -> None:
    now = read_at(Project.objects.using(database()).annotate(now=Now()).only("pk").get(pk=project_id))
    trail.record_once_an_hour(project_id, now, action, actor=actor, target=target, **data)
