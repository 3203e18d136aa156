"""OpenTelemetry: one trace for each run, in which everything hangs where it belongs; nothing where nobody records."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from ezgh_workflows_django import Context, Permanent, Retry, Sleep, Step, Wait, Workflow
from ezgh_workflows_django.contrib import telemetry as runs_told
from ezgh_workflows_django.definitions.starts import Start
from ezgh_workflows_django.models import Run
from ezgh_workflows_django.testing import Lab
from ezgh_workflows_django.worker import telemetry

pytestmark = pytest.mark.django_db

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Mending:
    """A body that fails until it is mended."""

    is_mended = False

    def __call__(self, input: Any) -> Any:
        """Fails, or does not."""
        if not self.is_mended:
            raise Permanent("not yet")
        return input


@pytest.fixture
def mending() -> Mending:
    """Not mended yet."""
    return Mending()


class Exported:
    """What was recorded, by name."""

    def __init__(self, provider: TracerProvider) -> None:
        self._memory = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._memory))

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """All of them."""
        return self._memory.get_finished_spans()

    @property
    def traces(self) -> set[str]:
        """The ids of the traces."""
        return {f"{span.context.trace_id:032x}" for span in self.spans}

    def called(self, name: str) -> list[ReadableSpan]:
        """Those of a name, in the order they ended."""
        return [span for span in self.spans if span.name == name]

    def path(self, span: ReadableSpan) -> list[str]:
        """The names from the root of its trace down to a span; a parent that was not recorded is a `?`."""
        by_id = {each.context.span_id: each for each in self.spans}
        assert len(by_id) == len(self.spans), "two spans have one id"
        if span.parent is None:
            return [span.name]
        above = by_id.get(span.parent.span_id)
        return [*(["?"] if above is None else self.path(above)), span.name]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> TracerProvider:
    """The tracer provider of this test."""
    provider = TracerProvider()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return provider


@pytest.fixture
def exported(provider: TracerProvider) -> Exported:
    """What is recorded from now on."""
    return Exported(provider)


def call_out() -> None:
    """What an instrumented library does."""
    with trace.get_tracer("a-client").start_as_current_span("GET /sizes"):
        pass


def fetch(ctx: Context) -> str:
    """A body that calls out, within a span of its own and without."""
    call_out()
    with ctx.span("look", page=1, deep={"a": [1]}) as outer:
        outer.set_usage(tokens=1)
        with ctx.span("closer"):
            call_out()
    return trace.get_current_span().get_span_context().span_id.to_bytes(8).hex()


async def fetch_slowly(ctx: Context) -> str:
    """The same, on an event loop."""
    await asyncio.sleep(0)
    return fetch(ctx)


async def gathered(ctx: Context) -> Any:
    """Inner steps at once, each with a call of its own."""

    def probe(number: int) -> int:
        call_out()
        return number

    return await ctx.map("probes", probe, [1, 2], concurrency=2)


def failing(ctx: Context) -> None:
    """Fails twice."""
    raise Permanent("no such picture") if ctx.attempt == 2 else ValueError("try again")


def spanning(ctx: Context) -> bool:
    """No more than a span."""
    with ctx.span("a"):
        return True


def parking(ctx: Context) -> str:
    """Two passes."""
    with ctx.span("before"):
        ctx.sleep("rest", 60)
    call_out()
    return "rested"


def one(name: str, body: Any, **options: Any) -> Workflow:
    """A workflow of one step."""
    return Workflow(name, steps=[Step("work", run=body, **options)])


@pytest.mark.parametrize("body", [fetch, fetch_slowly])
def test_a_run_is_one_trace_and_the_bodys_own_calls_hang_at_their_depth(exported: Exported, body: Any) -> None:
    flow = one("pictures", body)
    with Lab(workflows=[flow]) as lab:
        run: Any = flow.start()
        lab.run_until_idle()
        row = Run.objects.get(pk=run.id)
        assert exported.traces == {row.trace_id}
        down_to_the_body = ["pictures", "pictures/work", "pictures/work"]
        assert [exported.path(span) for span in exported.called("GET /sizes")] == [
            [*down_to_the_body, "GET /sizes"],
            [*down_to_the_body, "look", "closer", "GET /sizes"],
        ]
        [look] = exported.called("look")
        assert dict(look.attributes or {}) == {"page": 1, "deep": '{"a":[1]}'}
        [told] = row.span_records.filter(name="look")
        assert f"{look.context.span_id:016x}" == told.span_id
        attempt, step = exported.called("pictures/work")
        assert (attempt.attributes or {})["ezgh_workflows.outcome"] == "completed"
        assert run.result(0) == f"{attempt.context.span_id:016x}"
        assert f"{step.context.span_id:016x}" == told.parent


def test_inner_steps_that_run_in_other_threads_hang_under_the_attempt(exported: Exported) -> None:
    flow = one("many", gathered)
    with Lab(workflows=[flow]) as lab:
        flow.start()
        lab.run_until_idle()
    assert [exported.path(span)[:3] for span in exported.called("GET /sizes")] == [["many", "many/work", "many/work"]] * 2


def test_each_attempt_is_a_span_and_says_why_it_failed(exported: Exported) -> None:
    flow = one("frail", failing, retry=Retry(max_attempts=3, jitter=0))
    with Lab(workflows=[flow]) as lab:
        flow.start()
        lab.run_until_idle()
        lab.advance(minutes=1)
    first, second, step = exported.called("frail/work")
    assert [each.status.description for each in (first, second, step)] == ["error: try again", "permanent: no such picture", "permanent: no such picture"]
    assert [(each.attributes or {}).get("ezgh_workflows.attempt") for each in (first, second)] == [1, 2]
    assert {each.parent.span_id for each in (first, second) if each.parent} == {step.context.span_id}
    [run] = exported.called("frail")
    assert (run.status.is_ok, run.parent) == (False, None)
    assert (step.start_time or 0) <= (first.start_time or 0)


def test_a_body_that_parks_is_a_span_a_pass_and_no_span_doubles(exported: Exported) -> None:
    flow = Workflow("lazy", steps=[Step("work", run=parking), Step("nap", after=["work"], sleep=Sleep(5)), Step("event", after=["nap"], wait=Wait("go"))])
    with Lab(workflows=[flow]) as lab:
        run: Any = flow.start()
        lab.run_until_idle()
        lab.advance(seconds=70)
        run.signal("go", 1)
        lab.run_until_idle()
        assert run.result(0) == 1
    assert [(each.attributes or {}).get("ezgh_workflows.outcome") for each in exported.called("lazy/work")] == ["suspended", "completed", None]
    assert [exported.path(span) for span in exported.called("before")] == [["lazy", "lazy/work", "lazy/work", "before"]] * 2
    assert {span.name for span in exported.spans if exported.path(span)[:-1] == ["lazy"]} == {"lazy/work", "lazy/nap", "lazy/event"}
    assert [span.status.is_unset for span in exported.called("before")] == [True, True]


def test_a_run_joins_the_trace_of_its_caller_and_so_do_its_children(exported: Exported) -> None:
    kid = one("kid", fetch)
    parent = one("parent", lambda ctx: ctx.run_workflow("kid", kid))
    with Lab(workflows=[parent, kid]) as lab:
        with trace.get_tracer("a-site").start_as_current_span("POST /orders") as request:
            parent.start()
        lab.run_until_idle()
    assert exported.traces == {f"{request.get_span_context().trace_id:032x}"}
    [first, _] = exported.called("GET /sizes")
    assert exported.path(first) == ["POST /orders", "parent", "parent/work", "kid", "kid/work", "kid/work", "GET /sizes"]


def test_a_trace_that_its_caller_does_not_record_is_not_recorded_here(exported: Exported) -> None:
    flow = one("quiet", fetch)
    with Lab(workflows=[flow]) as lab:
        [run] = flow.start_many([Start(traceparent=f"{CALLER[:-2]}00")])
        lab.run_until_idle()
        assert Run.objects.get(pk=run.id).trace_id == CALLER.split("-")[1]
        assert run.status == "succeeded"
    assert exported.spans == ()


def test_a_retry_is_told_under_the_run_and_no_span_has_the_id_of_another(exported: Exported) -> None:
    flow = one("again", failing)
    with Lab(workflows=[flow]) as lab:
        run: Any = flow.start()
        lab.run_until_idle()
        run.retry()
        lab.run_until_idle()
    assert [exported.path(span) for span in exported.called("again episode 2")] == [["again", "again episode 2"]]
    assert [exported.path(span)[:2] for span in exported.called("again/work")] == [["again", "again/work"]] * 3


def test_a_run_that_went_on_after_a_pause_for_attention_is_told_whole_when_it_ends(exported: Exported, mending: Mending) -> None:
    steps = [Step("first", run=mending, retry=Retry(exhausted="pause")), Step("nap", after="first", sleep=Sleep(0)), Step("last", after="nap", run=spanning)]
    flow = Workflow("careful", steps=steps)
    with Lab(workflows=[flow]) as lab:
        run: Any = flow.start()
        lab.run_until_idle()
        assert exported.called("careful") == []
        began_at = lab.now
        lab.advance(minutes=1)
        mending.is_mended = True
        run.resume()
        lab.run_until_idle()
        assert run.result(0) is True
    [told] = exported.called("careful")
    assert (told.start_time or 0) == began_at.timestamp() * 1e9
    assert {tuple(exported.path(span)[:2]) for span in exported.spans} == {("careful",), *(("careful", f"careful/{step}") for step in ("first", "nap", "last"))}


def test_a_step_that_begins_after_a_retry_only_is_told_then(exported: Exported, mending: Mending) -> None:
    steps = [
        Step("nap", sleep=Sleep(0)),
        Step("first", after="nap", run=mending),
        Step("rest", after="first", sleep=Sleep(0)),
        Step("last", after="rest", run=spanning),
    ]
    flow = Workflow("stubborn", steps=steps)
    with Lab(workflows=[flow]) as lab:
        run: Any = flow.start()
        lab.run_until_idle()
        mending.is_mended = True
        run.retry(from_step="nap")
        lab.run_until_idle()
        assert run.result(0) is True
        run.retry(from_step="last")
        lab.run_until_idle()
    below = [exported.path(span)[1] for span in exported.spans if exported.path(span)[:-1] == ["stubborn"]]
    assert sorted(below) == ["stubborn episode 2", "stubborn episode 3", *(f"stubborn/{step}" for step in ("first", "last", "nap", "rest"))]
    assert {exported.path(span)[0] for span in exported.spans} == {"stubborn"}


class Broken(Sampler):
    """A sampler with a bug."""

    def should_sample(self, *arguments: Any, **named: Any) -> Any:
        """Fails."""
        raise ZeroDivisionError

    def get_description(self) -> str:
        """Its name."""
        return "broken"


def test_a_tracer_that_fails_is_no_bodys_failure(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider(sampler=Broken()))
    flow = one("robust", spanning)
    with Lab(workflows=[flow]) as lab:
        run: Any = flow.start()
        lab.run_until_idle()
        assert run.result(0) is True
    assert "a span could not be started" in caplog.text


def test_without_an_sdk_the_trace_goes_on_and_nothing_is_asked_of_the_database() -> None:
    flow = one("plain", lambda ctx: telemetry.current())
    with Lab(workflows=[flow]) as lab:
        run: Any = flow.start()
        lab.run_until_idle()
        row = Run.objects.get(pk=run.id)
        assert run.result(0).split("-")[1] == row.trace_id
        with CaptureQueriesContext(connection) as captured:
            runs_told._run_finished(Run, run_id=run.id)
        assert len(captured) == 0


def test_without_opentelemetry_nothing_happens(exported: Exported, absent: None) -> None:
    flow = one("bare", spanning)
    with Lab(workflows=[flow]) as lab:
        run: Any = flow.start()
        lab.run_until_idle()
        assert run.result(0) is True
        assert Run.objects.get(pk=run.id).traceparent == ""
    assert (exported.spans, telemetry.current(), telemetry.is_recording()) == ((), None, False)


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in which OpenTelemetry is not installed."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    telemetry._api.cache_clear()
    yield
    telemetry._api.cache_clear()
