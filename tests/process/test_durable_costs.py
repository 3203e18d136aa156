"""What durable functions cost: statements for a batch of children, counted; and what a worker still has of a body that sleeps."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import CodeType
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django import Context, RunHandle, Worker, Workflow, workflow
from ezgh_workflows_django.engine import leases, outcomes
from ezgh_workflows_django.engine.direct import DirectEngine
from ezgh_workflows_django.models import Lease, Run, Step
from ezgh_workflows_django.protocol.durable import WaitFor
from ezgh_workflows_django.protocol.messages import Beat, Extension
from ezgh_workflows_django.protocol.outcomes import Outcome, Report
from ezgh_workflows_django.protocol.states import StepStatus, WaitKind
from ezgh_workflows_django.worker.transports.direct import DirectTransport
from tests.engine.conftest import Desk, Hand, desk

from .conftest import until

__all__ = ["desk"]

SLICE = 100


@workflow("one_of_many")
def one_of_many(number: int) -> int:
    return number


@workflow("of_many")
def of_many(ctx: Context, count: int) -> list[int]:
    came: list[int] = ctx.run_batch("children", one_of_many, range(count))
    return came


def lead_to_its_end(hand: Hand, run: RunHandle, count: int) -> None:
    """All that a worker calls for a batch of that many children: starts, a park, the children's passes, and the parent's last."""
    parent = hand.take()
    for first in range(0, count, SLICE):
        hand.children(parent, "children", one_of_many, range(first, first + SLICE), first=first)
    hand.park(parent, WaitFor(name="children", kind=WaitKind.CHILD))
    while Run.objects.filter(parent__pk=run.id, ended_at=None).exists():
        offered = hand.claim(SLICE)
        leases.started([lease.id for lease in offered])
        outcomes.report([Report(lease.id, Outcome.completed(lease.input)) for lease in offered])
    [back] = hand.claim(1)
    hand.start(back)
    hand.complete(back, [child["output"] for child in back.checkpoints[0].output])


def statements_per_child(desk: Desk, count: int) -> float:
    """How many statements a batch of that many costs, by child; and it comes in order."""
    hand = desk.worker(of_many, one_of_many)
    run = of_many.start(count)
    with CaptureQueriesContext(connection) as captured:
        lead_to_its_end(hand, run, count)
    assert run.result(timeout=0) == list(range(count))
    assert Run.objects.filter(parent__pk=run.id).count() == count
    return len(captured) / count


@pytest.mark.long
def test_a_child_costs_the_same_statements_among_two_thousand_as_among_two_hundred(transactional_db: None, desk: Desk) -> None:
    few, many = statements_per_child(desk, 200), statements_per_child(desk, 2_000)
    assert many <= few


@workflow("month")
def month(ctx: Context) -> None:
    ctx.sleep("month", timedelta(days=30))


@workflow("at_hand")
def at_hand(ctx: Context) -> None:
    ctx.cancelled.wait()


class Listening(DirectTransport):
    """Keeps the leases that were given, and those that heartbeats were sent for."""

    def __init__(self) -> None:
        super().__init__(DirectEngine())
        self.beaten: list[set[str]] = []

    def heartbeat(self, beats: Sequence[Beat]) -> Sequence[Extension]:
        self.beaten.append({beat.lease_id for beat in beats})
        return super().heartbeat(beats)


@contextmanager
def working(transport: DirectTransport, workflows: Sequence[Workflow]) -> Iterator[Worker]:
    """A worker of this process, in a thread; ended in order."""
    worker = Worker(transport, workflows=workflows, grace=5, name="here")
    thread = threading.Thread(target=worker.run_sync)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(30)
        assert not thread.is_alive()


def codes_at_work() -> Iterator[CodeType]:
    """The code of every function that some thread of this process is in."""
    for top in sys._current_frames().values():
        frame: Any = top
        while frame is not None:
            yield frame.f_code
            frame = frame.f_back


@pytest.mark.long
@pytest.mark.process
def test_of_a_body_that_sleeps_a_worker_has_no_lease_no_thread_and_no_heartbeat(transactional_db: None, settings: Any) -> None:
    settings.EZGH_WORKFLOWS = {"LEASE_TTL": 3, "RECOVERY_WINDOW": 2, "HEARTBEAT": 1}
    transport = Listening()
    with working(transport, [month, at_hand]) as worker:
        sleepers = [month.start() for _ in range(20)]
        until(lambda: Step.objects.filter(run__in=[run.id for run in sleepers], status=StepStatus.SLEEPING).count() == 20)
        awake = at_hand.start()
        until(lambda: at_hand.function.__code__ in codes_at_work())
        transport.beaten.clear()
        until(lambda: len(transport.beaten) >= 2)

        [live] = Lease.objects.filter(live_step__isnull=False)
        assert str(live.run_id) == awake.id
        assert worker.occupied == 1
        assert month.function.__code__ not in codes_at_work()
        assert set().union(*transport.beaten) == {str(live.pk)}
        awake.cancel()
        until(lambda: worker.occupied == 0)
