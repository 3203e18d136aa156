"""What a user writes: `Workflow` and its `Step`s. Immutable once made; broken ones are refused while they are made.

Nothing here runs a step or reaches an engine but through `seam`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from ..errors import InvalidWorkflow, UnknownStep
from ..protocol.states import Delivery, StepKind
from . import seam, wire
from .bodies import Body
from .durations import Duration
from .plan import ON_FAILURE, Plan
from .policies import Concurrency, Cron, RateLimit, Retry, RunView, Sleep, Wait
from .starts import MISSING, Start, as_start
from .validation import workflow_faults

__all__ = ["RunView", "Step", "Workflow"]


@dataclass(frozen=True, eq=False)
class Step:
    """One node: exactly one of `run` (a body), `wait` and `sleep`.

    `after` names the steps that must succeed first; `retry` and `timeout` (of one pass of the body; a timedelta or seconds) default to the
    workflow's; `delivery` is "at_least_once" or "at_most_once"; `input` is a JSON template with `${CEL}` in its strings, which may read the outputs
    of the steps that come before.
    """

    name: str
    run: Callable[..., Any] | None = None
    wait: Wait | None = None
    sleep: Sleep | None = None
    after: Sequence[str] = ()
    retry: Retry | None = None
    timeout: Duration | None = None
    delivery: str = Delivery.AT_LEAST_ONCE
    input: Any = None
    transactional: bool = False

    def __post_init__(self) -> None:
        # One name may be given as it is: a str would otherwise be a sequence of letters.
        object.__setattr__(self, "after", _several(self.after))

    @property
    def kind(self) -> StepKind:
        """What the step does."""
        if self.wait is not None:
            return StepKind.WAIT
        return StepKind.SLEEP if self.sleep is not None else StepKind.RUN


class Workflow:
    """A graph of steps under a name and a revision, with its policies. Raises `InvalidWorkflow` with every fault it has.

    `timeout` (one pass of a body) and `retry` are the defaults of steps that set none; `deadline` bounds the whole run, from when it was due.
    Durations are timedeltas or seconds. `revision` is raised where runs in flight must not meet the new code; the highest is the newest (`revisions`).
    """

    def __init__(
        self,
        name: str,
        steps: Sequence[Step],
        *,
        revision: str = "1",
        timeout: Duration | None = None,
        deadline: Duration | None = None,
        retry: Retry | None = None,
        on_failure: Callable[..., Any] | None = None,
        concurrency: Concurrency | None = None,
        cron: Cron | Sequence[Cron] | None = None,
        rate: RateLimit | None = None,
    ) -> None:
        self.name = name
        self.steps: tuple[Step, ...] = _several(steps)
        self.revision = revision
        self.timeout = timeout
        self.deadline = deadline
        self.retry = retry
        self.on_failure = on_failure
        self.concurrency = concurrency
        self.cron: tuple[Cron, ...] = () if cron is None else _several(cron)
        self.rate = rate
        self.place = _caller()
        faults = workflow_faults(self)
        if faults:
            raise InvalidWorkflow(faults)

    def __repr__(self) -> str:
        return f"<Workflow {self.name} revision {self.revision} version {self.version}>"

    @classmethod
    def from_spec(cls, spec: Any) -> Workflow:
        """The workflow a wire form says; its bodies are elsewhere. Raises `InvalidWorkflow` with every fault."""
        return wire.from_spec(spec)

    def to_spec(self) -> dict[str, Any]:
        """The wire form, with the input schemas of typed bodies beside it."""
        schemas = self.input_schemas()
        return {**self.spec, "input_schemas": schemas} if schemas else dict(self.spec)

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """The hashed part of the wire form, made once; not to be changed."""
        return wire.to_spec(self)

    @cached_property
    def version(self) -> str:
        """16 hex digits that name this very definition."""
        return wire.version_of(self.spec)

    @cached_property
    def plan(self) -> Plan:
        """What the engine reads of it."""
        return Plan.from_spec(self.spec, self.version)

    def step(self, name: str) -> Step:
        """The step of that name. Raises `UnknownStep`."""
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownStep(f"workflow {self.name} has no step {name!r}: it has {', '.join(self._by_name)}") from None

    def body(self, step_name: str) -> Body:
        """The body of a run step, or of `on_failure`. Raises `UnknownStep` where this process holds none of that name."""
        if step_name not in self._bodies:
            raise UnknownStep(f"workflow {self.name} holds no body for step {step_name!r}: it holds {', '.join(self._bodies) or 'none'}")
        return self._bodies[step_name]

    def input_schemas(self) -> dict[str, Any]:
        """The JSON Schema of the input of each typed body, by step. Raises `InvalidWorkflow` for annotations, of results too, that mean nothing."""
        faults = [f"workflow {self.name}, step {name}: {fault}" for name, body in self._bodies.items() for fault in body.annotation_faults()]
        if faults:
            raise InvalidWorkflow(faults)
        schemas = {name: body.input_schema() for name, body in self._bodies.items()}
        return {name: schema for name, schema in schemas.items() if schema is not None}

    def start(
        self,
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
    ) -> seam.RunHandle:
        """Start a run of this workflow; the arguments and errors are those of `start_run`."""
        return seam.start_run(
            self,
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

    async def astart(
        self,
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
    ) -> seam.RunHandle:
        """As `start`, for async callers."""
        return await seam.astart_run(
            self,
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

    def start_many(self, starts: Sequence[Any], *, app: str | None = None) -> Sequence[seam.RunHandle]:
        """Start a run for each item, in order: a payload, or a `Start` with labels, key and time of its own."""
        return seam.engine().start_many(self, [as_start(item) for item in starts], app=app)

    async def astart_many(self, starts: Sequence[Any | Start], *, app: str | None = None) -> Sequence[seam.RunHandle]:
        """As `start_many`, for async callers."""
        return await seam.engine().astart_many(self, [as_start(item) for item in starts], app=app)

    @cached_property
    def _by_name(self) -> dict[str, Step]:
        return {step.name: step for step in self.steps}

    @cached_property
    def _bodies(self) -> dict[str, Body]:
        functions = {step.name: step.run for step in self.steps if step.run is not None}
        if self.on_failure is not None:
            functions[ON_FAILURE] = self.on_failure
        return {name: Body(function, f"{self.name}/{name}") for name, function in functions.items() if not isinstance(function, wire.Elsewhere)}


def _several(given: Any) -> tuple[Any, ...]:
    # What is no list of them counts as one, for validation to refuse: a str would otherwise be a sequence of letters.
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping)) else (given,)


def _caller() -> str:
    """Where the workflow is made, as `module:line`: the first frame outside this package's definitions."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(__package__):
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno}"
