"""A claim's answer stays under MAX_LEASE_BYTES: fewer leases, the rest with the next claim, and nothing is lost or counted by that."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from ezgh_workflows_django.engine import describing, episodes, leases, runs
from ezgh_workflows_django.engine.invariants import violations
from ezgh_workflows_django.models import Lease, Step
from ezgh_workflows_django.protocol import answers_json
from ezgh_workflows_django.protocol.failures import Failure
from ezgh_workflows_django.protocol.messages import Claimed
from ezgh_workflows_django.protocol.messages import Lease as Offered
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import end_of, job, retry_of

SMALL = {**settings.EZGH_WORKFLOWS, "MAX_LEASE_BYTES": 7_000}


def payload(number: int) -> dict[str, object]:
    """About two thousand bytes, a lease of about three."""
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


def after_describing(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """Do this between the look that leased the steps and their going back."""
    describe = describing.describe

    def describe_and(*arguments: Any) -> Any:
        described = describe(*arguments)
        then()
        return described

    monkeypatch.setattr(describing, "describe", describe_and)


@override_settings(EZGH_WORKFLOWS=SMALL)
def test_what_goes_back_to_a_run_that_was_paused_meanwhile_is_not_offered(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    hand = desk.worker(job())
    handles = job().start_many([payload(number) for number in range(3)])
    after_describing(monkeypatch, lambda: [runs.pause(handle.id) for handle in handles])
    assert len(hand.claim(10)) == 2
    monkeypatch.undo()
    assert violations() == []
    assert hand.claim(10) == ()
    [left] = Step.objects.filter(status="ready")
    episodes.resume(left.run_id)
    assert [lease.run_id for lease in hand.claim(10)] == [str(left.run_id)]


@override_settings(EZGH_WORKFLOWS=SMALL)
def test_what_goes_back_to_a_run_that_was_cancelled_meanwhile_stays_cancelled(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    hand = desk.worker(job())
    handles = job().start_many([payload(number) for number in range(3)])
    after_describing(monkeypatch, lambda: [runs.cancel(handle.id) for handle in handles])
    hand.claim(10)
    monkeypatch.undo()
    assert set(Step.objects.values_list("status", flat=True)) == set(Lease.objects.values_list("status", flat=True)) == {"cancelled"}
    assert violations() == []


@pytest.mark.parametrize("is_started", [True, False])
def test_a_repeated_claim_takes_no_lease_back_that_its_worker_may_have(desk: Desk, is_started: bool) -> None:
    """The room became less, or the leases grew, since they were given."""
    hand = desk.worker(job())
    job().start_many([payload(number) for number in range(3)])
    first = hand.claim(10, claim_id="again")
    if is_started:
        leases.started([lease.id for lease in first])
    with override_settings(EZGH_WORKFLOWS=SMALL):
        assert len(hand.claim(10, claim_id="again")) == 2
        assert set(Step.objects.values_list("status", flat=True)) == {"leased"}
        assert hand.claim(10) == ()
    assert Lease.objects.filter(live_step__isnull=False).count() == 3
    assert violations() == []


@override_settings(EZGH_WORKFLOWS=SMALL)
def test_a_lease_that_was_started_meanwhile_does_not_go_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another call of the same claim had given it to the worker."""
    hand = desk.worker(job())
    job().start_many([payload(number) for number in range(3)])
    after_describing(monkeypatch, lambda: leases.started([str(pk) for pk in Lease.objects.values_list("pk", flat=True)]))
    assert len(hand.claim(10)) == 2
    monkeypatch.undo()
    assert set(Lease.objects.values_list("status", flat=True)) == {"started"}
    assert hand.claim(10) == ()
    assert violations() == []


def size_of(given: Sequence[Offered]) -> int:
    """The bytes of the answer, as the API sends it."""
    return len(json.dumps(answers_json.claimed_to_json(Claimed(leases=tuple(given))), separators=(",", ":")))


def in_letters_that_take_more(desk: Desk) -> Hand:
    """A letter of one or two bytes in a table is six on the wire."""
    hand = desk.worker(job())
    job().start_many([{"filling": "\u00e9" * 400} for _ in range(3)])
    return hand


def with_what_children_came_to(desk: Desk, count: int = 1) -> Hand:
    """A batch's checkpoint has no output of its own: it is read from the children."""
    hand, kids = desk.worker(job()), desk.worker(job("kid"), name="kids")
    job().start_many(range(3))
    for lease in hand.claim():
        hand.start(lease)
        hand.children(lease, "all", "kid", range(count))
        hand.park(lease, end_of("all"))
    while offered := kids.claim():
        for lease in offered:
            kids.start(lease)
            kids.complete(lease, "x" * (2_000 // count))
    desk.tick()
    return hand


def with_what_failed(desk: Desk) -> Hand:
    """An inner step that rests after a failure says why."""
    hand = desk.worker(job())
    job().start_many(range(3))
    for lease in hand.claim():
        hand.start(lease)
        hand.checkpoint(lease, "charge", failure=Failure(class_="error", message="x" * 2_000), retry={"max_attempts": 3, "initial_ms": 1_000, "jitter": 0})
        hand.park(lease, retry_of("charge"))
    desk.advance(seconds=60)
    return hand


def with_what_is_small_but_much(desk: Desk) -> Hand:
    """A lease says a lot beside its values."""
    hand = desk.worker(job())
    job().start_many(range(20))
    return hand


@pytest.mark.parametrize("prepare", [in_letters_that_take_more, with_what_children_came_to, with_what_failed, with_what_is_small_but_much])
def test_an_answer_of_several_leases_is_never_over_its_bound(desk: Desk, prepare: Callable[[Desk], Hand]) -> None:
    hand = prepare(desk)
    whole = Step.objects.filter(status="ready").count()
    with override_settings(EZGH_WORKFLOWS=SMALL):
        answers = [hand.claim(20) for _ in range(whole)]
    sizes = [size_of(given) for given in answers if given]
    assert max(sizes) <= 7_000
    assert sum(map(len, answers)) == whole > len(sizes) > 1  # no answer had room for all, and some had for two
