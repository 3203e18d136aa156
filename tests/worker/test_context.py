"""What a body is given besides its input."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from ezgh_workflows_django.errors import InvalidArgument, InvalidPayload
from ezgh_workflows_django.protocol.messages import Lease
from ezgh_workflows_django.protocol.notes import Usage
from ezgh_workflows_django.worker.cancellation import Cancelled, Why
from ezgh_workflows_django.worker.context import Context, StepInfo, step_info, with_step_info


def lease(**fields: object) -> Lease:
    given: dict[str, object] = {
        "id": "l",
        "token": 1,
        "run_id": "r1",
        "workflow": "order",
        "version": "v",
        "revision": "1",
        "step": "ship",
        "attempt": 2,
        "expires_at": datetime.now(UTC),
        "expires_in_ms": 1,
        "span_id": "abc",
        "idempotency_key": "r1:ship",
    }
    return Lease(**(given | fields))  # type: ignore[arg-type]  # a test's own table of fields


def test_there_is_no_step_info_outside_a_step() -> None:
    assert step_info() is None


def test_with_step_info_sets_one_and_takes_it_back() -> None:
    info = StepInfo(workflow="order", step="ship", run_id="r1")
    with with_step_info(info):
        assert step_info() is info
    assert step_info() is None


def test_labels_are_read_only_and_not_the_callers_own_dict() -> None:
    labels = {"a": "1"}
    info = StepInfo(workflow="order", step="ship", run_id="r1", labels=labels)
    labels["a"] = "2"
    assert info.labels == {"a": "1"}
    with pytest.raises(TypeError):
        info.labels["a"] = "3"  # type: ignore[index]  # what the test is about


def test_a_context_shows_its_lease() -> None:
    ctx = Context(lease(input={"n": 1}, steps={"pay": {"sum": 3}}, last=False))
    assert (ctx.attempt, ctx.idempotency_key, ctx.input, ctx.steps["pay"], ctx.info.last, ctx.failure) == (2, "r1:ship", {"n": 1}, {"sum": 3}, False, None)


def test_a_patch_shows_in_state_and_replaces_top_level_keys() -> None:
    ctx = Context(lease(state={"a": {"x": 1}, "b": 2}))
    ctx.patch_state(a={"y": datetime(2024, 1, 1, tzinfo=UTC)})
    assert ctx.state == {"a": {"y": "2024-01-01T00:00:00Z"}, "b": 2}
    assert ctx.patch == {"a": {"y": "2024-01-01T00:00:00Z"}}


def test_a_patch_that_cannot_be_stored_names_its_key_and_changes_nothing() -> None:
    ctx = Context(lease())
    with pytest.raises(InvalidPayload, match=r"state\.total"):
        ctx.patch_state(total=float("nan"))
    assert ctx.patch is None


def test_the_usage_of_spans_adds_up() -> None:
    ctx = Context(lease())
    with ctx.span("outer") as outer:
        outer.set_usage(model="m", tokens=1)
        with ctx.span("inner") as inner:
            inner.set_usage(model="m", tokens=2)
    assert ctx.usage == (Usage(unit="tokens", amount="3", model="m"),)


def test_set_usage_overrides_what_spans_add_up_to() -> None:
    ctx = Context(lease())
    ctx.set_usage(seconds=Decimal("1.50"))
    with ctx.span("call") as span:
        span.set_usage(tokens=7)
    assert ctx.usage == (Usage(unit="seconds", amount="1.5"),)


def test_an_amount_that_is_none_is_refused_by_its_unit() -> None:
    with pytest.raises(InvalidArgument, match="tokens"):
        Context(lease()).set_usage(tokens=float("nan"))


def test_spans_hang_under_the_steps_span_and_each_other() -> None:
    ctx = Context(lease())
    with ctx.span("outer", page=1), ctx.span("inner"):
        pass
    inner, outer = ctx.spans
    assert (outer["parent"], inner["parent"], outer["attributes"]) == ("abc", outer["id"], {"page": 1})


def test_a_span_is_recorded_when_its_body_raises() -> None:
    ctx = Context(lease())
    with pytest.raises(KeyError), ctx.span("call"):
        raise KeyError("x")
    assert [span["name"] for span in ctx.spans] == ["call"]


def test_log_records_carry_run_step_and_attempt(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ezgh_workflows.body"):
        Context(lease()).log.info("hello")
    record = caplog.records[0]
    assert (record.__dict__["run_id"], record.__dict__["step"], record.__dict__["attempt"]) == ("r1", "ship", 2)


def test_progress_is_handed_on_as_a_plain_value() -> None:
    shown: list[object] = []
    Context(lease(), on_progress=shown.append).progress((1, 2))
    assert shown == [[1, 2]]


def test_cancelled_keeps_the_first_reason() -> None:
    cancelled = Cancelled()
    assert (cancelled.fire(Why.FENCED), cancelled.fire(Why.TIMEOUT)) == (True, False)
    assert (cancelled.is_set(), cancelled.why, cancelled.wait(0)) == (True, Why.FENCED, True)


def test_a_callback_that_comes_late_is_called_at_once() -> None:
    cancelled, called = Cancelled(), []
    cancelled.fire(Why.FENCED)
    cancelled.on_fire(lambda: called.append(1))
    assert called == [1]
