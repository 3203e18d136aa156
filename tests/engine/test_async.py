"""The async side of starts, events and handles: each twin does what its sync half does, and waiting for a result holds no thread."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import Error, connection, transaction

from ezgh_workflows_django import RunCancelled, Step, Wait, Workflow, aemit, aget_run, astart_run, get_run
from ezgh_workflows_django.definitions.run_handle import RunHandle as Told
from ezgh_workflows_django.definitions.starts import Start
from ezgh_workflows_django.engine.handles import RunHandle
from ezgh_workflows_django.errors import InvalidArgument, ResultTimeout, UnknownRun
from ezgh_workflows_django.models import Event, Run
from tests.engine.conftest import Desk
from tests.engine.graphs import job

QUESTIONS = ("run", "status", "phase", "waiting_for", "failure", "labels", "state", "payload", "usage", "cost", "steps", "journal")
VERBS = ("result", "signal", "cancel", "retry", "pause", "resume", "resolve", "migrate")

approval = Workflow("approval", steps=[Step("ask", wait=Wait("approved"))])


def answer(call: Callable[[], Awaitable[Any]]) -> Any:
    """What an async caller gets, its sync work done on this thread and so in this test's transaction."""

    async def go() -> Any:
        return await call()

    return async_to_sync(go)()


# --- the handle


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_has_a_twin_with_the_same_answer(desk: Desk, name: str) -> None:
    run: Any = job().start({"n": 1}, labels={"order": "A-1"})
    assert answer(getattr(run, f"a{name}")) == getattr(run, name)


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_has_a_twin_that_takes_the_same(name: str) -> None:
    ours, twins = (inspect.signature(getattr(RunHandle, each)).parameters for each in (name, f"a{name}"))
    assert {each: ours[each].default for each in ours} == {each: twins[each].default for each in twins}


def test_every_public_name_of_a_handle_is_among_these() -> None:
    public = {name for name in vars(RunHandle) if not name.startswith("_")}
    assert public == {*QUESTIONS, *VERBS, *(f"a{name}" for name in (*QUESTIONS, *VERBS))}


def test_a_type_checker_knows_them_all() -> None:
    told = {name for name in vars(Told) if not name.startswith("_")}
    assert told == {"id", *(name for name in vars(RunHandle) if not name.startswith("_"))}


def test_a_run_is_paused_with_its_reason_resumed_and_cancelled(desk: Desk) -> None:
    run: Any = job().start()
    answer(lambda: run.apause("the bank is down"))
    assert (run.status, run.run.reason) == ("paused", "the bank is down")
    answer(run.aresume)
    assert run.status == "running"
    assert answer(lambda: run.acancel("not wanted", actor=("user", "ann"))) == "cancelled"
    assert (run.run.reason, [entry.kind for entry in run.journal][-1]) == ("not wanted", "run.cancelled")


def test_a_run_is_signalled_resolved_and_retried(desk: Desk) -> None:
    run: Any = approval.start()
    assert answer(lambda: run.asignal("other", 1)) == "buffered"
    answer(lambda: run.aresolve("ask", {"yes": True}, "by phone"))
    assert (run.status, run.result()) == ("succeeded", {"yes": True})
    failed: Any = job().start()
    hand = desk.worker(job())
    hand.fail(hand.take())
    assert failed.status == "failed"
    answer(failed.aretry)
    assert failed.status == "running"


def test_a_run_is_migrated_after_a_dry_run(desk: Desk) -> None:
    run: Any = job().start()
    newer = job(revision="2")
    desk.worker(newer)
    assert answer(lambda: run.amigrate(newer.version, dry_run=True)) == run.migrate(newer.version, dry_run=True)
    answer(lambda: run.amigrate(newer.version))
    assert run.run.version == newer.version


# --- its result


def test_a_result_that_is_there_is_given(desk: Desk) -> None:
    run: Any = job().start()
    hand = desk.worker(job())
    hand.complete(hand.take(), {"n": 2})
    assert answer(run.aresult) == {"n": 2}
    cancelled: Any = job().start()
    cancelled.cancel("no")
    with pytest.raises(RunCancelled, match="no"):
        answer(cancelled.aresult)


def test_a_result_that_is_waited_for_in_a_transaction_is_refused_at_once(desk: Desk) -> None:
    run: Any = job().start()
    assert connection.in_atomic_block
    with pytest.raises(ResultTimeout, match="this transaction would wait for itself"):
        answer(run.aresult)


def test_so_it_is_in_the_transaction_that_started_the_run(transactional_db: None, desk: Desk) -> None:
    with transaction.atomic():
        run: Any = job().start()
        with pytest.raises(ResultTimeout, match="this transaction would wait for itself"):
            answer(run.aresult)


def test_a_result_that_does_not_come_in_time_is_said_so(transactional_db: None, desk: Desk) -> None:
    run: Any = job().start()
    with pytest.raises(ResultTimeout, match=r"is still running after 0\.0 s"):
        answer(lambda: run.aresult(0.0))
    with pytest.raises(ResultTimeout, match=r"is still running after 0\.01 s"):
        answer(lambda: run.aresult(0.01))


def test_waiting_holds_no_thread_of_the_loop(transactional_db: None, desk: Desk) -> None:
    """More wait than the loop has threads, and another caller of `to_thread` gets one all the same."""
    runs: list[Any] = list(job().start_many(range(3)))
    hand = desk.worker(job())

    async def go() -> list[Any]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        waits = [asyncio.create_task(run.aresult(60)) for run in runs]
        await asyncio.gather(*(run.astatus() for run in runs))  # each has had its first look
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 30) == "free"
        await sync_to_async(hand.work_off)()
        return await asyncio.gather(*waits)

    assert async_to_sync(go)() == [0, 1, 2]


@pytest.mark.skipif(connection.vendor == "sqlite", reason="a file has no server that could restart")
def test_a_connection_that_a_look_found_broken_is_replaced_at_the_next(transactional_db: None, desk: Desk) -> None:
    """What a restart of the database leaves behind: a connection on which nothing works any more."""
    run: Any = job().start()
    with connection.cursor() as cursor, suppress(Error):
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())" if connection.vendor == "postgresql" else "KILL CONNECTION_ID()")
    connection.errors_occurred = False  # as long as nobody has used it, nobody knows
    with pytest.raises(Error):
        answer(lambda: run.aresult(0.0))
    with pytest.raises(ResultTimeout):
        answer(lambda: run.aresult(0.0))


# --- starts, events, handles


def test_runs_are_started_by_workflow_and_by_name(desk: Desk) -> None:
    first: Any = answer(lambda: job().astart({"n": 1}, labels={"order": "A-1"}, idempotency_key="k"))
    again: Any = answer(lambda: astart_run("job", {"n": 1}, labels={"order": "A-1"}, idempotency_key="k"))
    assert first == again
    assert (first.payload, first.labels) == ({"n": 1}, {"order": "A-1"})


def test_many_are_started_in_order(desk: Desk) -> None:
    started = answer(lambda: job().astart_many([Start(payload=1), Start(payload=2)]))
    assert [run.payload for run in started] == [1, 2]


def test_an_event_reaches_its_wait(transactional_db: None, desk: Desk) -> None:
    run: Any = approval.start()
    receipt = answer(lambda: aemit("approved", payload={"by": "ann"}, event_id="e1"))
    assert (receipt.known, run.status, run.result()) == (False, "succeeded", {"by": "ann"})
    assert answer(lambda: aemit("approved", payload={"by": "ann"}, event_id="e1")).known


def test_a_run_is_found_or_not(desk: Desk) -> None:
    run: Any = job().start()
    assert answer(lambda: aget_run(run.id)) == get_run(run.id) == run
    for absent in ("nothing", "00000000-0000-7000-8000-000000000000"):
        with pytest.raises(UnknownRun):
            answer(partial(aget_run, absent))


@pytest.mark.parametrize("key", [None, 1.5, True, ["A-1"]], ids=str)
def test_an_event_whose_key_is_none_is_refused_by_name(desk: Desk, key: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^key: a key is a str, an int or a UUID, not "):
        answer(lambda: aemit("approved", key=key))
    assert not Event.objects.exists()


def test_a_start_in_a_transaction_that_rolls_back_leaves_nothing(transactional_db: None, desk: Desk) -> None:
    with transaction.atomic():
        answer(lambda: job().astart())
        transaction.set_rollback(True)
    assert not Run.objects.exists()
