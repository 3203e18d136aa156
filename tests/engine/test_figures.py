"""What ended is summed minute by minute, once, whoever looks; the running totals only rise."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django import Retry
from ezgh_workflows_django.engine import figures, maintenance
from ezgh_workflows_django.engine.distributions import Sum
from ezgh_workflows_django.engine.figures import Key
from ezgh_workflows_django.models import App, Figure, FigureKind, RefusedCall, RunningTotal, Tick
from tests.engine.conftest import Desk
from tests.engine.graphs import job
from tests.engine.threads import together


@pytest.fixture
def counted(desk: Desk) -> Desk:
    """A desk whose minutes are summed from now on."""
    maintenance.ensure_row()
    Tick.objects.update(summed_until=desk.now)
    return desk


def totals() -> dict[Key, Sum]:
    """Those of the default app."""
    return figures.totals([App.objects.get(name="default").pk])


def counts(kind: FigureKind) -> dict[str, int]:
    """How many there were of a kind so far, by outcome."""
    return {key.outcome: total.count for key, total in totals().items() if key.kind == kind}


def run_one(desk: Desk, *, ready: float = 0, works: float = 0) -> None:
    """One run that waits for its claim, then works, so many seconds."""
    hand = desk.worker(job())
    job().start(1)
    desk.now += timedelta(seconds=ready)
    lease = hand.take()
    desk.now += timedelta(seconds=works)
    hand.complete(lease)


def test_a_minute_is_summed_once_it_is_over_and_has_settled(counted: Desk) -> None:
    run_one(counted, ready=3, works=7)
    counted.advance(79)
    assert not Figure.objects.exists()
    counted.advance(1)
    counted.advance(600)
    [app] = App.objects.all()
    begin = datetime(2024, 1, 1, 9, 0, tzinfo=counted.now.tzinfo)
    told = figures.per_minute([app.pk], begin, counted.now)
    assert list(told) == [begin]
    assert told[begin] == totals()
    assert {(key.kind, key.outcome): (each.count, each.total_ms) for key, each in told[begin].items()} == {
        ("run_ended", "succeeded"): (1, 0),
        ("run_time", ""): (1, 10_000),
        ("admission_wait", ""): (1, 0),
        ("lease_ended", "completed"): (1, 0),
        ("claim_wait", ""): (1, 3_000),
    }


def test_every_end_of_an_attempt_is_counted_and_a_wait_of_a_later_attempt_from_when_it_was_ready(counted: Desk) -> None:
    again = job(retry=Retry(max_attempts=3, initial=10, factor=1, jitter=0))
    hand = counted.worker(again)
    run = again.start(1)
    hand.fail(hand.take())
    counted.advance(12)
    lost = hand.take()
    counted.advance(31)
    counted.advance(31)
    hand.complete(lost)
    hand.complete(lost)
    hand.complete(hand.take())
    counted.advance(600)
    assert run.phase == "succeeded"
    assert counts(FigureKind.LEASE_ENDED) == {"failed": 1, "reclaimed": 1, "completed": 1}
    assert counts(FigureKind.REFUSED) == {"fenced": 1}
    assert [total.total_ms for key, total in totals().items() if key.kind == FigureKind.CLAIM_WAIT] == [2_000]
    assert not RefusedCall.objects.exists()


def test_a_retried_run_counts_at_each_of_its_ends_and_has_waited_to_begin_once(counted: Desk) -> None:
    hand = counted.worker(job())
    run = job().start(1)
    hand.fail(hand.take(), "permanent")
    counted.advance(90)
    run.retry()
    hand.complete(hand.take())
    counted.advance(90)
    assert counts(FigureKind.RUN_ENDED) == {"failed": 1, "succeeded": 1}
    assert counts(FigureKind.ADMISSION_WAIT) == {"": 1}


def test_of_the_processes_that_sum_a_minute_one_keeps_it(transactional_db: None, counted: Desk) -> None:
    run_one(counted)
    counted.now += timedelta(minutes=3)
    assert sorted(together([lambda: figures.run_once(counted.now, 100)] * 4)) == [0, 0, 0, 1]
    assert counts(FigureKind.RUN_ENDED) == {"succeeded": 1}


def test_empty_minutes_are_passed_over_at_once(counted: Desk) -> None:
    counted.now += timedelta(days=3)
    run_one(counted)
    counted.now += timedelta(days=2)
    with CaptureQueriesContext(connection) as captured:
        assert [figures.run_once(counted.now, 100), figures.run_once(counted.now, 100)] == [1, 0]
    assert len(captured) < 40
    assert Tick.objects.get().summed_until == counted.now - figures.MINUTE
    assert Figure.objects.get(kind=FigureKind.RUN_ENDED).minute == counted.now - timedelta(days=2)


def test_after_a_gap_the_minutes_are_worked_off_a_few_at_a_time(counted: Desk) -> None:
    for _ in range(12):
        run_one(counted)
        counted.now += timedelta(minutes=1)
    counted.now += timedelta(minutes=1)
    assert [figures.run_once(counted.now, 100) for _ in range(3)] == [10, 2, 0]
    assert counts(FigureKind.RUN_ENDED) == {"succeeded": 12}


def test_totals_outlast_the_figures_they_are_made_of(counted: Desk) -> None:
    run_one(counted)
    counted.advance(90)
    before = totals()
    counted.advance(days=8)
    assert not Figure.objects.exists()
    run_one(counted)
    counted.advance(90)
    assert {key: total.count for key, total in totals().items()} == {key: 2 * total.count for key, total in before.items()}
    assert RunningTotal.objects.count() == len(before)


def test_sums_make_no_tick_late_and_nobody_sleeps_until_they_are_due(counted: Desk) -> None:
    counted.advance(600)
    tick = Tick.objects.get()
    assert (tick.lateness_ms, tick.summed_until) == (0, counted.now - figures.MINUTE)
    assert counted.tick().next_due is None


@pytest.mark.parametrize(("ended", "number"), [(run_one, 9), (lambda desk: None, 9)], ids=["something ended", "nothing did"])
def test_the_sum_of_a_minute_is_a_fixed_number_of_statements(counted: Desk, ended: Callable[[Desk], None], number: int) -> None:
    run_one(counted)
    counted.advance(90)
    ended(counted)
    counted.now += timedelta(seconds=90)
    with CaptureQueriesContext(connection) as captured:
        figures.run_once(counted.now, 1)
    of_transactions = ("SAVEPOINT", "RELEASE SAVEPOINT", "BEGIN", "COMMIT")
    assert len([each for each in captured.captured_queries if not each["sql"].startswith(of_transactions)]) == number
