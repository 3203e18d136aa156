"""What a body is given besides its input. Holds values and takes notes for the outcome; talks to no server."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ..protocol import codec
from ..protocol.messages import Failure, Lease, Usage
from .cancellation import Cancelled
from .usage import Amount, Meter, Span

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_PROGRESS_BYTES: Final = 64 * 1024

_log = logging.getLogger("ezgh_workflows.body")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInfo:
    """Which step of which run a body is. `last` says that no retry is left; `labels` are read-only."""

    workflow: str
    step: str
    run_id: str
    attempt: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    idempotency_key: str = ""
    last: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", MappingProxyType(dict(self.labels)))

    @classmethod
    def of(cls, lease: Lease) -> StepInfo:
        """The step that a lease is an attempt of."""
        return cls(
            workflow=lease.workflow,
            step=lease.step,
            run_id=lease.run_id,
            attempt=lease.attempt,
            labels=lease.labels,
            idempotency_key=lease.idempotency_key,
            last=lease.last,
        )


_current: ContextVar[StepInfo | None] = ContextVar("ezgh_workflows_step", default=None)


def step_info() -> StepInfo | None:
    """The step whose body is running here, or `None` outside a step."""
    return _current.get()


@contextmanager
def with_step_info(info: StepInfo | None) -> Iterator[StepInfo | None]:
    """Make `step_info()` give `info` inside the `with`; for tests, and for the executor."""
    token = _current.set(info)
    try:
        yield info
    finally:
        _current.reset(token)


class Context:
    """A body's `ctx`: one attempt, seen from inside.

    `cancelled` fires when the lease is lost, the run ends or the time is up; a body that honours it stops early.
    """

    def __init__(self, lease: Lease, *, cancelled: Cancelled | None = None, on_progress: Callable[[Any], object] | None = None) -> None:
        self._lease = lease
        self.info: Final = StepInfo.of(lease)
        self.cancelled: Final = cancelled or Cancelled()
        self._meter: Meter | None = None
        self._patch: dict[str, Any] = {}
        self._on_progress = on_progress

    @property
    def attempt(self) -> int:
        """1 for the first attempt of the step, one more for each later one."""
        return self._lease.attempt

    @property
    def idempotency_key(self) -> str:
        """A key that stays the same across the attempts of this step: hand it to what must not be done twice."""
        return self._lease.idempotency_key

    @property
    def input(self) -> Any:
        """The step's input, as a plain JSON value."""
        return self._lease.input

    @property
    def steps(self) -> Mapping[str, Any]:
        """The outputs of the steps before this one, by name; read-only."""
        return MappingProxyType(self._lease.steps if isinstance(self._lease.steps, dict) else dict(self._lease.steps))

    @property
    def state(self) -> Mapping[str, Any]:
        """The run's state as this attempt found it, with its own patches; read-only."""
        return MappingProxyType({**self._lease.state, **self._patch})

    @property
    def failure(self) -> Failure | None:
        """In `on_failure`: why the run failed. Elsewhere `None`."""
        return self._lease.failure

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry `run_id`, `step` and `attempt`."""
        return logging.LoggerAdapter(_log, {"run_id": self.info.run_id, "step": self.info.step, "attempt": self.info.attempt})

    def patch_state(self, **values: Any) -> None:
        """Set top-level keys of the run's state when this attempt completes. Raises `InvalidPayload`, naming the key."""
        encoded = {key: codec.loads(codec.dumps(value, limit=None, what=f"state.{key}")) for key, value in values.items()}
        self._patch = {**self._patch, **encoded}

    def set_usage(self, *, model: str | None = None, **amounts: Amount) -> None:
        """What the step used, as `unit=amount` (`input_tokens=120`). Overrides what its spans add up to."""
        self._metered().set_usage(model, amounts)

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[Span]:
        """A named stretch of time, for `with`; spans nest, and their usage adds up to the step's."""
        return self._metered().span(name, attributes)

    def progress(self, value: Any) -> None:
        """Show `value` in the console from the next heartbeat on. Raises `InvalidPayload`; over 64 KiB it is too much to show."""
        encoded = codec.loads(codec.dumps(value, limit=MAX_PROGRESS_BYTES, what="progress"))
        if self._on_progress is not None:
            self._on_progress(encoded)

    @property
    def patch(self) -> Mapping[str, Any] | None:
        """What `patch_state` was given, or `None`; goes into the outcome."""
        return self._patch or None

    @property
    def usage(self) -> tuple[Usage, ...]:
        """What was used so far; goes into the outcome."""
        return self._meter.usage if self._meter is not None else ()

    @property
    def spans(self) -> tuple[Mapping[str, Any], ...]:
        """The spans that have ended; go into the outcome."""
        return self._meter.spans if self._meter is not None else ()

    def _metered(self) -> Meter:
        if self._meter is None:
            self._meter = Meter(self._lease.span_id)
        return self._meter
