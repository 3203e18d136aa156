"""Starting runs on a server elsewhere, and telling them things: `Client`. Knows no Django, and asks for nothing until it is called."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..definitions.durations import Duration, milliseconds
from ..definitions.policies import Key, key_text
from ..definitions.starts import MISSING
from ..errors import InvalidArgument
from ..protocol import codec, tracing
from ..protocol.states import RunStatus
from . import telemetry
from .remote_run import RemoteRun, told
from .transports.choice import line_to

if TYPE_CHECKING:
    from ..definitions.graph import Workflow


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of an `emit`: the stored event's number, and whether its `event_id` had been seen before."""

    id: int
    known: bool


class Client:
    """Calls one server over HTTP with one key. Safe to use from several threads. Its `with` closes its connections.

    `base_url` is where the project includes `ezgh_workflows_django.urls`; runs start in `app` (None: the server's default). Raises `InvalidArgument`
    for a URL or a key that can't be one. Every call may raise `Unavailable`, where trying again may help, and `Rejected`, where the key does not allow it.
    """

    def __init__(self, base_url: str, api_key: str, *, app: str | None = None) -> None:
        self._line = line_to(base_url, api_key)
        self._app = app

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._line!r}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._line.close()

    def start(
        self,
        workflow: Workflow | str,
        payload: Any = MISSING,
        *,
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        correlation_id: str | None = None,
        at: datetime | None = None,
        delay: Duration | None = None,
        priority: int = 0,
        app: str | None = None,
    ) -> RemoteRun:
        """Start a run of a workflow that a live worker announces, given by name or by itself.

        Where OpenTelemetry is installed, the run joins the trace of the span that surrounds the call.
        With an `idempotency_key` it can safely be called again after an `Unavailable`; without one, the run may have been started all the same.
        Raises the `StartError`s (`WorkflowNotAnnounced`, `IdempotencyConflict`, …), `InvalidPayload`, `InvalidArgument`.
        """
        asked = {
            "workflow": workflow if isinstance(workflow, str) else workflow.name,
            "labels": None if labels is None else dict(labels),
            "idempotency_key": idempotency_key,
            "correlation_id": correlation_id,
            "at": _moment(at),
            "delay_ms": _delay_ms(delay),
            "priority": priority,
            "app": app or self._app,
        }
        given = {name: value for name, value in asked.items() if value is not None}
        if payload is not MISSING:
            given["payload"] = codec.plain(payload, "payload")
        around = telemetry.current()
        headers = None if around is None else {tracing.HEADER: around}
        return self.run(told(self._line.call("POST", "v1/api/runs", given, headers=headers))["id"])

    def emit(self, name: str, key: Key = "", payload: Any = None, *, event_id: str | None = None, app: str | None = None) -> Receipt:
        """Store an event and resume every wait for that name and key. An `event_id` seen before changes nothing, so the call can be repeated with one."""
        asked = {"name": name, "key": key_text(key), "payload": codec.plain(payload, "payload"), "event_id": event_id, "app": app or self._app}
        stored = told(self._line.call("POST", "v1/api/events", asked))
        return Receipt(stored["id"], stored["known"])

    def signal(self, run_id: str, name: str, payload: Any = None) -> str:
        """Send one run an event of its own: `delivered` or `buffered`. Raises `UnknownRun`, `RunTerminal`."""
        return self.run(run_id).signal(name, payload)

    def cancel(self, run_id: str, reason: str = "") -> RunStatus:
        """End a run; gives the status it is left in. Raises `UnknownRun`, `RunTerminal`."""
        return self.run(run_id).cancel(reason)

    def run(self, run_id: str) -> RemoteRun:
        """The run of that id; asks nothing."""
        return RemoteRun(self._line, run_id)

    async def astart(self, workflow: Workflow | str, payload: Any = MISSING, **options: Any) -> RemoteRun:
        """As `start`, for async callers."""
        return await asyncio.to_thread(self.start, workflow, payload, **options)

    async def aemit(self, name: str, key: Key = "", payload: Any = None, **options: Any) -> Receipt:
        """As `emit`, for async callers."""
        return await asyncio.to_thread(self.emit, name, key, payload, **options)

    async def asignal(self, run_id: str, name: str, payload: Any = None) -> str:
        """As `signal`, for async callers."""
        return await asyncio.to_thread(self.signal, run_id, name, payload)

    async def acancel(self, run_id: str, reason: str = "") -> RunStatus:
        """As `cancel`, for async callers."""
        return await asyncio.to_thread(self.cancel, run_id, reason)


def _moment(at: datetime | None) -> str | None:
    if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
        raise InvalidArgument("at", "an aware datetime is needed: 09:00 of which time zone?")
    moment: str | None = codec.plain(at, "at")
    return moment


def _delay_ms(delay: Duration | None) -> int | None:
    try:
        return None if delay is None else milliseconds(delay)
    except ValueError as error:
        raise InvalidArgument("delay", str(error)) from None
