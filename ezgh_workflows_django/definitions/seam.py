"""The one slot through which a start reaches an engine. `apps.ready()` fills it; this package never looks for an engine by itself.

The authoring verbs that need an engine (`start_run`, `emit`, …) live here too: they hand over, and do nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import InvalidArgument, NoServer
from .durations import Duration
from .policies import Key, key_text
from .run_handle import RunHandle as RunHandle
from .starts import MISSING, Start

if TYPE_CHECKING:
    from .graph import Workflow


class Engine(Protocol):
    """What fills the slot. A `payload` of `MISSING` means that none was given."""

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
        """Start one run on the caller's connection."""

    async def astart(
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
        """As `start`."""

    def start_many(self, workflow: Workflow | str, starts: Sequence[Start], *, app: str | None) -> Sequence[RunHandle]:
        """Start many runs of one workflow, in order."""

    async def astart_many(self, workflow: Workflow | str, starts: Sequence[Start], *, app: str | None) -> Sequence[RunHandle]:
        """As `start_many`."""

    def emit(self, name: str, key: str, payload: Any, *, event_id: str | None, app: str | None) -> Any:
        """Store an event and resume its receivers; gives its receipt."""

    async def aemit(self, name: str, key: str, payload: Any, *, event_id: str | None, app: str | None) -> Any:
        """As `emit`."""

    def get_run(self, id: str) -> RunHandle:
        """The run of that id. Raises `UnknownRun`."""

    async def aget_run(self, id: str) -> RunHandle:
        """As `get_run`."""

    def runs_of(self, subject: Any) -> Any:
        """The runs started with that model instance as their subject."""


_engine: Engine | None = None


def fill(engine: Engine | None) -> None:
    """Put the engine of this process into the slot; `None` empties it."""
    global _engine
    _engine = engine


def engine() -> Engine:
    """The engine of this process. Raises `NoServer` where there is none."""
    if _engine is None:
        raise NoServer(
            'there is no workflow server in this process: put "ezgh_workflows_django" into INSTALLED_APPS and call django.setup() first. '
            "A process without Django runs steps with a Worker, but starts nothing by itself."
        )
    return _engine


def start_run(
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
    subject: Any = None,
) -> RunHandle:
    """Start a run of a workflow, given by itself or by name: then of the highest revision that this process has, else of the newest stored one.

    `at` is an aware datetime, `delay` a timedelta or seconds, `priority` −100 to 100, `subject` a model instance.
    Raises the `StartError`s, `InvalidPayload`, `InvalidArgument`.
    """
    return engine().start(
        workflow,
        payload,
        labels=labels,
        idempotency_key=idempotency_key,
        correlation_id=correlation_id,
        at=at,
        delay=delay,
        priority=priority,
        app=app,
        subject=subject,
    )


async def astart_run(
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
    subject: Any = None,
) -> RunHandle:
    """As `start_run`, for async callers."""
    return await engine().astart(
        workflow,
        payload,
        labels=labels,
        idempotency_key=idempotency_key,
        correlation_id=correlation_id,
        at=at,
        delay=delay,
        priority=priority,
        app=app,
        subject=subject,
    )


def emit(name: str, key: Key = "", payload: Any = None, *, event_id: str | None = None, app: str | None = None) -> Any:
    """Store an event and resume every wait for that name and key; gives its receipt. An `event_id` seen before changes nothing.

    Raises `InvalidArgument` where an argument is none, a `key` of None among them.
    """
    return engine().emit(name, _key(key), payload, event_id=event_id, app=app)


async def aemit(name: str, key: Key = "", payload: Any = None, *, event_id: str | None = None, app: str | None = None) -> Any:
    """As `emit`, for async callers."""
    return await engine().aemit(name, _key(key), payload, event_id=event_id, app=app)


def _key(key: Key) -> str:
    try:
        return key_text(key)
    except ValueError as error:
        raise InvalidArgument("key", str(error)) from None


def get_run(id: str) -> RunHandle:
    """The handle of a run. Raises `UnknownRun`."""
    return engine().get_run(id)


async def aget_run(id: str) -> RunHandle:
    """As `get_run`, for async callers."""
    return await engine().aget_run(id)


def runs_of(subject: Any) -> Any:
    """The runs that were started with that model instance as their `subject`."""
    return engine().runs_of(subject)
