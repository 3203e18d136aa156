"""What is stored is read back as it was written on every database; what can't be is refused whole and by name (cases B05, B06, B07, B49, B50)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django import Step, Wait, Workflow, emit
from ezgh_workflows_django.conf import app_settings
from ezgh_workflows_django.engine import checkpoints
from ezgh_workflows_django.errors import InvalidArgument, InvalidPayload, PayloadTooLarge
from ezgh_workflows_django.models import Checkpoint, Event, Run
from ezgh_workflows_django.protocol.durable import Record
from tests.engine.bodies import Family
from tests.engine.conftest import Desk

BAD = {
    "NUL": "a\0b",
    "NUL in a key": {"a\0b": 1},
    "lone surrogate": "\ud83d",
    "NaN": float("nan"),
    "Infinity": float("-inf"),
    "too deep": json.loads("[" * 101 + "]" * 101),
    "too large": "x" * (1024 * 1024),
}

GOOD = {
    "order of keys": {"b": 1, "a": {"d": 1, "c": 2}},
    "whole numbers": [2**53 + 1, 2**200, -(2**63)],
    "fractions": [1e22, -0.0, 0.1 + 0.2, 5.0],
    "text": ["😀", "é", "e\u0301", "\u2028", "'\"\\", "A-1 ", ""],
    "deep": json.loads("[" * 99 + "]" * 99),
    "empties": [None, {}, [], False, 0],
}


def one() -> Workflow:
    """One step."""
    return Workflow("one", steps=[Step("only", run=lambda value: value)])


@pytest.mark.parametrize("value", GOOD.values(), ids=GOOD)
def test_a_payload_and_an_output_are_read_as_they_were_written(desk: Desk, value: Any) -> None:
    workflow = one()
    hand = desk.worker(workflow)
    run = workflow.start(value)
    lease = hand.take()
    hand.complete(lease, value, state={"kept": value})
    assert json.dumps(lease.input) == json.dumps(value)
    assert json.dumps(run.result()) == json.dumps(value)
    assert json.dumps(run.state["kept"]) == json.dumps(value)


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_a_payload_that_cannot_be_kept_starts_nothing(desk: Desk, value: Any) -> None:
    with pytest.raises(InvalidPayload, match="payload"):
        one().start({"deep": [value]})
    assert Run.objects.count() == 0


@pytest.mark.parametrize("what", BAD)
def test_an_output_that_cannot_be_kept_is_refused_and_the_worker_can_still_fail_the_step(desk: Desk, what: str) -> None:
    workflow = one()
    hand = desk.worker(workflow)
    run = workflow.start()
    lease = hand.take()
    answer = hand.complete(lease, {"deep": [BAD[what]]})
    assert answer.refused is not None
    assert answer.refused.reason == ("payload_too_large" if what == "too large" else "invalid")
    assert "output" in answer.refused.message
    hand.fail(lease, "permanent", answer.refused.message)
    assert run.status == "failed"


def test_one_bad_output_does_not_undo_its_neighbours_in_a_group(desk: Desk) -> None:
    workflow = one()
    hand = desk.worker(workflow)
    runs = workflow.start_many([1, 2, 3])
    from ezgh_workflows_django.engine import leases, outcomes
    from ezgh_workflows_django.protocol.outcomes import Outcome, Report

    offered = hand.claim()
    leases.started([lease.id for lease in offered])
    outputs = ["fine", "a\0b", "fine"]
    answers = outcomes.report([Report(lease.id, Outcome.completed(output)) for lease, output in zip(offered, outputs, strict=True)])
    assert [answer.refused is None for answer in answers] == [True, False, True]
    assert sorted(run.status for run in runs) == ["running", "succeeded", "succeeded"]


def test_a_state_that_grows_over_the_limit_is_answered_too_large(desk: Desk) -> None:
    workflow = Workflow("two", steps=[Step("first", run=lambda value: value), Step("second", run=lambda value: value, after=["first"])])
    hand = desk.worker(workflow)
    workflow.start()
    half = "x" * (600 * 1024)
    hand.complete(hand.take(), None, state={"a": half})
    answer = hand.complete(hand.take(), None, state={"b": half})
    assert answer.refused is not None
    assert answer.refused.reason == "payload_too_large"
    assert str(app_settings.MAX_PAYLOAD_BYTES) in answer.refused.message.replace(",", "").replace("_", "")


@pytest.mark.parametrize("message", ["a\0b", "\udce9", "x" * 10_000_000, "😀" * 100_000], ids=["NUL", "lone surrogate", "10 MB", "astral"])
def test_a_failure_can_always_be_reported(desk: Desk, message: str) -> None:
    workflow = one()
    hand = desk.worker(workflow)
    run = workflow.start()
    answer = hand.fail(hand.take(), "error", message, type="x" * 1000)
    assert answer.refused is None
    assert run.failure.class_ == "error"
    assert 0 < len(run.failure.message) <= 64 * 1024
    assert "\0" not in run.failure.message


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_an_event_that_cannot_be_kept_is_refused_whole(desk: Desk, value: Any) -> None:
    with pytest.raises(InvalidPayload, match="payload"):
        emit("paid", key="A-1", payload=[value])
    assert Event.objects.count() == 0


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_a_signal_that_cannot_be_kept_is_refused_whole(desk: Desk, value: Any) -> None:
    run = Workflow("waits", steps=[Step("wait", wait=Wait("paid"))]).start()
    before = desk.kinds(run)
    with pytest.raises(InvalidPayload, match="payload"):
        run.signal("paid", value)
    assert desk.kinds(run) == before


@pytest.mark.parametrize(
    "arguments",
    [{"name": "a\0b"}, {"name": ""}, {"name": "n" * 256}, {"name": "paid", "key": "\ud83d"}, {"name": "paid", "key": "k" * 256}],
    ids=["NUL", "empty", "long name", "surrogate", "long key"],
)
def test_a_name_that_cannot_be_kept_is_refused_by_field(desk: Desk, arguments: dict[str, str]) -> None:
    """Case B53."""
    with pytest.raises(InvalidArgument, match=r"^(name|key): "):
        emit(**arguments)
    assert Event.objects.count() == 0


def test_a_payload_of_exactly_the_limit_is_kept(desk: Desk) -> None:
    at_the_limit = "x" * (app_settings.MAX_PAYLOAD_BYTES - 2)
    assert len(one().start(at_the_limit).payload) == len(at_the_limit)
    with pytest.raises(PayloadTooLarge):
        one().start(at_the_limit + "x")


# --- many of them at once: MariaDB takes 16 MiB in one statement, in which each of these quotes is four bytes

QUOTES = '"' * (500 * 1024)
TOO_MANY_AT_ONCE = 9


def test_runs_started_together_may_be_larger_than_a_statement(desk: Desk) -> None:
    runs = one().start_many([QUOTES] * TOO_MANY_AT_ONCE)
    assert {run.payload for run in runs} == {QUOTES}


def test_children_started_together_may_be_larger_than_a_statement(family: Family) -> None:
    started = family.hand.children(family.lease, "all", family.child, [QUOTES] * TOO_MANY_AT_ONCE)
    assert (started.refused, len(set(started.runs)), family.children.count()) == (None, TOO_MANY_AT_ONCE, TOO_MANY_AT_ONCE)


def test_checkpoints_stored_together_may_be_larger_than_a_statement(desk: Desk) -> None:
    hand = desk.worker(one())
    one().start()
    lease = hand.take()
    stored = checkpoints.checkpoint([Record(lease_id=lease.id, name=f"c{pos}", pos=pos, output=QUOTES) for pos in range(TOO_MANY_AT_ONCE)])
    assert ({each.refused for each in stored}, Checkpoint.objects.count()) == ({None}, TOO_MANY_AT_ONCE)


def test_what_is_not_large_is_one_statement(desk: Desk) -> None:
    with CaptureQueriesContext(connection) as seen:
        one().start_many(["x" * 1024] * 10)
    inserts = [query["sql"] for query in seen.captured_queries if query["sql"].startswith("INSERT") and "workflows_run" in query["sql"].split("(")[0]]
    assert len(inserts) == 1


def too_large(table: str) -> Any:
    """A database that finds each write of a table too large, as MariaDB says it: errno 1153."""

    def execute(call: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith(("INSERT", "UPDATE")) and f"workflows_{table}" in sql.split("(")[0].split("SET")[0]:
            raise OperationalError(1153, "Got a packet bigger than 'max_allowed_packet' bytes")
        return call(sql, *rest)

    return connection.execute_wrapper(execute)


def test_what_the_database_finds_too_large_is_answered_so_and_never_tried_again(family: Family) -> None:
    with too_large("run"), pytest.raises(PayloadTooLarge, match="more than the database takes at once"):
        one().start()
    with too_large("run"):
        refused = family.hand.children(family.lease, "all", family.child, [1, 2]).refused
    assert refused is not None
    with too_large("checkpoint"):
        other = family.hand.checkpoint(family.lease, "c").refused
    assert other is not None
    with too_large("step"):
        third = family.hand.complete(family.lease, 1).refused
    assert third is not None
    assert {refused.reason, other.reason, third.reason} == {"payload_too_large"}
    assert family.hand.complete(family.lease, 1).refused is None
