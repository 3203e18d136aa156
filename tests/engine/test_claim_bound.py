"""A claim's answer stays under MAX_LEASE_BYTES: fewer leases, the rest with the next claim, and nothing is lost or counted by that."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.test import override_settings

from ezgh_workflows_django.engine.invariants import violations
from ezgh_workflows_django.models import Lease, Step
from tests.engine.conftest import Desk
from tests.engine.graphs import job

SMALL = {**settings.EZGH_WORKFLOWS, "MAX_LEASE_BYTES": 5_000}


def payload(number: int) -> dict[str, object]:
    """About two thousand bytes."""
    return {"n": number, "filling": "x" * 2_000}


@override_settings(EZGH_WORKFLOWS=SMALL)
def test_what_an_answer_has_no_room_for_comes_with_the_next(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start_many([payload(number) for number in range(5)])
    seen: list[object] = []
    sizes = []
    while offered := hand.claim(10):
        sizes.append(len(offered))
        assert violations() == []
        for lease in offered:
            seen.append(lease.input["n"])
            hand.start(lease)
            assert lease.attempt == 1
    assert sizes == [2, 2, 1]
    assert sorted(seen, key=str) == [0, 1, 2, 3, 4]
    assert set(Step.objects.values_list("attempts", "reclaims", "failures")) == {(1, 0, 0)}
    assert Lease.objects.filter(status="returned").exists()
    assert violations() == []


@override_settings(EZGH_WORKFLOWS=SMALL)
def test_one_lease_that_is_too_large_by_itself_is_given_all_the_same(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start({"filling": "x" * 20_000})
    job().start(payload(1))
    first = hand.claim(10)
    assert len(first) == 1
    assert len(hand.claim(10)) == 1
    assert hand.claim(10) == ()


@override_settings(EZGH_WORKFLOWS=SMALL)
def test_a_repeated_claim_brings_the_same_leases_and_not_those_that_went_back(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start_many([payload(number) for number in range(4)])
    first = hand.claim(10, claim_id="again")
    assert {lease.id for lease in hand.claim(10, claim_id="again")} == {lease.id for lease in first}
    assert len(hand.claim(10)) == 2


@pytest.mark.parametrize("priority", [0, 50])
@override_settings(EZGH_WORKFLOWS=SMALL)
def test_what_went_back_keeps_its_place_in_the_order(desk: Desk, priority: int) -> None:
    hand = desk.worker(job())
    for number in range(3):
        job().start(payload(number), priority=priority)
    before = {step.run_id: step.claim_order for step in Step.objects.all()}
    hand.claim(10)
    [left] = Step.objects.filter(status="ready")
    assert left.claim_order == before[left.run_id]
