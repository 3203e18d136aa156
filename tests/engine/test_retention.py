"""Retention: what ended long ago goes with everything that hangs on it; what lives, or was just retried, stays (B95)."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import transaction
from django.db.models import ForeignKey

from ezgh_workflows_django import Sleep, Step, Wait, Workflow, emit
from ezgh_workflows_django.engine import episodes, retention
from ezgh_workflows_django.errors import UnknownRun
from ezgh_workflows_django.models import Checkpoint, Event, JournalEntry, Lease, Receipt, Run, RunLabel
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.models import Wait as WaitRow
from tests.engine.conftest import Desk
from tests.engine.graphs import body, job, why
from tests.engine.threads import PATIENCE, begin, together

HANGING = (Run, StepRow, Lease, JournalEntry, WaitRow, Receipt, RunLabel, Checkpoint)
NOTHING = timedelta(0)


def full() -> Any:
    """A run that leaves rows of every kind."""
    return Workflow("full", steps=[Step("wait", wait=Wait("paid")), Step("work", after=["wait"], run=body)])


def ended(desk: Desk, **options: Any) -> Any:
    """A run that is over."""
    hand = desk.worker(job())
    run = job().start(1, **options)
    hand.work_off()
    return run


def prune(desk: Desk, keep: timedelta = NOTHING) -> int:
    """One batch."""
    return retention.prune(desk.now, 100, keep)


def test_a_run_is_kept_for_its_retention_and_not_longer(desk: Desk) -> None:
    run = ended(desk)
    desk.advance(days=30, milliseconds=-1)
    assert run.phase == "succeeded"
    desk.advance(milliseconds=1)
    with pytest.raises(UnknownRun):
        run.phase  # noqa: B018 - asking is the test


def test_the_retention_is_a_setting(desk: Desk, settings: Any) -> None:
    settings.EZGH_WORKFLOWS = {"RETENTION": 60}
    ended(desk)
    desk.advance(60)
    assert Run.objects.count() == 0


def test_whatever_points_at_a_run_is_known_to_hang_on_it() -> None:
    """B95: a table that comes later is in this test by itself."""
    fields = [field for model in apps.get_models() for field in model._meta.get_fields() if isinstance(field, ForeignKey)]
    assert {field.model for field in fields if field.related_model is Run} - {Run} == set(retention.HANGING_ON_RUNS)


def test_all_rows_of_a_run_go_with_it(desk: Desk) -> None:
    """B95: no debris."""
    hand = desk.worker(full())
    run = full().start(1, labels={"a": "b"})
    run.signal("other")
    run.signal("paid")
    hand.work_off()
    left: Any = Workflow("full", steps=[Step("wait", wait=Wait("never"))]).start(1)
    assert prune(desk) == 1
    assert [model.__name__ for model in (*HANGING[1:], Event) if model._default_manager.filter(run=run.id).exists()] == []
    assert (list(Run.objects.values_list("pk", flat=True)), left.phase) == ([left.run.pk], "waiting")


@pytest.mark.parametrize("state", ["queued", "running", "leased", "waiting", "sleeping", "paused", "attention", "failing"])
def test_a_live_run_is_never_deleted(desk: Desk, state: str) -> None:
    """B95."""
    kinds: dict[str, dict[str, Any]] = {"waiting": {"wait": Wait("paid")}, "sleeping": {"sleep": Sleep(86_400 * 3000)}}
    workflow: Any = Workflow("live", steps=[Step("work", **kinds.get(state, {"run": body}))], on_failure=body)
    hand = desk.worker(workflow)
    run = workflow.start(1, delay=86_400 * 3000 if state == "queued" else None)
    {"leased": hand.take, "paused": run.pause, "failing": lambda: hand.fail(hand.take())}.get(state, lambda: None)()
    desk.now += timedelta(days=2000)
    retention.run_once(desk.now, 100)
    assert Run.objects.filter(pk=run.id).exists()


def test_a_run_that_was_retried_by_hand_is_kept(desk: Desk) -> None:
    """B95."""
    run = job().start(1)
    run.cancel()
    desk.now += timedelta(days=40)
    run.retry()
    assert (prune(desk), run.phase) == (0, "queued")


def test_a_run_that_ended_again_is_kept_for_its_retention_from_then(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start(1)
    run.cancel()
    desk.now += timedelta(days=29)
    run.retry()
    hand.work_off()
    desk.advance(days=29)
    assert run.phase == "succeeded"


def test_a_run_that_is_being_retried_while_it_is_pruned_is_kept(transactional_db: None, desk: Desk) -> None:
    """B95: whoever has the run's lock decides; the other looks again under it."""
    run = job().start(1)
    run.cancel()
    retried, pruned = threading.Event(), threading.Event()

    def retry() -> None:
        with transaction.atomic():
            episodes.retry(run.id)
            retried.set()
            pruned.wait(0.3)  # on SQLite the pruning waits for this transaction

    future = begin(retry)
    retried.wait(PATIENCE)
    prune(desk)
    pruned.set()
    future.result(PATIENCE)
    prune(desk)
    assert (run.status, StepRow.objects.filter(run=run.id).count()) == ("running", 1)


def test_a_run_that_was_retried_and_ended_again_between_the_look_and_the_lock_is_kept(desk: Desk) -> None:
    """B95: the end that counts is the one under the lock."""
    run = job().start(1)
    run.cancel()
    desk.now += timedelta(days=31)
    due = list(retention.due(desk.now, timedelta(days=30)).values_list("pk", flat=True))
    run.retry()
    run.cancel()
    retention.delete(due, desk.now, timedelta(days=30))
    assert run.phase == "cancelled"


def test_several_processes_prune_side_by_side(transactional_db: None, desk: Desk) -> None:
    hand = desk.worker(full())
    full().start_many(range(20))
    emit("paid")
    desk.tick()
    hand.work_off()
    together([lambda: prune(desk)] * 4)
    assert [model.__name__ for model in HANGING if model._default_manager.exists()] == []


def test_a_late_worker_of_a_deleted_run_is_told_that_its_lease_is_unknown(desk: Desk) -> None:
    """B95."""
    hand = desk.worker(job())
    run = job().start(1)
    lease = hand.take()
    run.cancel()
    prune(desk)
    assert [why(answer) for answer in (hand.beat(lease), hand.complete(lease), hand.start(lease))] == ["unknown_lease"] * 3


def test_a_run_with_an_idempotency_key_is_kept_until_the_key_has_served(desk: Desk, settings: Any) -> None:
    settings.EZGH_WORKFLOWS = {"RETENTION": 0}
    run = ended(desk, idempotency_key="k")
    desk.advance(days=7, milliseconds=-1)
    assert job().start(1, idempotency_key="k").id == run.id
    desk.advance(milliseconds=1)
    assert job().start(1, idempotency_key="k").id != run.id


def test_runs_are_deleted_in_batches_the_oldest_first(desk: Desk) -> None:
    runs = []
    for _ in range(4):
        runs.append(ended(desk))
        desk.now += timedelta(seconds=1)
    assert retention.prune(desk.now, 3, NOTHING) == 3
    assert [str(pk) for pk in Run.objects.values_list("pk", flat=True)] == [runs[3].id]


def test_a_deletion_beyond_the_batch_is_worked_off_by_one_tick(desk: Desk) -> None:
    for run in job().start_many(range(210)):
        run.cancel()
    desk.advance(days=30)
    assert Run.objects.count() == 0


def test_an_event_is_kept_for_its_retention_and_not_longer(desk: Desk) -> None:
    emit("paid")
    desk.tick()
    desk.advance(days=30, milliseconds=-1)
    assert Event.objects.count() == 1
    desk.advance(milliseconds=1)
    assert Event.objects.count() == 0


def test_an_event_is_not_deleted_before_its_receivers_have_been_resumed(desk: Desk) -> None:
    run: Any = Workflow("wait", steps=[Step("wait", wait=Wait("paid"))]).start(1)
    emit("paid")
    desk.now += timedelta(days=31)
    retention.run_once(desk.now, 100)
    desk.tick()
    assert run.phase == "succeeded"


def test_an_event_that_was_taken_goes_with_its_receipts_and_the_run_stays(desk: Desk) -> None:
    hand = desk.worker(full())
    run = full().start(1)
    emit("paid", payload=7)
    desk.tick()
    desk.advance(days=30)
    assert (Event.objects.count(), Receipt.objects.count(), hand.take().input, run.status) == (0, 0, 7, "running")


def test_a_signal_goes_with_its_run_and_not_before(desk: Desk) -> None:
    run: Any = Workflow("wait", steps=[Step("wait", wait=Wait("never"))]).start(1)
    run.signal("later")
    desk.advance(days=60)
    assert Event.objects.count() == 1
    run.cancel()
    desk.advance(days=30)
    assert Event.objects.count() == 0
