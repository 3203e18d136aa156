"""What a new episode begins anew, and what it must not touch: compensation's own journal, and the moment bodies are told before their first result."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ezgh_workflows_django import Context, Retry, Step, Workflow, workflow
from ezgh_workflows_django.engine import replaying
from ezgh_workflows_django.models import Checkpoint, Receipt, Run
from ezgh_workflows_django.testing import Lab
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body, brought, end_of, event, job, sleep
from tests.invariant_guard import broken

PAUSING = Retry(1, exhausted="pause")


def compensating(desk: Desk) -> tuple[Hand, Any, Any]:
    """A run that has failed, and whose compensation is in hand."""
    made = job(on_failure=body)
    hand = desk.worker(made)
    run = made.start(1)
    hand.fail(hand.take(), "permanent", "first")
    return hand, run, hand.take()


def failed_again(hand: Hand, run: Any) -> Any:
    """The lease of the compensation of its next episode."""
    run.retry()
    hand.fail(hand.take(), "permanent", "again")
    return hand.take()


# Compensation


def test_the_compensation_of_a_second_episode_has_nothing_stored(desk: Desk) -> None:
    hand, run, lease = compensating(desk)
    hand.checkpoint(lease, "refund", {"refunded": 1})
    hand.complete(lease)
    again = failed_again(hand, run)
    assert (again.step, again.checkpoints, again.attempt, again.token) == ("on_failure", (), 2, 2)
    assert not hand.checkpoint(again, "refund", {"refunded": 2}).repeated
    hand.complete(again)
    assert (run.phase, Checkpoint.objects.count(), broken()) == ("failed", 1, [])


def test_a_compensation_that_was_stopped_while_it_was_parked_begins_anew(desk: Desk) -> None:
    hand, run, lease = compensating(desk)
    hand.park(lease, event("approved"), sleep("nap", 60))
    run.signal("approved", 1)
    assert Receipt.objects.count() == 1
    run.cancel()
    again = failed_again(hand, run)
    assert (again.checkpoints, again.attempt, Receipt.objects.count()) == ((), 2, 0)
    assert hand.park(again, event("approved")).step == "ready"
    assert (brought(hand.take(), "approved").output, broken()) == (1, [])


def test_a_compensation_that_was_about_to_go_on_begins_anew_in_an_attempt_of_its_own(desk: Desk) -> None:
    hand, run, lease = compensating(desk)
    hand.park(lease, sleep("nap", 0))
    run.cancel()
    again = failed_again(hand, run)
    assert (again.attempt, again.checkpoints, broken()) == (2, (), [])


def test_the_children_of_a_second_compensation_are_others(desk: Desk, commits: Any) -> None:
    hand, run, lease = compensating(desk)
    kids = desk.worker(job("kid"), name="kids")
    old = hand.children(lease, "undo", "kid", [1]).runs
    kids.work_off()
    hand.complete(lease)
    again = failed_again(hand, run)
    new = hand.children(again, "undo", "kid", [1]).runs
    assert set(new).isdisjoint(old)
    hand.park(again, end_of("undo"))
    commits(kids.work_off)
    assert [each["run"] for each in brought(hand.take(), "undo").output] == list(new)


# The moment before the first result


def pair() -> Any:
    """`work` asks for a person where it fails, `beside` goes on."""
    return Workflow("pair", [Step("work", run=body, retry=PAUSING), Step("beside", run=body)])


def resumed_beside_a_parked_step(desk: Desk) -> tuple[Hand, Any, Any]:
    """`work` was resumed five minutes after `beside` parked; the worker, the run, and the moment it began for `beside`."""
    made = pair()
    hand = desk.worker(made)
    run = made.start(1)
    leases = {lease.step: lease for lease in hand.claim()}
    began = leases["beside"].run_started_at
    for lease in leases.values():
        hand.start(lease)
    hand.park(leases["beside"], event("go"))
    hand.fail(leases["work"])
    desk.advance(minutes=5)
    run.resume()
    return hand, run, began


def test_a_parked_sibling_keeps_its_moment_over_the_resume_of_a_run_that_needed_attention(desk: Desk) -> None:
    hand, run, began = resumed_beside_a_parked_step(desk)
    run.signal("go")
    again = {lease.step: lease for lease in hand.claim()}
    assert (again["beside"].run_started_at, again["work"].run_started_at) == (began, desk.now)


def test_a_sibling_keeps_its_moment_over_a_step_that_is_ended_by_hand_and_over_a_second_episode(desk: Desk) -> None:
    hand, run, began = resumed_beside_a_parked_step(desk)
    hand.fail(hand.take())
    desk.advance(minutes=5)
    run.resolve("work", 1, "by hand")
    run.signal("go")
    assert hand.take().run_started_at == began


def test_a_body_that_begins_anew_is_told_when_its_new_episode_began(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start(1)
    hand.fail(hand.take(), "permanent")
    desk.advance(hours=1)
    run.retry()
    desk.advance(seconds=1)
    assert hand.take().run_started_at == Run.objects.get(pk=run.id).started_at == desk.now - timedelta(seconds=1)


def test_the_journal_of_a_step_that_succeeded_in_an_earlier_episode_replays_to_the_same_end(desk: Desk) -> None:
    made = Workflow("later", [Step("early", run=body), Step("work", run=body, after=["early"])])
    hand = desk.worker(made)
    run = made.start(1)
    lease = hand.take()
    began = lease.run_started_at
    hand.checkpoint(lease, "kept", 1)
    hand.complete(lease)
    hand.fail(hand.take(), "permanent")
    desk.advance(hours=1)
    run.retry()
    assert replaying.recording(desk.run(run), desk.step(run, "early")).lease.run_started_at == began


def test_the_compensation_of_a_run_that_never_began_is_told_one_moment_in_every_pass(desk: Desk) -> None:
    made = job(on_failure=body, deadline=60)
    hand = desk.worker(made)
    run = made.start(1, delay=60)
    run.pause()
    desk.advance(120)
    run.resume()
    lease = hand.take()
    hand.park(lease, sleep("nap", 60))
    desk.advance(60)
    assert lease.run_started_at is not None
    assert hand.take().run_started_at == lease.run_started_at


def test_compensation_runs_its_inner_steps_in_each_episode(db: None) -> None:
    refunds: list[str] = []

    def undo(ctx: Context) -> None:
        ctx.step("refund", lambda: refunds.append(f"{ctx.failure.message}"))  # type: ignore[union-attr]

    @workflow("order", on_failure=undo)
    def order(ctx: Context) -> None:
        raise ValueError("no stock")

    with Lab(workflows=[order]) as lab:
        run = order.start()
        lab.run_until_idle()
        run.retry()
        lab.run_until_idle()
        assert (run.status, len(refunds)) == ("failed", 2)
        assert lab.invariants() == []
