"""A deadline needs no worker: what nobody polls for ends all the same, and as a failure (case B43)."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from ezgh_workflows_django import Step, Workflow
from ezgh_workflows_django.errors import RunTimedOut
from tests.engine.conftest import Desk


def unserved(on_failure: Callable[..., object] | None = None) -> Workflow:
    """A step that no worker of these tests serves."""
    return Workflow("unserved", steps=[Step("only", run=lambda value: value)], deadline=timedelta(minutes=10), on_failure=on_failure)


def test_a_run_that_no_worker_ever_takes_is_timed_out_at_its_deadline(desk: Desk) -> None:
    """Case B43."""
    run = unserved().start({"n": 1})
    desk.advance(minutes=9, seconds=59)
    assert run.status == "running"
    desk.advance(seconds=1)
    assert run.status == "timed_out"
    assert run.failure.class_ == "deadline"
    with pytest.raises(RunTimedOut, match="passed its deadline"):
        run.result()


def test_a_deadline_counts_from_when_the_run_was_due(desk: Desk) -> None:
    run = unserved().start({"n": 1}, delay=timedelta(hours=1))
    desk.advance(hours=1)
    assert run.status == "running"
    desk.advance(minutes=10)
    assert run.status == "timed_out"


def test_compensation_that_no_worker_takes_is_given_up_after_a_day(desk: Desk) -> None:
    run = unserved(on_failure=lambda value: value).start({"n": 1})
    desk.advance(minutes=10)
    assert run.status == "failing"
    desk.advance(hours=23, minutes=59)
    assert run.status == "failing"
    desk.advance(minutes=1)
    assert run.status == "timed_out"
    assert "on_failure.abandoned" in desk.kinds(run)
