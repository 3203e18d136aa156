"""What a body is given besides its input: values, notes for the outcome, and the words of durable functions (`words`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ..protocol import codec
from ..protocol.failures import Failure
from ..protocol.messages import Lease
from ..protocol.notes import Usage
from .cancellation import Cancelled
from .current_step import StepInfo, step_info, with_step_info
from .durable import Pass
from .notes import Notes
from .strands import current_inner
from .usage import Amount, Span
from .words import Words

if TYPE_CHECKING:
    from collections.abc import Callable

    from .keeper import Keeper

__all__ = ["Context", "StepInfo", "step_info", "with_step_info"]

MAX_PROGRESS_BYTES: Final = 64 * 1024

_log = logging.getLogger("ezgh_workflows.body")


class Context(Words):
    """A body's `ctx`: one attempt, seen from inside.

    `cancelled` fires when the lease is lost, the run ends or the time is up; a body that honours it stops early.
    """

    def __init__(self, lease: Lease, *, cancelled: Cancelled | None = None, on_progress: Callable[[Any], object] | None = None) -> None:
        self._lease = lease
        self.info: Final = StepInfo.of(lease)
        self.cancelled: Final = cancelled or Cancelled()
        self._on_progress = on_progress
        self._notes = Notes(lease.span_id, f"{lease.run_id}:{lease.step}", frozenset(lease.noted))
        self.keeps_traceback = False
        self._home = Pass(lease, None, self.cancelled, self._notes, is_async=False)

    def begin(self, keeper: Keeper | None, *, is_async: bool, transactional: bool = False) -> Pass:
        """A pass of the body begins, in the thread or task that runs it. Called by the executor."""
        self._notes.forget()
        self._home = Pass(self._lease, keeper, self.cancelled, self._notes, is_async=is_async, transactional=transactional)
        return self._home

    def keep_traceback(self) -> None:
        """Let the direct transport keep the traceback of this attempt's failure, whatever `KEEP_TRACEBACKS` says."""
        self.keeps_traceback = True

    @property
    def attempt(self) -> int:
        """1 for the first attempt of the step, one more for each later one."""
        return self._lease.attempt

    @property
    def idempotency_key(self) -> str:
        """A key that stays the same across the attempts of this step: hand it to what must not be done twice. In an inner step, that step's own."""
        inner = current_inner(self._home)
        return self._lease.idempotency_key if inner is None else inner.info.idempotency_key

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
        """The run's state as this attempt found it, with its own patches and those of its inner steps; read-only."""
        patches = [line.notes.seen for line in self._home.strand.lineage()]
        merged = {**self._lease.state, **self._home.landed}
        for patch in (*reversed(patches), self._home.notes.seen):
            merged |= patch
        return MappingProxyType(merged)

    @property
    def failure(self) -> Failure | None:
        """In `on_failure`: why the run failed. Elsewhere `None`."""
        return self._lease.failure

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry `run_id`, `step` and `attempt`."""
        return logging.LoggerAdapter(_log, {"run_id": self.info.run_id, "step": self.info.step, "attempt": self.info.attempt})

    def patch_state(self, **values: Any) -> None:
        """Set top-level keys of the run's state when this attempt completes or parks; in an inner step, with its result.

        Raises `InvalidPayload`, naming the key.
        """
        self._home.notes.patch_state(values)

    def set_usage(self, *, model: str | None = None, **amounts: Amount) -> None:
        """What the step used, as `unit=amount` (`input_tokens=120`). Overrides what its spans add up to."""
        self._home.notes.set_usage(model, amounts)

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[Span]:
        """A named stretch of time, for `with`; spans nest, and their usage adds up to the step's."""
        return self._home.notes.span(name, attributes)

    def progress(self, value: Any) -> None:
        """Show `value` in the console from the next heartbeat on. Raises `InvalidPayload`; over 64 KiB it is too much to show."""
        encoded = codec.loads(codec.dumps(value, limit=MAX_PROGRESS_BYTES, what="progress"))
        if self._on_progress is not None:
            self._on_progress(encoded)

    def noted(self, usage: tuple[Usage, ...], spans: tuple[Mapping[str, Any], ...]) -> None:
        """What the body has noted so far where it runs, in another process."""
        self._notes.take(usage, spans)

    @property
    def patch(self) -> Mapping[str, Any] | None:
        """What `patch_state` was given, or `None`; goes into the outcome."""
        return self._notes.patch or None

    @property
    def anchors(self) -> tuple[str, ...]:
        """What names the stretches of the body that all this was noted in (`worker.notes`); goes into a suspend."""
        return self._notes.anchors

    @property
    def usage(self) -> tuple[Usage, ...]:
        """What was used so far; goes into the outcome."""
        return self._notes.usage

    @property
    def spans(self) -> tuple[Mapping[str, Any], ...]:
        """The spans that have ended; go into the outcome."""
        return self._notes.spans
