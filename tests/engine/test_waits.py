"""Waits, events and signals: what a wait takes, how far an event reaches, and that none is lost or taken twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction
from django.test import override_settings

from ezgh_workflows_django import Start, Step, Wait, Workflow, emit
from ezgh_workflows_django.conf import DICT
from ezgh_workflows_django.engine import catalog, events, maintenance, starts, tenancy
from ezgh_workflows_django.engine.handles import RunHandle
from ezgh_workflows_django.errors import InvalidArgument, InvalidPayload, RunTerminal, UnknownApp, UnknownRun
from ezgh_workflows_django.models import App, Event, Project, Receipt, Run
from ezgh_workflows_django.models import Wait as WaitRow
from tests.engine.conftest import Desk
from tests.engine.graphs import body, job, undone

Committing = Callable[..., AbstractContextManager[list[Callable[[], Any]]]]


def waiting(name: str = "waiting", **options: Any) -> Any:
    """One wait for `paid`."""
    return Workflow(name, steps=[Step("wait", wait=Wait("paid", **options))])


def two_waits(**options: Any) -> Any:
    """Two waits for `paid`, the second after the first."""
    return Workflow("two", steps=[Step("one", wait=Wait("paid", **options)), Step("two", after=["one"], wait=Wait("paid", **options))])


@pytest.fixture
def committed(desk: Desk, django_capture_on_commit_callbacks: Committing) -> Callable[..., Any]:
    """A call whose transaction commits: what is to be done afterwards is done."""

    def commit(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with django_capture_on_commit_callbacks(execute=True):
            return call(*args, **kwargs)

    return commit


# Before, at and after


def test_an_event_resumes_the_wait_that_is_open_for_it(desk: Desk, committed: Callable[..., Any]) -> None:
    run = waiting(key="A-1").start(1)
    committed(emit, "paid", key="A-1", payload={"amount": 40})
    assert (run.phase, run.result(), list(run.waiting_for)) == ("succeeded", {"amount": 40}, [])


def test_an_event_that_comes_before_its_wait_opens_is_not_lost(desk: Desk) -> None:
    """B08 (a)."""
    workflow: Any = Workflow("later", steps=[Step("work", run=body), Step("wait", after=["work"], wait=Wait("paid", key="A-1"))])
    hand = desk.worker(workflow)
    run = workflow.start(1)
    desk.advance(5)
    emit("paid", key="A-1", payload=2)
    desk.advance(5)
    hand.work_off()
    assert (run.phase, run.result()) == ("succeeded", 2)


def test_an_event_and_a_wait_that_did_not_see_each_other_meet_at_the_next_tick(desk: Desk) -> None:
    """B08 (b): the wait's look found nothing, and the event's receivers were none, before either was committed."""
    run = waiting(key="A-1").start(1)
    emitted = emit("paid", key="A-1", payload=2)
    Event.objects.filter(pk=emitted.id).update(due_at=None)
    assert run.phase == "waiting"
    desk.tick()
    assert (run.phase, run.result()) == ("succeeded", 2)


def test_an_event_at_the_moment_of_the_timeout_loses_and_is_kept(desk: Desk, committed: Callable[..., Any]) -> None:
    """B08 (c): what is due first wins; the event stays for a later wait."""
    run = waiting(timeout=60).start(1)
    desk.now += timedelta(seconds=60)
    emitted = committed(emit, "paid", payload=2)
    desk.tick()
    assert (run.phase, run.failure.class_) == ("failed", "timeout")
    assert (Event.objects.filter(pk=emitted.id).exists(), Receipt.objects.count()) == (True, 0)


def test_an_event_before_the_timeout_wins_however_late_both_are_seen(desk: Desk) -> None:
    """B08 (c)."""
    run = waiting(timeout=60).start(1)
    desk.now += timedelta(seconds=59)
    emitted = emit("paid", payload=2)
    Event.objects.filter(pk=emitted.id).update(due_at=None)
    desk.advance(60)
    assert (run.phase, run.result()) == ("succeeded", 2)


def test_an_emit_that_is_rolled_back_resumes_nothing(desk: Desk, django_capture_on_commit_callbacks: Committing) -> None:
    run = waiting().start(1)
    with django_capture_on_commit_callbacks(execute=True):
        undone(lambda: emit("paid"))
    desk.tick()
    assert (run.phase, Event.objects.count()) == ("waiting", 0)


def test_an_emit_whose_process_died_after_its_commit_is_carried_on_by_maintenance(desk: Desk) -> None:
    run = waiting().start(1)
    emit("paid", payload=2)
    assert run.phase == "waiting"
    desk.tick()
    assert (run.phase, Event.objects.get().due_at) == ("succeeded", None)


# How far back


def test_an_event_from_before_the_run_is_not_taken(desk: Desk) -> None:
    emit("paid")
    desk.advance(1)
    assert waiting().start(1).phase == "waiting"


def test_an_event_from_before_the_run_is_taken_within_the_lookback(desk: Desk) -> None:
    emit("paid", payload=1)
    desk.advance(1)
    emit("paid", payload=2)
    desk.advance(60)
    assert waiting(lookback=timedelta(seconds=60)).start(0).result() == 2


def test_a_closed_lookback_takes_nothing_from_before_the_wait_opened(desk: Desk, committed: Callable[..., Any]) -> None:
    workflow: Any = Workflow("later", steps=[Step("work", run=body), Step("wait", after=["work"], wait=Wait("paid", lookback=None))])
    hand = desk.worker(workflow)
    run = workflow.start(1)
    emit("paid", payload="early")
    desk.advance(5)
    hand.work_off()
    desk.tick()
    assert run.phase == "waiting"
    desk.advance(5)
    committed(emit, "paid", payload="late")
    assert run.result() == "late"


def test_the_lookback_of_a_delayed_run_counts_from_its_creation(desk: Desk) -> None:
    run = waiting().start(1, delay=60)
    desk.advance(30)
    emit("paid", payload=2)
    desk.advance(30)
    assert (run.phase, run.result()) == ("succeeded", 2)


# How far it reaches


def test_an_event_reaches_every_wait_with_its_name_and_key_and_no_other(desk: Desk, committed: Callable[..., Any]) -> None:
    """B56: the rule is all of them, in the project."""
    met = [waiting("a", key="k").start(1), waiting("a", key="k").start(2), waiting("b", key="k").start(3)]
    unmet = [waiting("a", key="other").start(1), Workflow("c", steps=[Step("wait", wait=Wait("unpaid", key="k"))]).start(1)]
    committed(emit, "paid", key="k")
    assert ([run.phase for run in met], [run.phase for run in unmet]) == (["succeeded"] * 3, ["waiting"] * 2)


def test_an_event_reaches_the_other_apps_of_its_project(desk: Desk, committed: Callable[..., Any]) -> None:
    tenancy.create_app("second")
    run = waiting().start(1, app="second")
    committed(emit, "paid", payload=2)
    assert run.phase == "succeeded"


def test_a_project_wide_event_does_not_reach_a_developers_app(desk: Desk, committed: Callable[..., Any]) -> None:
    run = waiting().start(1, app="dev-ann")
    committed(emit, "paid")
    desk.advance(1)
    assert run.phase == "waiting"


def test_a_developers_event_reaches_only_his_own_app(desk: Desk, committed: Callable[..., Any]) -> None:
    own, others = waiting().start(1, app="dev-ann"), [waiting().start(1, app="dev-bob"), waiting().start(1)]
    committed(emit, "paid", app="dev-ann")
    desk.advance(1)
    assert (own.phase, [run.phase for run in others]) == ("succeeded", ["waiting", "waiting"])


def test_an_event_from_before_in_a_developers_app_stays_there(desk: Desk) -> None:
    emit("paid", payload=2, app="dev-ann")
    phases = [waiting(lookback=60).start(1, app=app).phase for app in ("dev-ann", "dev-bob", None)]
    assert phases == ["succeeded", "waiting", "waiting"]


def test_an_event_does_not_reach_another_project(desk: Desk, committed: Callable[..., Any]) -> None:
    """B56: never across tenants."""
    default = tenancy.create_app("default")
    other = Project.objects.create(organization=default.project.organization, slug="other", name="Other", created_at=desk.now)
    app = App.objects.create(project=other, name="theirs", created_at=desk.now)
    definition = catalog.store(app, waiting(lookback=60).to_spec(), desk.now)
    run = starts.start(definition, Start(payload=1))
    committed(emit, "paid")
    desk.advance(1)
    late = starts.start(definition, Start(payload=2))
    assert [RunHandle(each.pk).phase for each in (run, late)] == ["waiting", "waiting"]


@pytest.mark.parametrize("key", ["a-1", "A-1 ", " A-1", "A–1", "Ａ-1", "A-1\t"], ids=ascii)
def test_keys_and_names_are_compared_exactly(desk: Desk, committed: Callable[..., Any], key: str) -> None:
    run = waiting(key="A-1").start(1)
    committed(emit, "paid", key=key)
    committed(emit, "Paid", key="A-1")
    committed(emit, "paid ", key="A-1")
    desk.tick()
    assert run.phase == "waiting"


def test_a_wait_without_a_key_is_met_only_by_an_event_without_one(desk: Desk, committed: Callable[..., Any]) -> None:
    run = waiting().start(1)
    committed(emit, "paid", key="k")
    assert run.phase == "waiting"
    committed(emit, "paid")
    assert run.phase == "succeeded"


# Once, and in order


def test_the_oldest_untaken_event_comes_first(desk: Desk) -> None:
    workflow = two_waits(lookback=60)
    emit("paid", payload=1)
    desk.now += timedelta(seconds=1)
    emit("paid", payload=2)
    run = workflow.start(0)
    assert [step.output for step in run.steps] == ["1", "2"]


def test_events_of_one_moment_are_taken_in_the_order_they_were_stored(desk: Desk) -> None:
    emit("paid", payload=1)
    emit("paid", payload=2)
    assert [step.output for step in two_waits(lookback=60).start(0).steps] == ["1", "2"]


def test_within_a_run_an_event_is_taken_by_one_wait(desk: Desk, committed: Callable[..., Any]) -> None:
    workflow: Any = Workflow("two", steps=[Step("one", wait=Wait("paid")), Step("two", wait=Wait("paid"))])
    run = workflow.start(1)
    committed(emit, "paid", payload=1)
    desk.advance(1)
    assert ([step.status for step in run.steps], Receipt.objects.count()) == (["succeeded", "waiting"], 1)


def test_a_run_that_has_taken_an_event_is_no_receiver_of_it_any_more(desk: Desk, committed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits that can't take an event must not stand in the way of those that can."""
    monkeypatch.setattr(events, "BATCH", 2)
    twice: Any = Workflow("twice", steps=[Step("one", wait=Wait("paid")), Step("two", wait=Wait("paid"))])
    runs = [twice.start(place) for place in range(6)]
    committed(emit, "paid")
    desk.advance(1)
    desk.advance(1)
    assert [run.steps[0].status for run in runs] == ["succeeded"] * 6
    assert Event.objects.get().due_at is None


def test_a_wait_that_is_past_its_timeout_is_no_receiver(desk: Desk, committed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BATCH", 1)
    waiting(timeout=10).start(1)
    patient = waiting().start(2)
    desk.now += timedelta(seconds=10)
    committed(emit, "paid")
    assert patient.phase == "succeeded"


def test_an_event_id_seen_before_changes_nothing(desk: Desk, committed: Callable[..., Any]) -> None:
    first = emit("paid", payload=1, event_id="e-1")
    again = committed(emit, "paid", payload=2, event_id="e-1")
    assert (again.id, first.known, again.known) == (first.id, False, True)
    assert (Event.objects.count(), Event.objects.get().payload) == (1, "1")


def test_an_event_id_seen_before_leaves_the_callers_transaction_usable(desk: Desk) -> None:
    with transaction.atomic():
        emit("paid", event_id="e-1")
        emit("paid", event_id="e-1")
        emit("paid", event_id="E-1")
    assert Event.objects.count() == 2


def test_event_ids_belong_to_a_project_or_a_developers_app(desk: Desk) -> None:
    receipts = [emit("paid", event_id="e-1", app=app) for app in (None, "dev-ann", "dev-bob")]
    assert [receipt.known for receipt in receipts] == [False, False, False]


# Time-outs


def test_a_wait_that_times_out_fails_and_says_what_it_waited_for(desk: Desk) -> None:
    run = waiting(key="A-1", timeout=60).start(1)
    desk.advance(59)
    assert run.phase == "waiting"
    desk.advance(1)
    failure = run.failure
    assert (run.phase, failure.class_, failure.timed_out, failure.step) == ("failed", "timeout", True, "wait")
    assert failure.message == 'no "paid" with key "A-1" came until 2024-01-01 09:01:00 UTC'


def test_a_wait_that_may_go_on_without_its_event_succeeds_with_null(desk: Desk) -> None:
    workflow: Any = Workflow("on", steps=[Step("wait", wait=Wait("paid", timeout=60, on_timeout="continue")), Step("work", after=["wait"], run=body)])
    hand = desk.worker(workflow)
    run = workflow.start(1)
    desk.advance(60)
    lease = hand.take()
    assert (desk.step(run, "wait").status, lease.input, lease.steps) == ("succeeded", None, {"wait": None})


def test_a_wait_that_timed_out_takes_nothing_any_more(desk: Desk, committed: Callable[..., Any]) -> None:
    run = waiting(timeout=60, on_timeout="continue").start(1)
    desk.advance(60)
    committed(emit, "paid", payload=2)
    assert (run.result(), WaitRow.objects.count()) == (None, 0)


def test_a_wait_without_timeout_waits_for_ever(desk: Desk) -> None:
    run = waiting().start(1)
    desk.tick()
    assert (run.phase, desk.step(run, "wait").timer_at, run.waiting_for[0].until) == ("waiting", None, None)
    desk.advance(days=3650)
    assert run.phase == "waiting"


# Signals


def test_a_signal_is_delivered_to_the_wait_that_is_open(desk: Desk) -> None:
    run = waiting(key="whatever").start(1)
    assert (run.signal("paid", {"n": 1}), run.phase, run.result()) == ("delivered", "succeeded", {"n": 1})


def test_a_signal_is_buffered_until_the_run_waits_for_it(desk: Desk) -> None:
    """B08 (a)."""
    workflow: Any = Workflow("later", steps=[Step("work", run=body), Step("wait", after=["work"], wait=Wait("paid", lookback=None))])
    hand = desk.worker(workflow)
    run = workflow.start(1)
    assert run.signal("paid", 2) == "buffered"
    desk.advance(days=29)
    hand.work_off()
    assert run.result() == 2


def test_a_signal_reaches_only_its_run(desk: Desk) -> None:
    """B56: by run id it hits only that one."""
    runs = [waiting().start(place) for place in range(3)]
    runs[1].signal("paid")
    desk.advance(1)
    assert [run.phase for run in runs] == ["waiting", "succeeded", "waiting"]


def test_a_signal_of_another_name_is_buffered(desk: Desk) -> None:
    run = waiting().start(1)
    assert (run.signal("unpaid"), run.phase) == ("buffered", "waiting")


def test_signals_are_taken_in_the_order_they_came(desk: Desk) -> None:
    workflow: Any = Workflow(
        "later", steps=[Step("work", run=body), *[Step(name, after=[parent], wait=Wait("paid")) for parent, name in (("work", "one"), ("one", "two"))]]
    )
    hand = desk.worker(workflow)
    run = workflow.start(1)
    run.signal("paid", "first")
    run.signal("paid", "second")
    hand.work_off()
    assert [step.output for step in run.steps[1:]] == ['"first"', '"second"']


def test_a_signal_to_a_run_that_is_over_is_refused(desk: Desk) -> None:
    run = job().start(1)
    run.cancel()
    with pytest.raises(RunTerminal, match=run.id):
        run.signal("paid")
    assert Event.objects.count() == 0


def test_a_signal_to_a_run_that_is_queued_or_paused_is_taken_in(desk: Desk) -> None:
    queued, paused = waiting().start(1, delay=60), waiting().start(2)
    paused.pause()
    assert (queued.signal("paid", "a"), paused.signal("paid", "b")) == ("buffered", "delivered")
    desk.advance(60)
    assert queued.result() == "a"


def test_a_signal_after_the_timeout_was_due_is_buffered_and_says_so(desk: Desk) -> None:
    """B08 (c)."""
    workflow: Any = Workflow("two", steps=[Step("one", wait=Wait("paid", timeout=60, on_timeout="continue")), Step("two", after=["one"], wait=Wait("unpaid"))])
    run = workflow.start(1)
    desk.now += timedelta(seconds=61)
    assert run.signal("paid", 2) == "buffered"
    desk.tick()
    assert [step.status for step in run.steps] == ["succeeded", "waiting"]
    assert run.steps[0].output == "null"


def test_a_signal_is_kept_as_long_as_its_run(desk: Desk) -> None:
    run: Any = Workflow("idle", steps=[Step("wait", wait=Wait("never"))]).start(1)
    run.signal("paid")
    desk.advance(days=300)
    assert Event.objects.filter(run=run.id).count() == 1


def test_a_signal_to_no_run_says_so(desk: Desk) -> None:
    run = job().start(1)
    Run.objects.filter(pk=run.id).delete()
    with pytest.raises(UnknownRun, match=run.id):
        run.signal("paid")


# Many receivers


def test_the_first_hundred_receivers_are_resumed_by_the_caller_and_the_rest_by_maintenance(desk: Desk, committed: Callable[..., Any]) -> None:
    waiting().start_many(range(130))
    emitted = committed(emit, "paid")
    by_caller = Run.objects.filter(status="succeeded").count()
    desk.advance(1)
    desk.advance(1)
    assert (by_caller, Run.objects.filter(status="succeeded").count(), Event.objects.get(pk=emitted.id).due_at) == (100, 130, None)


def test_receivers_that_were_resumed_before_a_crash_are_not_resumed_again(desk: Desk) -> None:
    runs = waiting().start_many(range(3))
    emitted = emit("paid")
    events.deliver(emitted.id, 2)
    desk.tick()
    assert [run.phase for run in runs] == ["succeeded"] * 3
    assert (Receipt.objects.count(), [desk.kinds(run).count("step.succeeded") for run in runs]) == (3, [1, 1, 1])


def test_a_receiver_that_cannot_be_resumed_stops_only_itself(desk: Desk) -> None:
    bad, good = waiting().start_many(range(2))
    desk.tick()
    WaitRow.objects.filter(run=bad.id).update(run=uuid4())
    emitted = emit("paid")
    desk.tick()
    assert (good.phase, bad.phase) == ("succeeded", "waiting")
    WaitRow.objects.update(run=bad.id)
    desk.advance(minutes=5)
    assert (bad.phase, Event.objects.get(pk=emitted.id).due_at) == ("succeeded", None)


@pytest.mark.plants_faults  # waits whose runs are gone
def test_more_receivers_than_a_batch_that_cannot_be_resumed_keep_an_event_from_nobody(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BATCH", 2)
    *bad, good = waiting().start_many(range(6))
    desk.tick()
    WaitRow.objects.filter(run__in=[run.id for run in bad]).update(run=uuid4())
    emitted = emit("paid")
    desk.tick()
    assert (good.phase, Event.objects.get(pk=emitted.id).due_at) == ("succeeded", None)


def test_an_event_is_over_once_its_last_receiver_has_it(desk: Desk, committed: Callable[..., Any]) -> None:
    waiting().start_many(range(3))
    committed(emit, "paid")
    assert (WaitRow.objects.count(), maintenance.tick().handled) == (0, 0)


# Keys that are computed when the wait opens


def test_a_key_expression_sees_the_run_and_its_steps(desk: Desk, committed: Callable[..., Any]) -> None:
    expression = 'steps.reserve.id + "/" + labels.order + "/" + string(payload.n)'
    workflow: Any = Workflow("expr", steps=[Step("reserve", run=body), Step("wait", after=["reserve"], wait=Wait("paid", key_expr=expression))])
    hand = desk.worker(workflow)
    run = workflow.start({"n": 7}, labels={"order": "A-1"})
    hand.complete(hand.take(), {"id": "r9"})
    committed(emit, "paid", key="r9/A-1/7")
    assert run.phase == "succeeded"


@pytest.mark.parametrize("expression", ["payload.absent", "payload.n", "payload.flag", "payload.long", "1 / payload.zero"])
def test_a_key_expression_that_makes_no_key_fails_its_step_for_good(desk: Desk, expression: str) -> None:
    run = waiting(key_expr=expression).start({"n": 1.5, "flag": True, "zero": 0, "long": "k" * 256})
    assert (run.phase, run.failure.class_, run.failure.step, WaitRow.objects.count()) == ("failed", "permanent", "wait", 0)


def test_a_key_expression_that_fails_late_fails_its_step_and_not_the_completion_before_it(desk: Desk) -> None:
    workflow: Any = Workflow("expr", steps=[Step("reserve", run=body), Step("wait", after=["reserve"], wait=Wait("paid", key_expr="steps.reserve.id"))])
    hand = desk.worker(workflow)
    run = workflow.start(1)
    answer = hand.complete(hand.take(), {})
    assert (answer.refused, desk.step(run, "reserve").status, desk.step(run, "wait").status) == (None, "succeeded", "failed")
    assert "steps.reserve.id" in run.failure.message


# What is refused


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "n" * 256}, "name"),
        ({"name": "a\0"}, "name"),
        ({"name": "paid", "key": "k" * 256}, "key"),
        ({"name": "paid", "key": "\ud800"}, "key"),
        ({"name": "paid", "event_id": "e" * 256}, "event_id"),
        ({"name": "paid", "event_id": ""}, "event_id"),
        ({"name": 5}, "name"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_a_bad_event_is_refused_by_name_and_not_stored(desk: Desk, event: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        emit(**event)
    assert (refused.value.field, Event.objects.count()) == (field, 0)


@override_settings(**{DICT: {"MAX_PAYLOAD_BYTES": 2000}})
@pytest.mark.parametrize("payload", ["a" * 2000, {"a": "\0"}, float("nan"), object()], ids=lambda value: ascii(value)[:20])
def test_an_event_whose_payload_cannot_be_kept_is_refused(desk: Desk, payload: Any) -> None:
    run = waiting().start(1)
    with pytest.raises(InvalidPayload, match=r"^payload"):
        emit("paid", payload=payload)
    with pytest.raises(InvalidPayload, match=r"^payload"):
        run.signal("paid", payload)
    assert (Event.objects.count(), run.phase) == (0, "waiting")


def test_an_event_for_an_unknown_app_is_refused(desk: Desk) -> None:
    with pytest.raises(UnknownApp, match='"absent"'):
        emit("paid", app="absent")


def test_a_wait_tells_what_it_waits_for(desk: Desk) -> None:
    run = waiting(key="A-1", timeout=timedelta(days=1)).start(1)
    assert [str(each) for each in run.waiting_for] == ["waiting for paid, key A-1, until Tue 09:00"]
