"""What fills the seam through which authoring code reaches this engine: start, emit, get_run, runs_of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from asgiref.sync import sync_to_async

from ..definitions.durations import Duration
from ..definitions.graph import Workflow
from ..definitions.starts import Start
from ..errors import UnknownRun
from ..models import Run
from . import events, groups, outbox, start_requests, starts
from .handles import RunHandle
from .transactions import database


class Entry:
    """The engine as authoring code sees it (`definitions.seam.Engine`)."""

    def start(
        self,
        workflow: Workflow | str,
        payload: Any,
        *,
        labels: Mapping[str, str] | None,
        idempotency_key: str | None,
        correlation_id: str | None,
        at: datetime | None,
        delay: Duration | None,
        priority: int,
        app: str | None,
        subject: Any,
    ) -> RunHandle:
        """Start one run on the caller's connection (`engine.starts.start`); from a transaction of another database, after its commit (`outbox`)."""
        requested = Start(
            payload=payload,
            labels=labels or {},
            idempotency_key=idempotency_key,
            correlation_id=correlation_id,
            at=at,
            delay=delay,
            priority=priority,
            subject=subject,
        )
        return self.start_many(workflow, [requested], app=app)[0]

    async def astart(self, workflow: Workflow | str, payload: Any, **options: Any) -> RunHandle:
        """As `start`."""
        return await sync_to_async(self.start)(workflow, payload, **options)

    def start_many(self, workflow: Workflow | str, starts_: Sequence[Start], *, app: str | None) -> list[RunHandle]:
        """Start many runs of one workflow, all or none, in order."""
        alias = outbox.callers_transaction()
        if alias is not None:
            return outbox.start_many(alias, workflow, starts_, app=app)
        return [RunHandle(run.pk) for run in starts.start_many(workflow, starts_, app=app)]

    async def astart_many(self, workflow: Workflow | str, starts_: Sequence[Start], *, app: str | None) -> list[RunHandle]:
        """As `start_many`."""
        return await sync_to_async(self.start_many)(workflow, starts_, app=app)

    def emit(self, name: str, key: str, payload: Any, *, event_id: str | None, app: str | None) -> events.EventReceipt:
        """Store an event and resume its receivers (`engine.events.emit`)."""
        return events.emit(name, key, payload, event_id=event_id, app=app)

    async def aemit(self, name: str, key: str, payload: Any, *, event_id: str | None, app: str | None) -> events.EventReceipt:
        """As `emit`."""
        return await sync_to_async(self.emit)(name, key, payload, event_id=event_id, app=app)

    def get_run(self, id: str) -> RunHandle:
        """The handle of a run. Raises `UnknownRun`."""
        if not groups.is_uuid(str(id)) or not Run.objects.using(database()).filter(pk=id).exists():
            raise UnknownRun(f"there is no run {str(id)[:64]}")
        return RunHandle(id)

    async def aget_run(self, id: str) -> RunHandle:
        """As `get_run`."""
        return await sync_to_async(self.get_run)(id)

    def runs_of(self, subject: Any) -> list[RunHandle]:
        """The runs started with that model instance, or a proxy of it, as their subject, newest first. Raises `InvalidArgument`."""
        rows = Run.objects.using(database()).of_subject(*start_requests.subject_of(subject))
        return [RunHandle(pk) for pk in rows.values_list("pk", flat=True)]
