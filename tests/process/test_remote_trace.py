"""One trace for a run whose worker is elsewhere: its own spans and its body's hang under the step's, and all of it under the caller's."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from ezgh_workflows_django import Context, Step, Worker, Workflow
from ezgh_workflows_django.engine import ids
from ezgh_workflows_django.errors import WorkflowNotAnnounced
from ezgh_workflows_django.models import Run, SpanRecord, UsageRecord
from tests.contrib.test_telemetry import Exported
from tests.worker.bench import Running

from .conftest import until
from .test_remote import Site
from .test_remote import site as site
from .test_remote import times as times

pytestmark = [pytest.mark.process, pytest.mark.live]


def fetch(ctx: Context) -> str:
    """A body that calls out, and says what that took."""
    with ctx.span("look") as span:
        span.set_usage(pages=2)
        with trace.get_tracer("a-client").start_as_current_span("GET /sizes"):
            return ctx.info.run_id


def test_a_remote_workers_spans_are_in_the_trace_of_the_caller(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = TracerProvider()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    exported = Exported(provider)
    flow = Workflow("remote-trace", steps=[Step("work", run=fetch)])
    running = Running(Worker(base_url=site.url, api_key=site.worker_key, workflows=[flow]))
    try:
        with trace.get_tracer("a-site").start_as_current_span("POST /orders") as request:
            run: Any = until(lambda: _started(site))
        assert run.result(timeout=30) == run.id
    finally:
        assert running.stop() == 0
    caller = f"{request.get_span_context().trace_id:032x}"
    assert exported.traces == {caller}
    assert Run.objects.get(pk=run.id).trace_id == caller
    [call], [attempt] = exported.called("GET /sizes"), exported.called("remote-trace/work")
    assert exported.path(call) == ["?", "remote-trace/work", "look", "GET /sizes"]
    # The step's span is the server's to record; it is known by its id.
    assert attempt.parent is not None
    assert f"{attempt.parent.span_id:016x}" == ids.span_id(Run.objects.get(pk=run.id).pk, "work")
    [told] = SpanRecord.objects.filter(run=run.id)
    assert (told.span_id, told.parent) == (f"{exported.called('look')[0].context.span_id:016x}", f"{attempt.parent.span_id:016x}")
    assert [str(record.amount) for record in UsageRecord.objects.filter(run=run.id)] == ["2"]


def _started(site: Site) -> Any:
    try:
        return site.client.start("remote-trace")
    except WorkflowNotAnnounced:
        return None
