"""Starts from inside a transaction of another database than the workflows': sent in its `on_commit`.

Two databases have no transaction in common. What is sent after the commit is lost where the process dies between the two; what is rolled back
leaves nothing (spec: authoring.md "Starting, from Django"). The values are checked at once, so that what can't be is refused where it was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from ..definitions.graph import Workflow
from ..definitions.starts import Start
from . import ids, starts
from .handles import RunHandle
from .start_requests import checked
from .transactions import database


def callers_transaction() -> str | None:
    """The alias whose transaction the caller is in, where that is not the workflows' database: `default` before any other."""
    if len(connections.settings) == 1 or connections[database()].in_atomic_block:
        return None
    others = sorted((alias for alias in connections if alias != database()), key=lambda alias: alias != DEFAULT_DB_ALIAS)
    return next((alias for alias in others if connections[alias].in_atomic_block), None)


def start_many(alias: str, workflow: Workflow | str, requested: Sequence[Start], *, app: str | None) -> list[RunHandle]:
    """Start runs as soon as the caller's transaction commits: their handles are given now, and mean nothing before.

    A handle whose idempotency key another start has taken is that run's, after the commit. Raises `UnknownWorkflow`, `UnknownApp`,
    `InvalidPayload`, `InvalidArgument`; whatever else a start raises is raised to who commits.
    """
    starts.look_up(workflow, app)
    for each in requested:
        checked(each)
    run_ids = [ids.run_id() for _ in requested]
    handles = [RunHandle(run_id) for run_id in run_ids]

    def send() -> None:
        for handle, run in zip(handles, starts.start_many(workflow, requested, app=app, run_ids=run_ids), strict=True):
            handle.id = str(run.pk)

    transaction.on_commit(send, using=alias)
    return handles
