"""Starts: ordinary writes on the caller's connection, idempotent by key, refused whole or done whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, connections, transaction
from django.test import override_settings

from ezgh_workflows_django import IdempotencyConflict, Start, Step, Wait, Workflow, dispatch, runs_of, start_run
from ezgh_workflows_django.conf import DICT
from ezgh_workflows_django.definitions.policies import RunView
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.engine import starts
from ezgh_workflows_django.errors import InvalidArgument, InvalidPayload, PayloadTooLarge, StartBusy, UnknownApp, UnknownWorkflow
from ezgh_workflows_django.models import App, Definition, JournalEntry, Revision, Run, RunLabel
from ezgh_workflows_django.models import Step as StepRow
from tests.engine.conftest import Desk
from tests.engine.graphs import Undo, body, chain, job, undone
from tests.engine.threads import PATIENCE, answer_of, begin, elsewhere, together

TABLES = (Run, StepRow, RunLabel, JournalEntry, Definition)


def rows() -> dict[str, int]:
    """How many rows there are that a start could have left; the project's own definitions are among them."""
    return {model.__name__: model._default_manager.count() for model in TABLES}


@pytest.fixture
def before(desk: Desk) -> dict[str, int]:
    """The rows there were before the test."""
    return rows()


# The caller's transaction


def test_a_start_whose_transaction_is_rolled_back_leaves_nothing(desk: Desk, before: dict[str, int]) -> None:
    """B25, I10."""
    undone(lambda: job().start({"n": 1}, labels={"a": "b"}, idempotency_key="k"))
    assert rows() == before


def test_a_start_in_a_savepoint_that_is_rolled_back_leaves_nothing_while_its_neighbour_stays(desk: Desk) -> None:
    with transaction.atomic():
        kept = job().start(1)
        undone(lambda: job("other").start(2))
    assert [str(pk) for pk in Run.objects.values_list("pk", flat=True)] == [kept.id]


def test_after_a_start_was_rolled_back_the_same_workflow_starts_again(desk: Desk) -> None:
    hand = desk.worker()
    undone(lambda: job().start(1))
    run = job().start(2)
    assert [lease.run_id for lease in desk.worker(job(), name=hand.name).claim()] == [run.id]


def test_a_worker_sees_a_run_only_after_the_caller_has_committed(transactional_db: None, desk: Desk) -> None:
    hand = desk.worker(job())
    with transaction.atomic():
        with transaction.atomic():
            run = job().start(1)
        before = elsewhere(hand.claim)
    after = elsewhere(hand.claim)
    assert (before, [lease.run_id for lease in after]) == ((), [run.id])


def test_a_refused_start_leaves_the_callers_transaction_usable(desk: Desk) -> None:
    with transaction.atomic():
        with pytest.raises(InvalidArgument):
            job().start(1, priority=101)
        User.objects.create(username="a")
    assert User.objects.count() == 1


# Idempotency


def test_a_key_seen_before_gives_back_the_first_run(desk: Desk) -> None:
    first = job().start({"n": 1}, labels={"a": "b"}, idempotency_key="k")
    before = rows()
    again = job().start({"n": 1}, labels={"a": "b"}, idempotency_key="k")
    assert (again.id, rows()) == (first.id, before)


def test_a_key_gives_back_a_run_that_is_over_too(desk: Desk) -> None:
    first = job().start(1, idempotency_key="k")
    desk.worker(job()).work_off()
    assert (job().start(1, idempotency_key="k").id, first.phase) == (first.id, "succeeded")


@pytest.mark.parametrize("other", [{"payload": 2}, {"payload": None}, {"labels": {"a": "c"}}, {"labels": {}}], ids=str)
def test_a_key_with_other_content_is_a_conflict_that_names_the_run(desk: Desk, other: dict[str, Any]) -> None:
    first = job().start(1, labels={"a": "b"}, idempotency_key="k")
    with pytest.raises(IdempotencyConflict, match=first.id):
        start_run(job(), **{"payload": 1, "labels": {"a": "b"}, "idempotency_key": "k", **other})


def test_no_payload_is_another_content_than_the_payload_none(desk: Desk) -> None:
    job().start(idempotency_key="k")
    with pytest.raises(IdempotencyConflict):
        job().start(None, idempotency_key="k")


def test_a_payload_equal_but_for_the_order_of_its_keys_is_the_same(desk: Desk) -> None:
    first = job().start({"a": 1, "b": 2}, idempotency_key="k")
    assert job().start({"b": 2, "a": 1}, idempotency_key="k").id == first.id


def test_a_key_belongs_to_one_workflow_of_one_app(desk: Desk) -> None:
    runs = [job().start(1, idempotency_key="k"), job("other").start(1, idempotency_key="k"), job().start(1, idempotency_key="k", app="dev-ann")]
    assert len({run.id for run in runs}) == 3


@pytest.mark.parametrize("other", ["K", "k ", "k", "ｋ"], ids=ascii)
def test_keys_are_compared_exactly(desk: Desk, other: str) -> None:
    job().start(1, idempotency_key="k")
    job().start(1, idempotency_key=other)
    assert set(Run.objects.values_list("idempotency_key", flat=True)) == {"k", other}


def test_a_key_in_use_does_not_poison_the_callers_transaction(desk: Desk) -> None:
    """B89."""
    first = job().start(1, idempotency_key="k")
    with transaction.atomic():
        again = job().start(1, idempotency_key="k")
        User.objects.create(username="a")
    assert (again.id, User.objects.count()) == (first.id, 1)


def test_a_key_taken_while_the_start_was_on_its_way_does_not_poison_the_callers_transaction(transactional_db: None, desk: Desk) -> None:
    """B89: the insert itself meets the key."""

    def start_and_write(name: str) -> Any:
        with transaction.atomic():
            run = job().start(1, idempotency_key="k")
            User.objects.create(username=name)
        return run.id

    job().start(0)
    ids = together([partial(start_and_write, name) for name in "abcd"])
    assert (len(set(ids)), User.objects.count()) == (1, 4)


def test_starts_with_one_key_at_one_moment_make_one_run(transactional_db: None, desk: Desk) -> None:
    """B88."""
    ids = together([lambda: job().start(1, idempotency_key="k").id] * 8)
    assert (ids, Run.objects.count()) == ([str(Run.objects.get().pk)] * 8, 1)


def test_where_the_first_to_use_a_key_rolls_back_the_next_one_starts_the_run(transactional_db: None, desk: Desk) -> None:
    """B88: the winner rolls back; whoever got an answer and committed has a run that exists."""
    job().start(0)

    def start(place: int) -> Any:
        try:
            with transaction.atomic():
                run = job().start(1, idempotency_key="k")
                if place:
                    raise Undo
        except Undo:
            return None
        return run.id

    ids = together([partial(start, place) for place in range(5)])
    assert list(filter(None, ids)) == [str(pk) for pk in Run.objects.filter(idempotency_key="k").values_list("pk", flat=True)]


def test_a_key_held_for_too_long_by_another_transaction_is_busy(transactional_db: None, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """B15: on SQLite it is the whole file that is held, and the start's own bound counts, not that of each of its tries."""
    monkeypatch.setattr(starts, "BUSY_AFTER_SECONDS", 1)
    job().start(0)
    with transaction.atomic():
        job().start(1, idempotency_key="k")
        answer = elsewhere(answer_of(lambda: job().start(1, idempotency_key="k")))
    assert isinstance(answer, StartBusy)
    assert "over 1 s" in str(answer)
    assert 'key "k"' in str(answer)


def lock_timeout() -> Any:
    """How long this connection waits for a lock."""
    reads = {"postgresql": "SELECT current_setting('lock_timeout')", "mysql": "SELECT @@innodb_lock_wait_timeout", "sqlite": "PRAGMA busy_timeout"}
    with connection.cursor() as cursor:
        cursor.execute(reads[connection.vendor])
        return cursor.fetchone()


@contextmanager
def callers_own_atomic() -> Iterator[None]:
    """A transaction of a caller who has not told SQLite to begin with the write lock, which is how Django comes."""
    connection.ensure_connection()
    connections["default"].transaction_mode = None  # type: ignore[attr-defined]  # SQLite's; the others have no such thing
    with transaction.atomic():
        yield


@pytest.mark.parametrize("reads_first", [False, True])
def test_the_caller_of_a_busy_start_keeps_his_transaction_and_his_lock_timeout(
    transactional_db: None, desk: Desk, monkeypatch: pytest.MonkeyPatch, reads_first: bool
) -> None:
    """B15, B88."""
    monkeypatch.setattr(starts, "BUSY_AFTER_SECONDS", 1)
    job().start(0)
    refused, over = threading.Event(), threading.Event()

    def start() -> tuple[Any, Any]:
        with callers_own_atomic():
            assert not (reads_first and User.objects.exists())
            before = lock_timeout()
            with pytest.raises(StartBusy):
                job().start(1, idempotency_key="k")
            refused.set()
            over.wait(PATIENCE)
            User.objects.create(username="a")
            return before, lock_timeout()

    def hold_and_undo() -> None:
        job().start(1, idempotency_key="k")
        caller.append(begin(start))
        refused.wait(PATIENCE)

    caller: list[Future[tuple[Any, Any]]] = []
    undone(hold_and_undo)
    over.set()
    before, after = caller[0].result(PATIENCE)
    assert (before, User.objects.count()) == (after, 1)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite lets a start wait for who writes anything at all")
def test_what_runs_after_a_keyed_start_waits_for_the_writer_as_ever(transactional_db: None, desk: Desk) -> None:
    """B15: neither the commit's hooks nor later statements inherit the start's bound."""
    heard: list[Any] = []
    before = lock_timeout()

    def listen(**_: Any) -> None:
        heard.append(lock_timeout())

    dispatch.starting.connect(listen)
    job().start(1, idempotency_key="k")
    dispatch.starting.disconnect(listen)
    assert (heard, lock_timeout()) == ([before], before)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite has a transaction that can read and never write")
def test_a_keyed_start_that_can_never_write_is_not_called_busy(transactional_db: None, desk: Desk) -> None:
    """To try again in the same transaction would be in vain: its view of the file is older than another's commit."""
    job().start(0)

    def start() -> Any:
        with callers_own_atomic():
            assert not User.objects.exists()
            elsewhere(lambda: User.objects.create(username="a"))
            return job().start(1, idempotency_key="k")

    answer = elsewhere(answer_of(start))
    assert isinstance(answer, OperationalError)
    assert lock_timeout() == elsewhere(lock_timeout)


def test_a_start_waits_for_the_transaction_that_holds_its_key(transactional_db: None, desk: Desk) -> None:
    job().start(0)
    going = threading.Event()

    def start() -> Any:
        going.set()
        return job().start(1, idempotency_key="k").id

    with transaction.atomic():
        first = job().start(1, idempotency_key="k")
        second = begin(start)
        going.wait(PATIENCE)
    assert second.result(PATIENCE) == first.id


# Many at once


def test_many_starts_come_back_in_order(desk: Desk) -> None:
    runs = job().start_many([1, Start(payload=2, labels={"a": "b"}), 3])
    assert [run.payload for run in runs] == [1, 2, 3]


def test_many_starts_are_all_done_or_none(desk: Desk, before: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        job().start_many([Start(payload=1, idempotency_key="k"), Start(payload=2), Start(payload=3, delay=-1)])
    assert rows() == before


def test_a_conflict_among_many_starts_leaves_none_of_them(desk: Desk) -> None:
    first = job().start(1, idempotency_key="k")
    with pytest.raises(IdempotencyConflict):
        job().start_many([Start(payload=5), Start(payload=2, idempotency_key="k")])
    assert [str(run.pk) for run in Run.objects.all()] == [first.id]


def test_one_key_twice_among_many_starts_is_one_run(desk: Desk) -> None:
    first, second = job().start_many([Start(payload=1, idempotency_key="k")] * 2)
    assert (first.id, Run.objects.count()) == (second.id, 1)


def test_no_starts_at_all_is_no_run(desk: Desk) -> None:
    assert (job().start_many([]), Run.objects.count()) == ([], 0)


# When


@pytest.mark.parametrize(
    "when",
    [
        {"delay": 60},
        {"delay": timedelta(minutes=1)},
        {"at": datetime(2024, 1, 1, 9, 1, tzinfo=UTC)},
        {"at": datetime(2024, 1, 1, 11, 1, tzinfo=timezone(timedelta(hours=2)))},
    ],
    ids=["seconds", "timedelta", "at", "at elsewhere"],
)
def test_a_run_for_later_is_queued_until_then(desk: Desk, when: dict[str, Any]) -> None:
    hand = desk.worker(job())
    run = job().start(1, **when)
    desk.advance(59)
    assert (run.status, hand.claim()) == ("queued", ())
    desk.advance(1)
    assert (run.status, len(hand.claim())) == ("running", 1)


@pytest.mark.parametrize(
    "when",
    [{}, {"delay": 0}, {"at": datetime(2020, 1, 1, tzinfo=UTC)}, {"at": datetime.min.replace(tzinfo=timezone(timedelta(hours=2)))}],
    ids=["none", "no delay", "past", "the first day of all"],
)
def test_a_run_that_is_due_begins_at_once(desk: Desk, when: dict[str, Any]) -> None:
    run = job().start(1, **when)
    assert (run.status, run.run.start_at, desk.kinds(run)[:2]) == ("running", desk.now, ["run.created", "run.started"])


@pytest.mark.parametrize("when", [{"delay": timedelta(days=3650)}, {"at": datetime(2024, 1, 1, 9, tzinfo=UTC) + timedelta(days=3650)}], ids=["delay", "at"])
def test_ten_years_is_the_furthest(desk: Desk, when: dict[str, Any]) -> None:
    run = job(deadline=timedelta(days=3650)).start(1, **when)
    assert run.run.deadline_at == desk.now + timedelta(days=7300)


@pytest.mark.parametrize(
    ("when", "field"),
    [
        ({"delay": -0.001}, "delay"),
        ({"delay": timedelta(days=3650, milliseconds=1)}, "delay"),
        ({"delay": float("inf")}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": 1e300}, "delay"),
        ({"delay": timedelta.max}, "delay"),
        ({"delay": "60"}, "delay"),
        ({"delay": True}, "delay"),
        ({"at": datetime(2024, 1, 2)}, "at"),  # noqa: DTZ001 - what is refused
        ({"at": datetime.max.replace(tzinfo=UTC)}, "at"),
        ({"at": datetime.max.replace(tzinfo=timezone(-timedelta(hours=12)))}, "at"),
        ({"at": "tomorrow"}, "at"),
        ({"at": datetime(2024, 1, 2, tzinfo=UTC), "delay": 1}, "at"),
    ],
    ids=str,
)
def test_a_time_out_of_range_is_refused_by_name(desk: Desk, when: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        job().start(1, **when)
    assert (refused.value.field, Run.objects.count()) == (field, 0)


def test_the_deadline_counts_from_when_the_run_was_due(desk: Desk) -> None:
    run = job(deadline=timedelta(hours=1)).start(1, delay=timedelta(hours=5))
    assert run.run.deadline_at == desk.now + timedelta(hours=6)


# Values


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"labels": {f"l{n}": "v" for n in range(33)}}, "labels"),
        ({"labels": {"": "v"}}, "labels"),
        ({"labels": {"a" * 129: "v"}}, "labels." + "a" * 129),
        ({"labels": {"a": "v" * 129}}, "labels.a"),
        ({"labels": {"a": 1}}, "labels.a"),
        ({"labels": {"a": None}}, "labels.a"),
        ({"labels": {1: "v"}}, "labels.1"),
        ({"labels": {"a": "\0"}}, "labels.a"),
        ({"labels": {"a": "\ud800"}}, "labels.a"),
        ({"labels": ["a"]}, "labels"),
        ({"labels": "abc"}, "labels"),
        ({"priority": 101}, "priority"),
        ({"priority": -101}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"priority": True}, "priority"),
        ({"idempotency_key": "k" * 256}, "idempotency_key"),
        ({"idempotency_key": "\0"}, "idempotency_key"),
        ({"idempotency_key": 7}, "idempotency_key"),
        ({"correlation_id": "c" * 256}, "correlation_id"),
        ({"correlation_id": "\ud800"}, "correlation_id"),
        ({"subject": "not a model"}, "subject"),
        ({"subject": User(username="unsaved")}, "subject"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_a_bad_value_is_refused_by_name_and_leaves_nothing(desk: Desk, before: dict[str, int], given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        job().start(1, **given)
    assert (refused.value.field, rows()) == (field, before)


@pytest.mark.parametrize(
    "payload", [{"a": float("nan")}, {"a": [float("inf")]}, {"a": "\0"}, {"\ud800": 1}, {"a": object()}], ids=["nan", "inf", "nul", "surrogate", "object"]
)
def test_a_payload_that_cannot_be_kept_is_refused_and_leaves_nothing(desk: Desk, before: dict[str, int], payload: Any) -> None:
    with pytest.raises(InvalidPayload, match=r"^payload"):
        job().start(payload, idempotency_key="k")
    assert rows() == before


@override_settings(**{DICT: {"MAX_PAYLOAD_BYTES": 2000}})
def test_a_payload_over_the_size_is_refused_and_leaves_nothing(desk: Desk, before: dict[str, int]) -> None:
    with pytest.raises(PayloadTooLarge):
        job().start("é" * 1000)
    assert rows() == before


def test_the_longest_values_are_kept_unchanged(desk: Desk) -> None:
    labels = {f"{n:0128}": "ü" * 128 for n in range(32)}
    run = job().start({"b": 1e22, "a": [1.10, "\u2028😀"]}, labels=labels, idempotency_key="😀" * 255, correlation_id=" c" * 127, priority=-100)
    stored = run.run
    assert (run.labels, dict(RunLabel.objects.values_list("name", "value"))) == (labels, labels)
    assert (stored.idempotency_key, stored.correlation_id, stored.priority) == ("😀" * 255, " c" * 127, -100)
    assert list(run.payload.items()) == [("b", 1e22), ("a", [1.10, "\u2028😀"])]


def test_a_subject_links_runs_to_a_model_instance_newest_first(desk: Desk) -> None:
    ann, bob = User.objects.create(username="ann"), User.objects.create(username="bob")
    first, second = job().start(1, subject=ann), job().start(2, subject=ann)
    job().start(3, subject=bob)
    assert [run.id for run in runs_of(ann)] == [second.id, first.id]


def test_runs_of_what_is_no_saved_instance_is_refused(desk: Desk) -> None:
    with pytest.raises(InvalidArgument):
        runs_of(User(username="unsaved"))


# Keys of waits


def waiting(key: Any, **options: Any) -> Any:
    """One wait."""
    return Workflow("waiting", steps=[Step("wait", wait=Wait("event", key=key, **options))])


@pytest.mark.parametrize(
    ("key", "kept"),
    [
        ("A-1", "A-1"),
        (7, "7"),
        (UUID(int=7), str(UUID(int=7))),
        (lambda run: run.labels["order"], "A-1"),
        (lambda run: run.payload["n"], "5"),
        (lambda run: run.workflow, "waiting"),
        (lambda run: run.correlation_id, "c"),
    ],
    ids=["text", "int", "uuid", "label", "payload", "workflow", "correlation"],
)
def test_a_key_is_computed_at_the_start_and_kept_as_text(desk: Desk, key: Any, kept: str) -> None:
    run = waiting(key).start({"n": 5}, labels={"order": "A-1"}, correlation_id="c")
    assert [each.key for each in run.waiting_for] == [kept]


def test_a_callable_key_of_a_step_that_opens_later_is_computed_at_the_start(desk: Desk) -> None:
    calls: list[str] = []

    def called(run: RunView) -> str:
        calls.append(run.id)
        return "k"

    later: Any = Workflow("later", steps=[Step("first", run=body), Step("wait", after=["first"], wait=Wait("event", key=called))])
    registry.add(later)
    run = later.start(1)
    assert (calls, desk.step(run, "wait").wait_key) == ([run.id], "k")
    desk.worker(later).work_off()
    assert ([each.key for each in run.waiting_for], len(calls)) == (["k"], 1)


@pytest.mark.parametrize(
    "key", [lambda run: run.labels["absent"], lambda run: None, lambda run: 1.5, lambda run: True], ids=["raises", "None", "float", "bool"]
)
def test_a_key_that_cannot_be_computed_refuses_the_start_by_name(desk: Desk, before: dict[str, int], key: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"workflow waiting, step wait: the key could not be computed"):
        waiting(key).start(1)
    assert rows() == before


def test_a_computed_key_that_is_too_long_refuses_the_start_by_name(desk: Desk, before: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match=r"workflow waiting, step wait"):
        waiting(lambda run: "k" * 256).start(1)
    assert rows() == before


def test_a_callable_key_whose_code_this_process_does_not_hold_refuses_the_start(desk: Desk) -> None:
    registry.add(code := waiting(lambda run: "k"))
    desk.worker(code)
    registry.swap()
    with pytest.raises(InvalidArgument, match="a callable key stays on the server; use key_expr"):
        start_run("waiting", 1)


# What is started


def test_a_start_by_name_uses_the_code_of_this_process(desk: Desk) -> None:
    registry.add(job())
    assert Run.objects.get(pk=start_run("job", 1).id).version == job().version


def test_a_start_by_name_uses_the_newest_stored_definition_where_there_is_no_code(desk: Desk) -> None:
    desk.worker(job())
    desk.worker(newest := job(timeout=7))
    assert Run.objects.get(pk=start_run("job", 1).id).version == newest.version


def test_a_start_by_an_unknown_name_says_so(desk: Desk) -> None:
    with pytest.raises(UnknownWorkflow, match='"nothing" is stored for app "default"'):
        start_run("nothing", 1)


def test_definitions_belong_to_an_app(desk: Desk) -> None:
    desk.worker(job(), app="dev-ann")
    with pytest.raises(UnknownWorkflow):
        start_run("job", 1)
    assert Run.objects.get(pk=start_run("job", 1, app="dev-ann").id).app.name == "dev-ann"


def test_a_start_in_no_app_is_one_in_the_default_app(desk: Desk) -> None:
    assert job().start(1).run.app.name == "default"


@override_settings(**{DICT: {"DEFAULT_APP": "dev-bob"}})
def test_the_default_app_is_a_setting(desk: Desk) -> None:
    assert job().start(1).run.app.name == "dev-bob"


def test_an_unknown_app_is_refused_by_name(desk: Desk) -> None:
    with pytest.raises(UnknownApp, match='"absent"'):
        job().start(1, app="absent")


def test_a_developers_app_is_made_by_whoever_asks_first(transactional_db: None, desk: Desk) -> None:
    together([lambda: job().start(1, app="dev-ann")] * 4)
    assert (App.objects.filter(name="dev-ann").count(), Run.objects.filter(app__name="dev-ann").count()) == (1, 4)


def test_a_definition_is_stored_once_however_many_start_it_first(transactional_db: None, desk: Desk) -> None:
    together([lambda: job().start(1)] * 6)
    assert (Definition.objects.filter(workflow="job").count(), Revision.objects.filter(workflow="job").count(), Run.objects.count()) == (1, 1, 6)


def test_registrations_and_starts_at_one_moment_store_a_definition_once(transactional_db: None, desk: Desk) -> None:
    workflows = [chain("a", "b"), job(), job("other")]
    together([lambda: desk.worker(*workflows), lambda: desk.worker(*reversed(workflows)), *[partial(each.start, 1) for each in workflows]])
    assert (Definition.objects.filter(workflow__in=["chain", "job", "other"]).count(), Run.objects.count()) == (3, 3)
    assert len(desk.worker(*workflows).claim()) == 3


def test_a_run_is_pinned_to_the_definition_it_started_with(desk: Desk) -> None:
    first = job(timeout=5).start(1)
    second = job(timeout=6).start(1)
    hand = desk.worker(job(timeout=6))
    assert {lease.run_id: lease.timeout_ms for lease in hand.claim()} == {first.id: 5000, second.id: 6000}
