"""Which step is running here. Known to bodies, to the functions of inner steps, and to whatever they call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType

from ..protocol.messages import Lease


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
