"""Claimers begin at partitions of chance, so that they do not all stand before the same step; within a partition the order is strict."""

from __future__ import annotations

from datetime import timedelta

from ezgh_workflows_django.models import App
from ezgh_workflows_django.models import Step as StepRow
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import job, undone

PARTITIONS = 32
CLAIMS = 40


def spread(desk: Desk, partitions: list[int]) -> Hand:
    """A run in each of these partitions, the first one the oldest."""
    App.objects.update(partitions=PARTITIONS)
    hand = desk.worker(job())
    job().start_many(range(len(partitions)))
    rows = list(StepRow.objects.order_by("pk"))
    for age, (row, partition) in enumerate(zip(rows, partitions, strict=True)):
        row.partition = partition
        row.available_at = row.claim_order = desk.now - timedelta(seconds=len(partitions) - age)
    StepRow.objects.bulk_update(rows, ["partition", "available_at", "claim_order"])
    return hand


def firsts(hand: Hand, count: int) -> list[int]:
    """The partitions that so many claims of one step began at, each of which found the same."""
    seen: list[int] = []
    for _ in range(count):
        undone(lambda: seen.append(StepRow.objects.get(run__pk=hand.claim(1)[0].run_id).partition))
    return seen


def test_claims_begin_at_a_different_partition_each_time(desk: Desk) -> None:
    """Which one is chance: that forty in a row begin at the same one of four is not to be expected in 10^23 tries."""
    hand = spread(desk, [0, 8, 16, 24])
    seen = firsts(hand, CLAIMS)
    assert len(seen) == CLAIMS
    assert len(set(seen)) > 1


def test_within_a_partition_the_oldest_comes_first_wherever_a_claim_begins(desk: Desk) -> None:
    hand = spread(desk, [5] * 4)
    oldest = StepRow.objects.order_by("claim_order").values_list("run_id", flat=True)
    in_order = [str(run_id) for run_id in oldest]
    assert [hand.claim(1)[0].run_id for _ in in_order] == in_order
