"""Bodies that park, children and their parents, meeting others: real threads, each with a connection of its own (cases B08, B55, B65)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from ezgh_workflows_django import emit
from ezgh_workflows_django.engine import leases
from ezgh_workflows_django.errors import RunTerminal
from ezgh_workflows_django.models import Event, JournalEntry, Receipt, Run, Wait
from ezgh_workflows_django.models import Step as StepRow
from tests.engine.bodies import Family
from tests.engine.conftest import Desk
from tests.engine.graphs import brought, end_of, event, job, why
from tests.engine.test_races import later
from tests.engine.threads import PATIENCE, answer_of, together
from tests.invariant_guard import broken

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.mark.parametrize("emits_later_ms", [-1, -0.5, 0, 0.5, 1])
def test_an_event_sent_while_a_body_parks_is_not_lost(desk: Desk, emits_later_ms: float) -> None:
    """B08, two hundred times: seen by one of the two, or by the next tick, and taken once."""
    hand = desk.worker(job())
    for round_ in range(4):
        runs = {run.id: run for run in job().start_many(range(10))}
        offered = hand.claim(10)
        leases.started([lease.id for lease in offered])
        keys = [f"{round_}-{place}" for place in range(10)]

        def park(offered: Any = offered, keys: Any = keys) -> None:
            for lease, key in zip(offered, keys, strict=True):
                hand.park(lease, event("pay", "paid", key, timeout_ms=3_600_000))

        def send(keys: Any = keys) -> None:
            for key in keys:
                emit("paid", key=key, payload=key)

        together([partial(later, max(0, -emits_later_ms), park), partial(later, max(0, emits_later_ms), send)])
        desk.tick()
        assert [run.phase for run in runs.values()] == ["queued"] * 10
        again = {lease.run_id: brought(lease, "pay").output for lease in hand.claim(10)}
        assert again == {lease.run_id: key for lease, key in zip(offered, keys, strict=True)}
        assert Receipt.objects.filter(run__in=list(runs)).count() == 10
    assert (Wait.objects.count(), broken()) == (0, [])


def test_signals_sent_while_a_body_parks_and_returns_are_seen_or_kept_or_refused(desk: Desk) -> None:
    """B55: none is accepted and gone, and the stream does not keep the run from ending."""
    hand = desk.worker(job())
    run: Any = job().start()
    lease = hand.take()

    def send() -> tuple[int, int]:
        accepted = 0
        for place in range(400):
            try:
                run.signal("item", place)
            except RunTerminal:
                return accepted, place
            accepted += 1
        return accepted, 400

    def drain() -> list[Any]:
        seen: list[Any] = []
        held = lease
        for place in range(12):
            assert hand.park(held, event(f"item-{place}", "item", timeout_ms=3_600_000, pos=place + 1)).refused is None
            held = soon(partial(hand.claim, 1))
            hand.start(held)
            seen.append(brought(held, f"item-{place}").output)
        assert hand.complete(held, seen).run == "succeeded"
        return seen

    (accepted, refused_at), seen = together([send, drain])
    assert seen == list(range(12))
    assert accepted == refused_at == Event.objects.filter(run=run.id).count()
    assert Receipt.objects.filter(run=run.id).count() == 12


def soon(claim: Callable[[], Sequence[Any]]) -> Any:
    """The one lease that a claim gives before long."""
    until = time.monotonic() + PATIENCE
    offered = claim()
    while not offered:
        assert time.monotonic() < until, "nothing came"
        offered = claim()
    return offered[0]


@pytest.mark.parametrize("round_", range(15))
def test_two_last_children_that_end_at_one_moment_wake_their_parent_once(desk: Desk, round_: int) -> None:
    family = Family(desk)
    family.start(2)
    family.park()
    offered = family.kids.claim()
    leases.started([lease.id for lease in offered])
    together([partial(family.kids.complete, lease) for lease in offered])
    assert family.run.phase == "queued"
    desk.tick()
    assert desk.kinds(family.run).count("step.resumed") == 1
    assert [each["status"] for each in family.results()] == ["succeeded", "succeeded"]


@pytest.mark.parametrize("ends_later_ms", [-1, -0.5, 0, 0.5, 1])
def test_a_child_that_ends_while_its_parent_parks_does_not_leave_it_waiting(desk: Desk, ends_later_ms: float) -> None:
    """B65 (c), fifty times."""
    for _ in range(10):
        family = Family(desk)
        family.start(1)
        lease = family.kids.take()
        end = partial(family.kids.complete, lease)
        together([partial(later, max(0, -ends_later_ms), family.park), partial(later, max(0, ends_later_ms), end)])
        desk.tick()  # where the parent's lock was held as the child ended, its mark is left to maintenance
        assert family.run.phase == "queued"
        assert family.results()[0]["status"] == "succeeded"
        family.hand.complete(family.lease)


@pytest.mark.parametrize("cancels_later_ms", [-1, 0, 0.5, 1, 2])
def test_a_cancel_beside_the_start_of_children_leaves_none_at_work(desk: Desk, cancels_later_ms: float) -> None:
    for _ in range(5):
        family = Family(desk)
        ask = partial(family.hand.children, family.lease, "all", family.child, range(20))
        answer, cancelled = together([partial(later, max(0, -cancels_later_ms), ask), partial(later, max(0, cancels_later_ms), family.run.cancel)])
        desk.advance(seconds=1)
        assert cancelled == "cancelled"
        assert why(answer) in (None, "run_terminal")
        assert family.children.count() == (0 if answer.refused else 20)
        assert not family.children.filter(ended_at=None).exists()
    desk.advance(seconds=1)
    assert not Run.objects.filter(kin_at__isnull=False).exists()


def test_a_cancel_beside_the_ends_of_children_at_three_levels_ends_everything(desk: Desk) -> None:
    family = Family(desk)
    family.start(10)
    offered = family.kids.claim(10)
    leases.started([lease.id for lease in offered])
    family.park()
    middle = offered[:5]
    for lease in middle:
        family.kids.children(lease, "below", family.child, range(3))
        family.kids.park(lease, end_of("below"))
    below = family.kids.claim(100)
    leases.started([lease.id for lease in below])
    ends = [answer_of(partial(family.kids.complete, lease)) for lease in [*offered[5:], *below]]
    together([family.run.cancel, lambda: [end() for end in ends[:10]], lambda: [end() for end in ends[10:]], lambda: [desk.tick() for _ in range(3)]])
    for _ in range(3):
        desk.advance(seconds=1)
    assert not Run.objects.live().exists()
    assert not Run.objects.filter(kin_at__isnull=False).exists()
    assert broken() == []


def test_claims_beside_wakes_lease_every_body_once_in_its_old_attempt(desk: Desk) -> None:
    hands = [desk.worker(job(), name=f"w{n}") for n in range(2)]
    runs = job().start_many(range(30))
    offered = hands[0].claim(100)
    leases.started([lease.id for lease in offered])
    for lease in offered:
        hands[0].park(lease, event("go"))

    def take(hand: Any) -> list[Any]:
        return [lease for _ in range(20) for lease in hand.claim(3)]

    *taken, _, _ = together(
        [partial(take, hands[0]), partial(take, hands[1]), lambda: [run.signal("go") for run in runs[:15]], lambda: [run.signal("go") for run in runs[15:]]]
    )
    got = [*taken[0], *taken[1], *hands[0].claim(100)]
    assert Counter(lease.run_id for lease in got) == Counter(run.id for run in runs)
    assert {(lease.attempt, lease.token, brought(lease, "go").is_open) for lease in got} == {(1, 2, False)}
    assert set(StepRow.objects.values_list("status", "parked")) == {("leased", None)}
    assert JournalEntry.objects.filter(kind="step.resumed").count() == 30
