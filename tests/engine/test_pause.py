"""Pause: a run offers nothing; what is at work finishes, timers, events and the deadline go on, cancel works."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ezgh_workflows_django import Retry, Sleep, Step, Wait, Workflow
from ezgh_workflows_django.errors import RunTerminal, UnknownRun
from ezgh_workflows_django.models import Run, Trail
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body, chain, job
from tests.invariant_guard import broken


def needy() -> Any:
    """A step that asks for a person when it fails, beside one that does not."""
    steps = [Step("work", run=body, retry=Retry(1, exhausted="pause")), Step("other", run=body), Step("then", after=["work", "other"], run=body)]
    return Workflow("needy", steps=steps)


def test_a_paused_run_offers_nothing(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start(1)
    run.pause("look into it")
    assert (run.phase, run.run.reason, hand.claim()) == ("paused", "look into it", ())


def test_a_resumed_run_offers_what_it_had_ready(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start(1)
    run.pause()
    run.resume()
    assert (run.status, run.run.reason, len(hand.claim())) == ("running", "", 1)


def test_a_run_keeps_its_place_in_the_queue_over_a_pause(desk: Desk) -> None:
    run = job().start(1, priority=3)
    before = desk.step(run, "work").claim_order
    run.pause()
    desk.advance(10)
    run.resume()
    assert (desk.step(run, "work").claim_order, before) == (before, desk.now - timedelta(seconds=10, minutes=3))


def test_bodies_at_work_finish_and_what_they_make_ready_waits(desk: Desk) -> None:
    workflow = chain("one", "two")
    hand = desk.worker(workflow)
    run = workflow.start(1)
    lease = hand.take()
    run.pause()
    assert (hand.beat(lease).refused, hand.complete(lease, 2).refused, hand.claim()) == (None, None, ())
    run.resume()
    assert hand.take().input == 2


def test_a_lease_that_was_offered_before_the_pause_may_still_start(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start(1)
    [lease] = hand.claim()
    run.pause()
    assert (hand.start(lease).refused, hand.complete(lease).refused, run.phase) == (None, None, "succeeded")


def test_a_failed_attempt_in_a_paused_run_is_retried_only_after_the_resume(desk: Desk) -> None:
    workflow: Any = Workflow("again", steps=[Step("work", run=body, retry=Retry(2, initial=1))])
    hand = desk.worker(workflow)
    run = workflow.start(1)
    lease = hand.take()
    run.pause()
    hand.fail(lease)
    desk.advance(60)
    assert (run.phase, hand.claim()) == ("paused", ())
    run.resume()
    assert hand.take().attempt == 2


def test_a_reclaimed_step_of_a_paused_run_is_offered_only_after_the_resume(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start(1)
    hand.take()
    run.pause()
    desk.advance(31)
    desk.advance(31)
    assert (desk.step(run, "work").status, hand.claim()) == ("ready", ())
    run.resume()
    assert len(hand.claim()) == 1


def test_timers_and_events_are_taken_in_and_what_they_make_ready_waits(desk: Desk) -> None:
    steps = [Step("nap", sleep=Sleep(60)), Step("wait", wait=Wait("paid")), Step("then", after=["nap", "wait"], run=body)]
    workflow: Any = Workflow("rest", steps=steps)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    run.pause()
    run.signal("paid", 2)
    desk.advance(60)
    assert ([step.status for step in run.steps], run.phase, hand.claim()) == (["succeeded", "succeeded", "ready"], "paused", ())
    run.resume()
    assert hand.take().input == {"nap": 1, "wait": 2}


def test_a_paused_run_whose_last_step_ends_is_over(desk: Desk) -> None:
    run: Any = Workflow("nap", steps=[Step("nap", sleep=Sleep(60))]).start(1)
    run.pause()
    desk.advance(60)
    assert (run.phase, run.run.paused_from) == ("succeeded", None)


def test_the_deadline_goes_on_while_a_run_is_paused(desk: Desk) -> None:
    workflow = job(deadline=60)
    run = workflow.start(1)
    run.pause()
    desk.advance(60)
    assert (run.phase, run.failure.class_, broken()) == ("timed_out", "deadline", [])


def test_a_queued_run_that_is_paused_begins_only_after_the_resume(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start(1, delay=60)
    run.pause()
    desk.advance(120)
    assert (run.phase, hand.claim()) == ("paused", ())
    run.resume()
    assert run.status == "queued"
    desk.tick()
    assert (run.status, len(hand.claim())) == ("running", 1)


def test_a_queued_run_that_is_paused_and_resumed_in_time_keeps_its_time(desk: Desk) -> None:
    run = job().start(1, delay=60)
    run.pause()
    desk.advance(10)
    run.resume()
    desk.advance(49)
    assert run.status == "queued"
    desk.advance(1)
    assert run.status == "running"


def test_the_deadline_of_a_paused_queued_run_goes_on(desk: Desk) -> None:
    run = job(deadline=60).start(1, delay=60)
    run.pause()
    desk.advance(119)
    assert run.phase == "paused"
    desk.advance(1)
    assert run.phase == "timed_out"


def test_a_failure_in_a_paused_run_is_compensated_after_the_resume(desk: Desk) -> None:
    workflow: Any = Workflow("compensated", steps=[Step("work", run=body)], on_failure=body)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    lease = hand.take()
    run.pause()
    hand.fail(lease)
    assert (run.phase, hand.claim()) == ("paused", ())
    run.resume()
    assert (run.phase, hand.take().step) == ("failing", "on_failure")


def test_a_compensating_run_can_be_paused_and_resumed(desk: Desk) -> None:
    workflow: Any = Workflow("compensated", steps=[Step("work", run=body)], on_failure=body)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    hand.fail(hand.take())
    run.pause()
    assert hand.claim() == ()
    run.resume()
    hand.work_off()
    assert run.phase == "failed"


def test_pausing_a_paused_run_and_resuming_a_running_one_change_nothing(desk: Desk) -> None:
    run = job().start(1)
    run.pause("first")
    run.pause("second")
    kinds = desk.kinds(run)
    assert (run.run.reason, kinds.count("run.paused")) == ("first", 1)
    run.resume()
    run.resume()
    assert (desk.kinds(run).count("run.resumed"), run.status) == (1, "running")


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_run_that_is_over_can_be_neither_paused_nor_resumed(desk: Desk, verb: str) -> None:
    run = job().start(1)
    run.cancel()
    with pytest.raises(RunTerminal, match=f"{run.id} is cancelled"):
        getattr(run, verb)()
    assert run.phase == "cancelled"


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_no_run_can_be_neither_paused_nor_resumed(desk: Desk, verb: str) -> None:
    run = job().start(1)
    Run.objects.filter(pk=run.id).delete()
    with pytest.raises(UnknownRun, match=run.id):
        getattr(run, verb)()


def test_who_paused_and_resumed_is_in_the_trail(desk: Desk) -> None:
    run = job().start(1)
    run.pause("why", actor=("user", "ann"))
    run.resume(actor=("key", "bot"))
    assert list(Trail.objects.order_by("pk").filter(target=run.id).values_list("action", "actor")) == [("PauseRun", "ann"), ("ResumeRun", "bot")]


# Needing attention


def test_a_step_that_asks_for_a_person_pauses_its_run_with_the_step_failed(desk: Desk) -> None:
    hand = desk.worker(needy())
    run = needy().start(1)
    work, other = sorted(hand.claim(), key=lambda lease: lease.step, reverse=True)
    hand.start(work)
    hand.fail(work, "error", "boom")
    assert (run.phase, run.run.attention, desk.step(run, "work").status, run.failure.message) == ("paused", True, "failed", "boom")
    hand.start(other)
    assert (hand.complete(other).refused, run.phase, broken()) == (None, "paused", [])


def test_resuming_a_run_that_needs_attention_tries_its_failed_step_again(desk: Desk) -> None:
    hand = desk.worker(needy())
    run = needy().start(1)
    leases = {lease.step: lease for lease in hand.claim()}
    hand.complete(leases["other"])
    hand.start(leases["work"])
    hand.fail(leases["work"])
    run.resume()
    again = hand.take()
    assert (again.step, again.attempt, run.status, run.run.attention, run.failure) == ("work", 2, "running", False, None)
    hand.complete(again)
    hand.work_off()
    assert (run.phase, broken()) == ("succeeded", [])


def paused_and_needy(desk: Desk) -> tuple[Hand, Any]:
    """A run that somebody had paused before one of its steps asked for a person."""
    hand = desk.worker(needy())
    run = needy().start(1)
    leases = {lease.step: lease for lease in hand.claim()}
    hand.start(leases["work"])
    hand.fail(leases["other"], "returned")
    run.pause("look into it")
    hand.fail(leases["work"])
    assert (run.phase, run.run.attention) == ("paused", True)
    return hand, run


@pytest.mark.parametrize(("verb", "arguments"), [("resolve", ("work", 1, "by hand")), ("retry", ())])
def test_somebodys_pause_outlasts_a_step_that_asks_for_a_person_and_what_is_done_about_that(desk: Desk, verb: str, arguments: tuple[Any, ...]) -> None:
    hand, run = paused_and_needy(desk)
    getattr(run, verb)(*arguments)
    assert (run.phase, run.run.attention, run.run.reason, hand.claim(), broken()) == ("paused", False, "look into it", (), [])
    run.resume()
    assert (run.status, run.run.reason) == ("running", "")
    hand.work_off()
    assert (run.phase, broken()) == ("succeeded", [])


def test_resuming_a_paused_run_that_needs_attention_undoes_the_pause_and_tries_its_failed_step_again(desk: Desk) -> None:
    hand, run = paused_and_needy(desk)
    run.resume(actor=("user", "ann"))
    assert (run.status, sorted(lease.step for lease in hand.claim()), broken()) == ("running", ["other", "work"], [])
    assert desk.kinds(run)[-2:] == ["run.resumed", "run.retried"]
    assert list(Trail.objects.order_by("pk").filter(target=run.id).values_list("action", flat=True)) == ["ResumeRun", "RetryRun"]


def test_somebodys_pause_outlasts_two_steps_that_ask_for_a_person(desk: Desk) -> None:
    pausing = Retry(1, exhausted="pause")
    workflow: Any = Workflow("two", steps=[Step("a", run=body, retry=pausing), Step("b", run=body, retry=pausing)])
    hand = desk.worker(workflow)
    run = workflow.start(1)
    leases = hand.claim()
    run.pause()
    for lease in leases:
        hand.start(lease)
        hand.fail(lease)
    run.retry()
    assert (run.phase, hand.claim(), broken()) == ("paused", (), [])


def test_somebodys_pause_of_a_run_that_needs_attention_outlasts_its_deadline(desk: Desk) -> None:
    workflow: Any = Workflow("needy", steps=[Step("work", run=body, retry=Retry(1, exhausted="pause"))], deadline=600, on_failure=body)
    hand = desk.worker(workflow)
    run = workflow.start("payload")
    lease = hand.take()
    run.pause()
    hand.fail(lease)
    desk.advance(600)
    assert (run.phase, hand.claim()) == ("paused", ())
    run.resume()
    assert (run.phase, hand.take().step, broken()) == ("failing", "on_failure", [])


def test_a_sibling_that_was_ready_is_offered_again_after_the_resume(desk: Desk) -> None:
    hand = desk.worker(needy())
    run = needy().start(1)
    leases = {lease.step: lease for lease in hand.claim()}
    hand.fail(leases["other"], "returned")
    hand.start(leases["work"])
    hand.fail(leases["work"])
    assert hand.claim() == ()
    run.resume()
    assert sorted(lease.step for lease in hand.claim()) == ["other", "work"]


def test_the_deadline_of_a_run_that_needs_attention_goes_on_and_is_compensated(desk: Desk) -> None:
    workflow: Any = Workflow("needy", steps=[Step("work", run=body, retry=Retry(1, exhausted="pause"))], deadline=600, on_failure=body)
    hand = desk.worker(workflow)
    run = workflow.start("payload")
    hand.fail(hand.take())
    desk.advance(600)
    assert run.phase == "failing"
    compensation: Any = hand.take()
    assert (compensation.step, compensation.input, compensation.failure.class_) == ("on_failure", "payload", "deadline")
    hand.complete(compensation)
    assert (run.phase, broken()) == ("timed_out", [])


def test_a_step_whose_input_cannot_be_made_asks_for_a_person_and_keeps_no_sibling_from_opening(desk: Desk) -> None:
    steps = [Step("work", run=body, input="${payload.absent}", retry=Retry(1, exhausted="pause")), Step("other", run=body)]
    workflow: Any = Workflow("needy", steps=steps)
    hand = desk.worker(workflow)
    run = workflow.start({})
    assert (run.phase, [step.status for step in run.steps]) == ("paused", ["failed", "ready"])
    run.resolve("work", 1, "by hand")
    hand.work_off()
    assert (run.phase, broken()) == ("succeeded", [])
