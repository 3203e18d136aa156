"""The one slot through which a start reaches an engine. `apps.ready()` fills it; this package never looks for an engine by itself.

The authoring verbs that need an engine (`start_run`, `emit`, …) live here too: they hand over, and do nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import NoServer
from ..protocol.states import RunStatus
from .durations import Duration
from .policies import Key, key_text
from .starts import MISSING, Start

if TYPE_CHECKING:
    from .graph import Workflow


class RunHandle(Protocol):
    """What callers hold of a run: its id, the verbs, the questions (spec: authoring.md "Starting, from Django").

    Each verb and question that reaches the database has a twin, its name after an `a`.
    """

    @property
    def id(self) -> str:
        """The run's id, as text."""

    @property
    def status(self) -> RunStatus:
        """The stored state."""

    @property
    def phase(self) -> str:
        """How it ended, else what it is doing now."""

    @property
    def payload(self) -> Any:
        """What it was started with."""

    @property
    def state(self) -> Any:
        """The run's state: what completions patched."""

    @property
    def waiting_for(self) -> Any:
        """What its open waits wait for."""

    @property
    def failure(self) -> Any:
        """Why it failed, or None."""

    @property
    def usage(self) -> Any:
        """What its steps used so far, by model and unit."""

    @property
    def cost(self) -> Any:
        """What that cost, as far as it had a price, or None."""

    def result(self, timeout: float | None = None) -> Any:
        """The output; waits up to `timeout` seconds for the end. Raises `RunFailed`, `RunCancelled`, `RunTimedOut`, `ResultTimeout`."""

    async def aresult(self, timeout: float | None = None) -> Any:
        """As `result`."""

    def signal(self, name: str, payload: Any = None) -> Any:
        """Send this run an event of its own."""

    def cancel(self, reason: str = "") -> Any:
        """End the run."""

    def retry(self, from_step: str | None = None) -> Any:
        """Open a new episode of an ended run."""

    def pause(self) -> Any:
        """Offer nothing of this run until `resume`."""

    def resume(self) -> Any:
        """Undo `pause`."""

    def resolve(self, step: str, output: Any, reason: str) -> Any:
        """End a failed or waiting step by hand."""

    def migrate(self, version: str, *, dry_run: bool = False) -> Any:
        """Move it to another stored version of its workflow."""


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
    """Start a run of a workflow, given by name or by itself.

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
    """Store an event and resume every wait for that name and key; gives its receipt. An `event_id` seen before changes nothing."""
    return engine().emit(name, key_text(key), payload, event_id=event_id, app=app)


async def aemit(name: str, key: Key = "", payload: Any = None, *, event_id: str | None = None, app: str | None = None) -> Any:
    """As `emit`, for async callers."""
    return await engine().aemit(name, key_text(key), payload, event_id=event_id, app=app)


def get_run(id: str) -> RunHandle:
    """The handle of a run. Raises `UnknownRun`."""
    return engine().get_run(id)


async def aget_run(id: str) -> RunHandle:
    """As `get_run`, for async callers."""
    return await engine().aget_run(id)


def runs_of(subject: Any) -> Any:
    """The runs that were started with that model instance as their `subject`."""
    return engine().runs_of(subject)
