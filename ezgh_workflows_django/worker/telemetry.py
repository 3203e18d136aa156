"""OpenTelemetry, where its API is installed: a run is a trace, and what happens in it are spans there. The only file that knows it.

Each side tells what it knows: a worker its attempts and the spans of bodies, a server its runs and their steps (`contrib.telemetry`). Where the API
is not installed nothing happens; where no SDK is set up the trace's context is passed on, and nothing is recorded. What fails here is logged, and
never is a body's failure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from .. import __version__
from ..protocol import codec
from ..protocol.messages import Lease
from ..protocol.outcomes import Outcome
from ..protocol.states import LeaseStatus
from ..protocol.tracing import TraceContext, read

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

SCOPE: Final = "ezgh_workflows_django"
PREFIX: Final = "ezgh_workflows"
"""Of the names of attributes."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST: Final = 2**63
_log = logging.getLogger("ezgh_workflows.worker")

_given: ContextVar[TraceContext | None] = ContextVar("ezgh_workflows_span_ids", default=None)
"""The ids that the span which is about to start is to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A span that is over. `parent` None: it is the root of its trace. `error` says what went wrong, if anything did."""

    name: str
    context: TraceContext
    parent: TraceContext | None
    started_at: datetime
    ended_at: datetime
    attributes: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


def current() -> str | None:
    """The `traceparent` of the span that surrounds what is running here, if any."""
    trace = _api()
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return TraceContext(f"{context.trace_id:032x}", f"{context.span_id:016x}", bool(context.trace_flags.sampled)).to_text()


def attempt(lease: Lease) -> AbstractContextManager[Callable[[Outcome], None]]:
    """Around an attempt: a span under its step's, current inside. What it gives is to be told the outcome."""
    return nullcontext(_unheard) if _api() is None else _attempt(lease)


def span(span_id: str, name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Around a stretch of a body: a span with this id, of the name and attributes, under the one that is current, and current inside."""
    return nullcontext() if _api() is None else _inner_span(span_id, name, attributes)


def is_recording() -> bool:
    """Whether spans with ids of our own choice can be recorded here: an SDK is set up, and lets us choose."""
    return _api() is not None and hasattr(_tracer(), "id_generator")


def record(told: Told) -> None:
    """Record a span that is over."""
    try:
        started = _started(told.name, told.context, told.parent, attributes=told.attributes, start_time=_nanoseconds(told.started_at))
        _end(started, told.error, _nanoseconds(max(told.started_at, told.ended_at)))
    except Exception:  # noqa: BLE001 - a tracer of the user's
        _log.exception("span %s could not be recorded", told.name)


@contextmanager
def _attempt(lease: Lease) -> Iterator[Callable[[Outcome], None]]:
    attributes = {
        f"{PREFIX}.run_id": lease.run_id,
        f"{PREFIX}.workflow": lease.workflow,
        f"{PREFIX}.version": lease.version,
        f"{PREFIX}.step": lease.step,
        f"{PREFIX}.attempt": lease.attempt,
        f"{PREFIX}.token": lease.token,
    }
    outcomes: list[Outcome] = []
    step = read(lease.traceparent)
    with _current(lambda: _started(f"{lease.workflow}/{lease.step}", None, step, attributes=attributes)) as started:
        yield outcomes.append
        if started is not None and outcomes:
            _tell(started, outcomes[-1])


@contextmanager
def _inner_span(span_id: str, name: str, attributes: Mapping[str, Any]) -> Iterator[None]:
    around = read(current())
    ids = None if around is None else TraceContext(around.trace_id, span_id)
    with _current(lambda: _started(name, ids, around, attributes=attributes)):
        yield


@contextmanager
def _current(start: Callable[[], Span]) -> Iterator[Span | None]:
    """A span that is current inside, and ends with it; None where it could not be started. What is raised inside is its error."""
    trace = _api()
    assert trace is not None
    try:
        started = start()
    except Exception:  # noqa: BLE001 - a tracer of the user's
        _log.exception("a span could not be started")
        yield None
        return
    with trace.use_span(started, end_on_exit=True, record_exception=False, set_status_on_exception=True):
        yield started


def _tell(started: Span, outcome: Outcome) -> None:
    started.set_attribute(f"{PREFIX}.outcome", str(outcome.ends_as))
    if outcome.ends_as in (LeaseStatus.FAILED, LeaseStatus.TIMED_OUT):
        _set_error(started, f"{outcome.class_}: {outcome.message}")


def _end(started: Span, error: str | None, end_time: int) -> None:
    if error is not None:
        _set_error(started, error)
    started.end(end_time)


def _set_error(started: Span, description: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    started.set_status(Status(StatusCode.ERROR, description))


def _started(name: str, ids: TraceContext | None, parent: TraceContext | None, *, attributes: Mapping[str, Any], start_time: int | None = None) -> Span:
    """A span under `parent` (None: a root). It has these ids where the tracer lets us choose, else some of its own."""
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, get_current_span, set_span_in_context

    around: Context | None = None
    if parent is None:
        around = Context()
    elif f"{get_current_span().get_span_context().span_id:016x}" != parent.span_id:
        remote = SpanContext(int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True, trace_flags=TraceFlags(int(parent.is_sampled)))
        around = set_span_in_context(NonRecordingSpan(remote))
    token = _given.set(ids)
    try:
        return _tracer().start_span(name, around, attributes=_plain(attributes), start_time=start_time)
    finally:
        _given.reset(token)


class _ChosenIds:
    """Gives the span that starts the ids it is to have, else those of the generator that it stands before."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def generate_span_id(self) -> int:
        """The span's id."""
        given = _given.get()
        return int(self._own.generate_span_id()) if given is None else int(given.span_id, 16)

    def generate_trace_id(self) -> int:
        """The trace's id, for a root."""
        given = _given.get()
        return int(self._own.generate_trace_id()) if given is None else int(given.trace_id, 16)

    def is_trace_id_random(self) -> bool:
        """As the other one says."""
        return bool(self._own.is_trace_id_random())


@cache
def _api() -> Any:
    """OpenTelemetry's trace API, or None. Imported when it is first needed."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace


def _tracer() -> Tracer:
    """The tracer of the provider that is set up now. Its name is ours alone, and so is this tracer."""
    tracer: Any = _api().get_tracer(SCOPE, __version__)
    own = getattr(tracer, "id_generator", None)
    if own is not None and not isinstance(own, _ChosenIds):
        tracer.id_generator = _ChosenIds(own)
    found: Tracer = tracer
    return found


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """What OpenTelemetry keeps: texts, truth values and numbers; anything else as JSON text, and nothing for None."""
    return {name: value if _is_kept(value) else codec.dumps(value, limit=None, what=name) for name, value in attributes.items() if value is not None}


def _is_kept(value: Any) -> bool:
    return isinstance(value, str | float) or (isinstance(value, int) and abs(value) < _LARGEST)


def _nanoseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1_000


def _unheard(outcome: Outcome) -> None:
    """Nobody is told."""
