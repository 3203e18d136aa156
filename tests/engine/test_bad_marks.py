"""Marks that no verb would have left: what is over is due no more, and counts for nothing. A long line is told of new limits bit by bit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ezgh_workflows_django import Concurrency, Sleep, Step, Workflow
from ezgh_workflows_django.engine import due_runs, maintenance, new_limits, reclaim, runs, timers
from ezgh_workflows_django.models import Definition, Lease, Run
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.protocol.messages import Lease as Offered
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body, job

pytestmark = pytest.mark.plants_faults


def three_at_work(desk: Desk) -> tuple[Hand, Any, dict[str, Offered]]:
    """A run whose three bodies are at work, and which compensates: its worker, the run, and the leases by step."""
    workflow: Any = Workflow("three", [Step(name, run=body) for name in "abc"], on_failure=body)
    hand = desk.worker(workflow)
    run = workflow.start(1)
    leases = {lease.step: lease for lease in hand.claim()}
    for lease in leases.values():
        hand.start(lease)
    return hand, run, leases


def test_a_lease_that_ended_by_itself_and_is_due_does_not_count_as_acknowledged(desk: Desk) -> None:
    """Else compensation would begin beside a body at work."""
    hand, run, leases = three_at_work(desk)
    hand.complete(leases["a"])
    hand.fail(leases["b"], "permanent")
    Lease.objects.filter(pk=leases["a"].id).update(due_at=desk.now)
    reclaim.run_once(desk.now, 10)
    compensation = desk.step(run, "on_failure")
    assert (compensation.status, compensation.blockers, desk.lease(leases["a"]).due_at) == ("blocked", 1, None)


def test_a_cut_lease_is_acknowledged_once(desk: Desk) -> None:
    hand, run, leases = three_at_work(desk)
    hand.fail(leases["b"], "permanent")
    Lease.objects.filter(pk=leases["a"].id).update(due_at=desk.now)
    reclaim.run_once(desk.now, 10)
    Lease.objects.filter(pk=leases["a"].id).update(due_at=desk.now)
    reclaim.run_once(desk.now, 10)
    assert (desk.step(run, "on_failure").blockers, desk.lease(leases["a"]).due_at) == (1, None)


def test_an_ended_run_is_not_due_for_ever(desk: Desk) -> None:
    run = job().start(1)
    run.cancel()
    Run.objects.update(due_at=desk.now)
    desk.tick()
    assert (desk.run(run).due_at, run.status) == (None, "cancelled")


def test_a_timer_of_a_step_that_is_over_is_not_due_for_ever(desk: Desk) -> None:
    run: Any = Workflow("nap", [Step("nap", sleep=Sleep(60))]).start(1)
    desk.advance(60)
    StepRow.objects.update(timer_at=desk.now)
    desk.tick()
    assert (desk.step(run, "nap").timer_at, run.status) == (None, "succeeded")


def test_what_ended_before_it_could_be_put_off_is_not_made_due_again(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start(1)
    lease = hand.take()
    hand.complete(lease)
    runs._postpone(run.run.pk, desk.now)
    due_runs._postpone(run.run.pk, desk.now)
    reclaim._postpone(Lease.objects.get().pk, desk.now)
    timers._postpone(run.run.pk, "work", desk.now)
    assert (desk.run(run).due_at, desk.lease(lease).due_at, desk.step(run, "work").timer_at) == (None, None, None)


@pytest.mark.parametrize("later", [False, True], ids=["due", "moved meanwhile"])
def test_only_what_is_still_due_is_put_off(desk: Desk, later: bool) -> None:
    run = job(deadline=60).start(1)
    desk.now += timedelta(seconds=60)
    was = desk.now + timedelta(hours=1) if later else desk.now
    Run.objects.update(due_at=was)
    runs._postpone(run.run.pk, desk.now)
    assert desk.run(run).due_at == (was if later else desk.now + timedelta(minutes=5))


def test_a_line_is_told_of_new_limits_in_as_many_calls_as_it_takes(desk: Desk) -> None:
    job("one", concurrency=Concurrency(1)).start_many(range(8))
    desk.tick()
    desk.worker(job("one", concurrency=Concurrency(8)))
    told = []
    for _ in range(4):
        new_limits.run_once(desk.now, 3)
        told.append(Run.objects.filter(slot_at__isnull=False).count())
    assert (told, Definition.objects.filter(due_at__isnull=False).count()) == ([3, 6, 7, 7], 0)
    desk.tick()
    assert set(Run.objects.values_list("status", flat=True)) == {"running"}


def test_what_was_looked_at_meanwhile_is_not_told_twice(desk: Desk) -> None:
    """The place in the line is kept between two calls, so a line that is looked at as it is told comes to its end."""
    job("one", concurrency=Concurrency(1)).start_many(range(8))
    desk.tick()
    desk.worker(job("one", concurrency=Concurrency(1), deadline=600))
    for _ in range(3):
        new_limits.run_once(desk.now, 3)
        Run.objects.update(slot_at=None)
    assert not Definition.objects.filter(due_at__isnull=False).exists()


def test_a_long_line_is_told_in_one_tick(desk: Desk) -> None:
    job("one", concurrency=Concurrency(1)).start_many(range(maintenance.BATCH + 20))
    desk.tick()
    desk.worker(job("one", concurrency=Concurrency(1000)))
    desk.tick()
    desk.tick()
    assert set(Run.objects.values_list("status", flat=True)) == {"running"}
