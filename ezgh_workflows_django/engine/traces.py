"""Which trace a run is in (W3C): its caller's, where it was started under one, else its own. Every id but the trace's is known without being stored."""

from __future__ import annotations

from ..definitions.starts import Start
from ..models import Run
from ..protocol.tracing import TraceContext, read
from ..worker import telemetry
from . import ids


def joined(start: Start) -> TraceContext | None:
    """The span under which a start was asked for: the one it names, else the one that surrounds this call; None where there is none."""
    return read(start.traceparent or telemetry.current())


def caller_of(run: Run) -> TraceContext | None:
    """The span that started the run, if it joined a trace."""
    return read(run.traceparent)


def of_run(run: Run) -> TraceContext:
    """The run's own span."""
    return TraceContext(run.trace_id, ids.span_id(run.pk), is_sampled(run))


def of_step(run: Run, step: str) -> TraceContext:
    """The span of one of its steps."""
    return TraceContext(run.trace_id, ids.span_id(run.pk, step), is_sampled(run))


def is_sampled(run: Run) -> bool:
    """Whether the trace is recorded: as that of its caller, where it joined one."""
    caller = caller_of(run)
    return caller is None or caller.is_sampled
