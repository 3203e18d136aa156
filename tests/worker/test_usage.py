"""What a body notes of usage and spans: exact, within the bounds that a server keeps to, told once, and with whatever its attempt comes to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import pytest

from ezgh_workflows_django.definitions.policies import Retry
from ezgh_workflows_django.errors import InvalidArgument, InvalidPayload
from ezgh_workflows_django.protocol import notes
from ezgh_workflows_django.protocol.outcomes import Outcome
from ezgh_workflows_django.testing.scripted import ScriptedTransport, lease_of
from ezgh_workflows_django.worker.context import Context

from .bench import Running, one_step
from .passes import HOUR, Manner, Passes, Words
from .test_context import lease

Start = Callable[..., Running]


def told(outcome: Any) -> dict[str, str]:
    """What an outcome, a record or a context tells as used."""
    return {f"{each.model}/{each.unit}" if each.model else each.unit: each.amount for each in outcome.usage}


def test_amounts_add_up_exactly_whatever_the_threads_decimal_context() -> None:
    ctx = Context(lease())
    with localcontext(prec=2):
        for amount in (0.1, 0.2, Decimal("12345678901234567890"), 10**29):
            with ctx.span("call") as span:
                span.set_usage(tokens=amount)
    assert told(ctx) == {"tokens": "100000000012345678901234567890.3"}


@pytest.mark.parametrize(
    ("amount", "text"), [(5e-324, "0"), (1.5e-30, "0.000000000000000000000000000002"), (-0.0, "0"), (Decimal("1E+3"), "1000"), (True, None)]
)
def test_what_a_float_is_too_fine_to_keep_is_rounded_away(amount: Any, text: str | None) -> None:
    ctx = Context(lease())
    if text is None:
        with pytest.raises(InvalidArgument):
            ctx.set_usage(tokens=amount)
    else:
        ctx.set_usage(tokens=amount)
        assert told(ctx) == {"tokens": text}


@pytest.mark.parametrize(
    "used",
    [
        {"tokens": 10**30},
        {"tokens": 10**5_000},
        {"tokens": -1},
        {"tokens": Decimal("1e-31")},
        {"tokens": "1"},
        {"": 1},
        {"x" * 65: 1},
        {"a\nb": 1},
        {"model": "", "a": 1},
        {"model": 1, "a": 1},
    ],
)
def test_what_no_server_would_keep_is_refused_where_it_is_noted(used: dict[str, Any]) -> None:
    ctx = Context(lease())
    with pytest.raises(InvalidArgument):
        ctx.set_usage(**used)
    assert ctx.usage == ()


def test_set_usage_without_amounts_overrides_nothing() -> None:
    ctx = Context(lease())
    ctx.set_usage(model="opus")
    with ctx.span("call") as span:
        span.set_usage(tokens=1)
    assert told(ctx) == {"tokens": "1"}


def test_more_spans_than_a_report_may_have_are_not_kept_and_their_usage_counts(caplog: pytest.LogCaptureFixture) -> None:
    ctx = Context(lease(span_id="f" * 16))
    with caplog.at_level(logging.WARNING):
        for number in range(notes.MAX_SPANS + 5):
            with ctx.span(f"call {number}\n") as span:
                span.set_usage(tokens=1)
    assert (len(ctx.spans), told(ctx), caplog.text.count("not kept")) == (1_000, {"tokens": "1005"}, 1)
    assert len(notes.read(ctx.usage, ctx.spans).spans) == 1_000  # as a server reads them


def test_a_span_takes_no_more_than_a_server_keeps_of_one() -> None:
    ctx = Context(lease())
    with pytest.raises(InvalidPayload, match="attributes"), ctx.span("call", page="x" * 4_096):
        pass
    many: dict[str, Any] = {f"u{number}": 1 for number in range(21)}
    with pytest.raises(InvalidArgument, match="20 pairs"), ctx.span("call") as span:
        span.set_usage(**many)


def test_how_long_a_span_took_is_told_by_the_monotonic_clock(now: list[float]) -> None:
    ctx = Context(lease())
    with ctx.span("call"):
        now[0] += 2.5
    [span] = ctx.spans
    assert datetime.fromisoformat(span["end"]) - datetime.fromisoformat(span["start"]) == timedelta(seconds=2.5)


def test_a_span_around_a_wait_tells_in_each_pass_what_was_used_in_that_pass(body: Manner) -> None:
    def written(ctx: Context) -> Words:
        with ctx.span("around") as around:
            around.set_usage(tokens=1)
            yield ctx.sleep("rest", HOUR)
            around.set_usage(calls=10)
            with ctx.span("within") as within:
                within.set_usage(tokens=100)

    passes = Passes(body(written))
    passes.run()
    passes.again()
    assert [told(outcome) for outcome in passes.outcomes] == [{"tokens": "1"}, {"tokens": "100", "calls": "10"}]
    assert [[span["name"] for span in outcome.spans] for outcome in passes.outcomes] == [["around"], ["within", "around"]]


def test_members_of_a_group_that_use_the_same_are_told_as_one_amount() -> None:
    def written(ctx: Context) -> None:
        ctx.gather(*[lambda number=number: ctx.set_usage(model="opus", tokens=number, calls=1) for number in (1, 2)])
        ctx.set_usage(calls=3)

    outcome = Passes(written).run()
    assert (told(outcome), len(outcome.usage)) == ({"opus/tokens": "3", "opus/calls": "2", "calls": "3"}, 3)


def test_each_try_of_an_inner_step_tells_what_it_used_and_how_often_it_had_failed(body: Manner) -> None:
    errors = [ValueError("once"), ValueError("twice")]

    def written(ctx: Context) -> Words:
        def charge() -> None:
            ctx.set_usage(calls=1)
            if errors:
                raise errors.pop()

        yield ctx.step("charge", charge, retry=Retry(max_attempts=3))

    passes = Passes(body(written))
    passes.run()
    passes.again()
    passes.again()
    assert [(record.failures, told(record)) for [record] in passes.server.named("checkpoint")] == [
        (0, {"calls": "1"}),
        (1, {"calls": "1"}),
        (None, {"calls": "1"}),
    ]


# With whatever the attempt comes to


def reported(server: ScriptedTransport, lease_id: str) -> list[Outcome]:
    """The outcomes of a lease, in the order they came."""
    return list(server.outcomes[lease_id])


def using(ctx: Context) -> None:
    """Use something, within a span."""
    with ctx.span("call") as span:
        span.set_usage(tokens=7)


def test_a_failure_that_stands_for_an_unfit_outcome_keeps_its_notes_but_where_they_are_to_blame(work: Start) -> None:
    job = one_step(using)
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    server.refuse("report", lease.id, "invalid", "usage[0].unit: no")
    work(server, job, until_idle=True).join()
    assert [(outcome.class_, told(outcome), len(outcome.spans)) for outcome in reported(server, lease.id)] == [
        (None, {"tokens": "7"}, 1),
        ("permanent", {"tokens": "7"}, 1),
        ("permanent", {}, 0),
    ]


def test_a_body_that_is_told_to_stop_tells_what_it_had_used(work: Start) -> None:
    begun = threading.Event()

    def stopped(ctx: Context) -> None:
        using(ctx)
        begun.set()
        ctx.cancelled.wait(60)

    job = one_step(stopped)
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    running = work(server, job, grace=0.05)
    assert begun.wait(60)
    assert running.stop() == 0
    [outcome] = reported(server, lease.id)
    assert (outcome.class_, told(outcome), [span["name"] for span in outcome.spans]) == ("returned", {"tokens": "7"}, ["call"])


def test_a_body_whose_time_is_up_tells_what_it_had_used(work: Start) -> None:
    def late(ctx: Context) -> None:
        using(ctx)
        ctx.cancelled.wait()

    job = one_step(late, timeout=0.05)
    lease = lease_of(job, "only", timeout_ms=50)
    server = ScriptedTransport(lease)
    work(server, job, until_idle=True).join()
    [outcome] = reported(server, lease.id)
    assert (outcome.class_, told(outcome)) == ("timeout", {"tokens": "7"})
