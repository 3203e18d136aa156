"""Durable functions in a lab: the real worker's passage on the real engine, on a clock the test moves; sync and async forms alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group

from ezgh_workflows_django import ChildFailed, Context, Permanent, Retry, Step, Wait, WaitTimeout, Workflow, emit, workflow
from ezgh_workflows_django.models import Checkpoint, Lease, Run
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.testing import Lab, assert_journal, run_body

pytestmark = pytest.mark.django_db

done: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_done_yet() -> None:
    done.clear()


@dataclass
class Order:
    """What is ordered."""

    id: str
    items: list[str]


@dataclass
class Receipt:
    """What came of it."""

    reserved: list[str]
    amount: int
    first: str
    child: int
    told: list[str]


def reserve(item: str) -> str:
    done.append(f"reserve {item}")
    return f"reserved {item}"


def charge(order: str) -> int:
    done.append(f"charge {order}")
    return 40


@workflow("bill")
def bill(ctx: Context, amount: int) -> int:
    return int(ctx.step("double", lambda: amount * 2))


@workflow("tell")
def tell(user: str) -> str:
    return f"told {user}"


@workflow("purchase")
def purchase(ctx: Context, order: Order) -> Receipt:
    reserved = ctx.map("reserve", reserve, order.items, concurrency=4)
    amount = ctx.step("charge", charge, order.id)
    ctx.sleep("cool-off", timedelta(hours=1))
    ctx.wait_for_event("approval", event="approved", key=order.id, timeout=timedelta(days=3))
    first = ctx.wait_any("outcome", paid=Wait("paid", key=order.id), stopped=Wait("stopped", key=order.id))
    child = ctx.run_workflow("bill", bill, amount)
    return Receipt(reserved, amount, first.name, child, ctx.run_batch("tell", tell, ["ada", "bob"]))


@workflow("purchase_async")
async def purchase_async(ctx: Context, order: Order) -> Receipt:
    reserved = await ctx.map("reserve", reserve, order.items, concurrency=4)
    amount = await ctx.step("charge", charge, order.id)
    await ctx.sleep("cool-off", timedelta(hours=1))
    await ctx.wait_for_event("approval", event="approved", key=order.id, timeout=timedelta(days=3))
    first = await ctx.wait_any("outcome", paid=Wait("paid", key=order.id), stopped=Wait("stopped", key=order.id))
    child = await ctx.run_workflow("bill", bill, amount)
    return Receipt(reserved, amount, first.name, child, await ctx.run_batch("tell", tell, ["ada", "bob"]))


@pytest.mark.parametrize("function", [purchase, purchase_async], ids=["sync", "async"])
def test_a_function_goes_through_every_word_once(function: Workflow) -> None:
    with Lab(workflows=[function, bill, tell]) as lab:
        run = function.start(Order("A-1", ["tea", "pot"]))
        lab.run_until_idle()
        assert run.phase == "sleeping"
        assert not Lease.objects.filter(live_step__isnull=False).exists()
        lab.advance(hours=1)
        assert [str(each) for each in run.waiting_for] == ["waiting for approved, key A-1, until Thu 10:00"]
        emit("approved", key="A-1")
        lab.run_until_idle()
        emit("paid", key="A-1", payload={"amount": 40})
        lab.run_until_idle()
        assert run.result() == {"reserved": ["reserved tea", "reserved pot"], "amount": 40, "first": "paid", "child": 80, "told": ["told ada", "told bob"]}
        assert done == ["reserve tea", "reserve pot", "charge A-1"]
        assert StepRow.objects.get(run_id=run.id).attempts == 1
        assert lab.invariants() == []


@pytest.mark.parametrize("function", [purchase, purchase_async], ids=["sync", "async"])
def test_a_worker_that_dies_between_passes_changes_nothing(function: Workflow) -> None:
    with Lab(workflows=[function, bill, tell]) as lab:
        run = function.start(Order("A-1", ["tea"]))
        lab.run_until_idle()
        [worker] = lab.workers
        lab.kill(worker)
        lab.worker("second")
        emit("approved", key="A-1")
        emit("stopped", key="A-1")
        lab.advance(hours=1)
        assert run.result()["first"] == "stopped"
        assert done == ["reserve tea", "charge A-1"]
        assert lab.invariants() == []


def test_an_inner_step_rests_between_its_tries_and_holds_no_worker() -> None:
    def flaky() -> str:
        done.append(lab.now)
        if len(done) < 3:
            raise RuntimeError("not yet")
        return "at last"

    @workflow("patient")
    def patient(ctx: Context) -> Any:
        return ctx.step("flaky", flaky, retry=Retry(max_attempts=3, initial=60, factor=2, jitter=0))

    with Lab(workflows=[patient]) as lab:
        run = patient.start()
        lab.run_until_idle()
        assert not Lease.objects.filter(live_step__isnull=False).exists()
        lab.advance(minutes=3)
        assert run.result() == "at last"
        assert [(moment - done[0]).total_seconds() for moment in done] == [0, 60, 180]
        assert StepRow.objects.get(run_id=run.id).attempts == 1


def test_an_uncaught_inner_failure_fails_the_run_with_its_own_class() -> None:
    def refuse() -> None:
        raise Permanent("the card is expired")

    @workflow("payer")
    def payer(ctx: Context) -> None:
        ctx.step("charge", refuse, retry=Retry(max_attempts=5))

    with Lab(workflows=[payer]) as lab:
        run = payer.start()
        lab.run_until_idle()
        assert run.failure is not None
        assert (run.failure.class_, run.failure.message) == ("permanent", "step charge: the card is expired")


def test_a_timeout_is_remembered_and_no_null_payload_is_one() -> None:
    """Case B09."""

    @workflow("ticker")
    def ticker(ctx: Context) -> list[Any]:
        seen: list[Any] = []
        for name in ("tick-1", "tick-2", "tick-3"):
            try:
                seen.append(ctx.wait_for_event(name, event="tick", timeout=1))
            except WaitTimeout:
                seen.append("timeout")
        return seen

    with Lab(workflows=[ticker]) as lab:
        run = ticker.start()
        lab.advance(seconds=1)
        lab.kill(lab.workers[0])
        lab.worker("second")
        lab.advance(seconds=1)
        run.signal("tick", None)
        lab.run_until_idle()
        assert run.result() == ["timeout", "timeout", None]
        assert list(Checkpoint.objects.order_by("pos").values_list("timed_out", flat=True)) == [True, True, False]


@pytest.mark.long
def test_a_loop_receives_each_of_100_events_once_and_in_order() -> None:
    @workflow("listener")
    def listener(ctx: Context) -> list[int]:
        return [ctx.wait_for_event(f"msg-{number}", event="msg") for number in range(100)]

    with Lab(workflows=[listener]) as lab:
        run = listener.start()
        for number in range(100):
            run.signal("msg", number)
            if number % 7 == 0:
                lab.run_until_idle()
        lab.run_until_idle()
        assert run.result() == list(range(100))


def test_a_child_that_fails_is_raised_and_a_cancel_reaches_children() -> None:
    @workflow("child")
    def child(ctx: Context, fails: bool) -> None:
        if fails:
            raise Permanent("no")
        ctx.wait_for_event("never", event="never")

    @workflow("parent")
    def parent(ctx: Context) -> str:
        try:
            ctx.run_workflow("first", child, True)
        except ChildFailed as error:
            ctx.patch_state(why=str(error.failure and error.failure["message"]))
        ctx.run_workflow("second", child, False)
        return "not reached"

    with Lab(workflows=[parent, child]) as lab:
        run = parent.start()
        lab.run_until_idle()
        assert (run.phase, run.state) == ("waiting", {"why": "no"})
        assert [str(each) for each in run.waiting_for] == ["waiting for 1 of 1 child runs"]
        run.cancel("enough")
        lab.run_until_idle()
        assert sorted(Run.objects.filter(parent__pk=run.id).values_list("status", flat=True)) == ["cancelled", "failed"]
        assert lab.invariants() == []


def test_a_transactional_step_writes_with_its_result_or_not_at_all() -> None:
    def write(name: str) -> int:
        Group.objects.create(name=name)
        if name == "bad":
            raise Permanent("rolled back")
        return int(Group.objects.count())

    @workflow("writer")
    def writer(ctx: Context) -> int:
        first = ctx.step("good", write, "good", transactional=True)
        try:
            ctx.step("bad", write, "bad", transactional=True)
        except Permanent:
            raise
        except Exception as error:  # noqa: BLE001 - what a failed step raises
            ctx.patch_state(failed=str(error))
        ctx.sleep("nap", 60)
        return int(first)

    with Lab(workflows=[writer]) as lab:
        run = writer.start()
        lab.advance(seconds=60)
        assert run.result() == 1
        assert [group.name for group in Group.objects.all()] == ["good"]
        assert run.state == {"failed": "step bad: rolled back"}


def test_a_transactional_body_of_a_graph_is_reported_with_its_rows() -> None:
    def body() -> str:
        Group.objects.create(name="made")
        return "ok"

    graph = Workflow("graph", steps=[Step("write", run=body, transactional=True)])
    with Lab(workflows=[graph]) as lab:
        run = graph.start()
        lab.run_until_idle()
        assert run.result() == "ok"
        assert Group.objects.get().name == "made"
        assert_journal(run, ["run.created", "run.started", "step.started", ("step.succeeded", "write"), "run.succeeded"])


def test_a_graph_step_may_be_a_durable_function_and_a_function_may_run_a_graph() -> None:
    graph = Workflow("inner", steps=[Step("a", run=lambda: 1), Step("b", run=lambda: 2), Step("sum", after=["a", "b"], run=lambda both: both["a"] + both["b"])])

    def body(ctx: Context, number: int) -> int:
        ctx.sleep("nap", 60)
        return int(number + ctx.run_workflow("inner", graph))

    outer = Workflow("outer", steps=[Step("first", run=lambda: 10), Step("second", after=["first"], run=body)])
    with Lab(workflows=[outer, graph]) as lab:
        run = outer.start()
        lab.advance(seconds=60)
        assert run.result() == 13
        assert lab.invariants() == []


def test_suspending_passes_through_except_exception_and_finally() -> None:
    """Case B46."""

    @workflow("careful")
    def careful(ctx: Context) -> str:
        try:
            ctx.sleep("nap", 60)
        except Exception:  # noqa: BLE001 - it must not hold a suspension
            return "swallowed"
        finally:
            done.append("finally")
        return "slept"

    with Lab(workflows=[careful]) as lab:
        run = careful.start()
        lab.advance(seconds=60)
        assert run.result() == "slept"
        assert done == ["finally", "finally"]


def _bare(ctx: Context) -> str:
    try:
        ctx.sleep("nap", 60)
    except BaseException:  # noqa: BLE001 - what must be reported
        return "swallowed"
    return "slept"


def _asks_in_finally(ctx: Context) -> None:
    try:
        ctx.sleep("nap", 60)
    finally:
        ctx.step("clean", lambda: done.append("clean"))


async def _gathers(ctx: Context) -> Any:
    return await asyncio.gather(ctx.sleep("nap", 60), ctx.step("a", lambda: 1), return_exceptions=True)


@pytest.mark.parametrize("body", [_bare, _asks_in_finally, _gathers])
def test_code_that_swallows_a_suspension_fails_by_name(body: Callable[..., Any]) -> None:
    """Case B46."""
    function = workflow("greedy")(body)
    with Lab(workflows=[function]) as lab:
        run = function.start()
        lab.run_until_idle()
        assert run.failure is not None
        assert run.failure.class_ == "permanent"
        assert "`nap`" in run.failure.message
        assert "clean" not in done
        assert lab.invariants() == []


@pytest.mark.parametrize("function", [purchase, purchase_async], ids=["sync", "async"])
def test_one_body_alone_runs_its_inner_steps_and_says_what_it_parks_on(function: Workflow) -> None:
    with pytest.raises(AssertionError, match=r"parks on sleep `cool-off`.*use a Lab"):
        run_body(function.steps[0], {"id": "A-1", "items": ["tea"]}, workflow=function.name)
    assert done == ["reserve tea", "charge A-1"]
    assert run_body(bill.steps[0], 3) == 6


def test_an_inner_steps_time_is_up_by_the_labs_clock() -> None:
    def works(ctx: Context) -> str:
        try:
            ctx.cancelled.wait(60)
        except Exception:  # noqa: BLE001 - what the test is about
            done.append("held up")
        done.append("went on")
        return "late"

    def timely(ctx: Context) -> str:
        ctx.cancelled.wait(20)
        return "in time"

    @workflow("bounded")
    def bounded(ctx: Context) -> Any:
        return [ctx.step("timely", timely, ctx, timeout=30), ctx.step("late", works, ctx, timeout=30)]

    @workflow("bounded_async")
    async def bounded_async(ctx: Context) -> Any:
        return [await ctx.step("timely", timely, ctx, timeout=30), await ctx.step("late", works, ctx, timeout=30)]

    with Lab(workflows=[bounded, bounded_async]) as lab:
        runs = [bounded.start(), bounded_async.start()]
        lab.run_until_blocked()
        lab.advance(seconds=49)
        assert [run.phase for run in runs] == ["running", "running"]
        lab.advance(seconds=1)
        assert [(run.failure.class_, run.failure.message) for run in runs] == [("timeout", "step late: it timed out after 30s")] * 2
        assert [checkpoint.output for checkpoint in Checkpoint.objects.filter(name="timely")] == ['"in time"'] * 2
        assert done == []
        assert lab.invariants() == []


@pytest.mark.parametrize("transactional", [False, True])
def test_an_inner_steps_time_is_up_by_a_real_clock_too(*, transactional: bool) -> None:
    def slow() -> str:
        Group.objects.create(name="too late")
        time.sleep(0.05)
        return "late"

    @workflow("slow")
    def function(ctx: Context) -> Any:
        return ctx.step("slow", slow, timeout=0.01, transactional=transactional)

    with Lab(workflows=[function]) as lab:
        run = function.start()
        lab.run_until_idle()
        assert run.failure.class_ == "timeout"
        assert Group.objects.exists() != transactional


def test_only_a_retry_of_its_own_calls_an_inner_step_again_until_the_run_is_retried() -> None:
    def flaky() -> str:
        done.append("called")
        if len(done) < 2:
            raise RuntimeError("not yet")
        return "at last"

    @workflow("replaying", retry=Retry(max_attempts=3, initial=1, jitter=0))
    def replaying(ctx: Context) -> Any:
        return ctx.step("flaky", flaky)

    with Lab(workflows=[replaying]) as lab:
        run = replaying.start()
        lab.run_until_idle()
        lab.advance(minutes=1)
        assert (run.failure.message, run.failure.attempts, done) == ("step flaky: not yet", 3, ["called"])
        run.retry()
        lab.run_until_idle()
        assert (run.result(), done) == ("at last", ["called"] * 2)
