"""Checkpoints: the first write of a name wins, a failure is tried again as its policy says, what can't be stored stands alone (invariant J5)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from ezgh_workflows_django.conf import app_settings
from ezgh_workflows_django.engine import checkpoints
from ezgh_workflows_django.models import Checkpoint
from ezgh_workflows_django.protocol.durable import Record, Stored
from ezgh_workflows_django.protocol.failures import Failure
from ezgh_workflows_django.protocol.messages import Lease as Offered
from ezgh_workflows_django.protocol.states import CheckpointKind
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import brought, end_of, event, job, sleep, why

POLICY: Final = {"max_attempts": 3, "initial_ms": 10_000, "factor": 2, "jitter": 0}
BOOM: Final = Failure(class_="error", message="boom", type="builtins.RuntimeError")


def at_work(desk: Desk) -> tuple[Hand, Offered]:
    """A worker and the lease it works on."""
    hand = desk.worker(job())
    job().start({"n": 1})
    return hand, hand.take()


def failed(hand: Hand, lease: Offered, name: str = "charge", failure: Failure = BOOM, **rest: Any) -> Stored:
    """An inner step that failed."""
    return hand.checkpoint(lease, name, failure=failure, retry=rest.pop("retry", POLICY), **rest)


def taken_again(desk: Desk, hand: Hand) -> Offered:
    """The step's next lease, once the last one has been reclaimed."""
    desk.advance(seconds=31)
    desk.advance(seconds=31)
    return hand.take()


def rows(lease: Offered) -> list[Mapping[str, Any]]:
    """The checkpoints of a lease's run, whole."""
    return list(Checkpoint.objects.filter(run__id=lease.run_id).order_by("pk").values())


# The first write wins


def test_the_first_write_of_a_name_wins_and_a_repeated_call_gives_what_is_stored(desk: Desk) -> None:
    """J5."""
    hand, lease = at_work(desk)
    first = hand.checkpoint(lease, "probe", {"size": 1})
    before = rows(lease)
    desk.now += timedelta(seconds=5)
    assert hand.checkpoint(lease, "probe", {"size": 2}, pos=9) == replace(first, repeated=True)
    assert failed(hand, lease, "probe") == replace(first, repeated=True)
    assert (first.output, first.is_final, rows(lease)) == ({"size": 1}, True, before)
    assert desk.kinds(desk.lease(lease).run).count("checkpoint.stored") == 1


def test_the_next_lease_carries_what_was_stored_in_the_order_of_places(desk: Desk) -> None:
    hand, lease = at_work(desk)
    hand.checkpoint(lease, "third", None, pos=3)
    hand.checkpoint(lease, "first", [1.5, "é"], pos=1)
    failed(hand, lease, "second", pos=2, retry=None)
    stored_at = desk.now
    again = taken_again(desk, hand)
    assert [(each.name, each.output, each.is_open, each.at) for each in again.checkpoints] == [
        ("first", [1.5, "é"], False, stored_at),
        ("second", None, False, stored_at),
        ("third", None, False, stored_at),
    ]
    assert brought(again, "second").failure == Failure(class_="error", message="boom", type="builtins.RuntimeError", attempts=1)


def test_two_records_of_one_name_in_one_call_are_one_write(desk: Desk) -> None:
    _, lease = at_work(desk)
    stored = checkpoints.checkpoint([Record(lease_id=lease.id, name="probe", pos=1, output=place) for place in range(3)])
    assert [each.output for each in stored] == [0, 0, 0]
    assert len(rows(lease)) == 1


def test_names_compare_exactly(desk: Desk) -> None:
    hand, lease = at_work(desk)
    for name in ("a", "A", "a ", "á"):
        assert hand.checkpoint(lease, name, name).output == name
    assert [row["name"] for row in rows(lease)] == ["a", "A", "a ", "á"]


# Failures


def test_a_failure_is_tried_again_as_its_policy_says_until_its_budget_is_spent(desk: Desk) -> None:
    hand, lease = at_work(desk)
    first = failed(hand, lease)
    assert (first.retry_at, first.is_final) == (desk.now + timedelta(seconds=10), False)
    second = failed(hand, lease)
    assert second.retry_at == desk.now + timedelta(seconds=20)
    third = failed(hand, lease)
    assert (third.retry_at, third.is_final, third.at) == (None, True, desk.now)
    assert third.failure == Failure(class_="error", message="boom", type="builtins.RuntimeError", attempts=3)
    assert hand.checkpoint(lease, "charge", "too late") == replace(third, repeated=True)
    assert [kind for kind in desk.kinds(desk.lease(lease).run) if kind.startswith("checkpoint")] == [
        "checkpoint.retry_scheduled",
        "checkpoint.retry_scheduled",
        "checkpoint.failed",
    ]


def test_the_budget_of_an_inner_step_is_kept_across_leases_and_spends_none_of_the_steps(desk: Desk) -> None:
    hand, lease = at_work(desk)
    failed(hand, lease)
    again = taken_again(desk, hand)
    held = brought(again, "charge")
    assert (held.is_open, held.failures, held.retry_at, held.failure and held.failure.message) == (True, 1, desk.now - timedelta(seconds=52), "boom")
    failed(hand, again)
    assert failed(hand, again).is_final
    assert desk.step(desk.lease(again).run, "work").failures == 0


def test_an_open_failure_that_succeeds_at_last_is_stored_without_its_failure(desk: Desk) -> None:
    hand, lease = at_work(desk)
    failed(hand, lease)
    stored = hand.checkpoint(lease, "charge", "paid")
    assert (stored.output, stored.failure, stored.retry_at, stored.is_final) == ("paid", None, None, True)
    assert brought(taken_again(desk, hand), "charge").failures == 1


@pytest.mark.parametrize(("retry_after_ms", "seconds"), [(3_000, 10), (60_000, 60)])
def test_a_body_may_ask_for_a_longer_rest_and_never_for_a_shorter_one(desk: Desk, retry_after_ms: int, seconds: int) -> None:
    hand, lease = at_work(desk)
    assert failed(hand, lease, retry_after_ms=retry_after_ms).retry_at == desk.now + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("class_", "policy"),
    [
        ("permanent", POLICY),
        ("nondeterminism", POLICY),
        ("card_declined", {**POLICY, "on": ["error"]}),
        ("error", None),
        ("error", {}),
    ],
)
def test_what_the_policy_does_not_cover_is_final_at_once(desk: Desk, class_: str, policy: Mapping[str, Any] | None) -> None:
    hand, lease = at_work(desk)
    assert failed(hand, lease, failure=Failure(class_=class_, message="no"), retry=policy).is_final


# State


def test_a_state_patch_is_merged_once_with_its_checkpoint(desk: Desk) -> None:
    hand, lease = at_work(desk)
    hand.checkpoint(lease, "one", 1, state={"seen": 1, "kept": {"a": 1}})
    hand.checkpoint(lease, "two", 2, state={"seen": 2})
    hand.checkpoint(lease, "one", 1, state={"seen": 1})
    assert json.loads(desk.lease(lease).run.state) == {"seen": 2, "kept": {"a": 1}}
    assert taken_again(desk, hand).state == {"seen": 2, "kept": {"a": 1}}


def test_a_patch_that_makes_the_state_too_large_stores_nothing_of_its_record(desk: Desk, settings: Any) -> None:
    settings.EZGH_WORKFLOWS = {"MAX_PAYLOAD_BYTES": 1_000}
    hand, lease = at_work(desk)
    hand.checkpoint(lease, "one", 1, state={"a": "x" * 800})
    refused = hand.checkpoint(lease, "two", 2, state={"b": "x" * 800})
    assert (why(refused), [row["name"] for row in rows(lease)]) == ("payload_too_large", ["one"])
    assert json.loads(desk.lease(lease).run.state) == {"a": "x" * 800}


# What can't be stored


INVALID: Final[Mapping[str, dict[str, Any]]] = {
    "NUL": {"output": "a\0b"},
    "NaN": {"output": {"n": [float("nan")]}},
    "lone surrogate": {"output": "\ud800"},
    "too large": {"output": "x" * (1024 * 1024 + 1)},
    "not JSON": {"output": object()},
    "state": {"state": {"n": float("inf")}},
    "engine's own class": {"failure": Failure(class_="poison", message="boom")},
    "no class": {"failure": Failure(class_="Not A Class", message="boom")},
    "no name": {"name": ""},
    "long name": {"name": "x" * 256},
    "name with NUL": {"name": "a\0b"},
    "place": {"pos": 2**31},
    "another kind": {"kind": CheckpointKind.SLEEP},
    "no policy": {"failure": BOOM, "retry": {"max_attempts": "many"}},
    "endless rest": {"failure": BOOM, "retry": {"max_attempts": 3, "initial_ms": 10**30}},
    "no number": {"failure": BOOM, "retry": {"max_attempts": 3, "factor": None}},
    "rest of a century": {"failure": BOOM, "retry_after_ms": 10**13},
}


@pytest.mark.parametrize("fault", INVALID)
def test_an_invalid_record_is_answered_alone_among_its_neighbours(desk: Desk, fault: str) -> None:
    hand = desk.worker(job())
    job().start_many(range(2))
    first, second = hand.claim()
    [hand.start(lease) for lease in (first, second)]
    bad = Record(**{"lease_id": first.id, "name": "bad", "pos": 2, **INVALID[fault]})
    before, after = Record(lease_id=first.id, name="before", pos=1, output=1), Record(lease_id=second.id, name="after", pos=1, output=3)
    answers = checkpoints.checkpoint([before, bad, after])
    assert [why(answer) for answer in answers] == [None, "payload_too_large" if fault == "too large" else "invalid", None]
    assert [row["name"] for row in rows(first) + rows(second)] == ["before", "after"]


def test_a_failures_message_is_cleaned_so_that_it_can_always_be_reported(desk: Desk) -> None:
    hand, lease = at_work(desk)
    stored = failed(hand, lease, failure=Failure(class_="error", message="a\0b\ud800"))
    assert stored.refused is None
    assert stored.failure is not None
    assert "\0" not in stored.failure.message


def test_a_name_that_is_stored_as_another_kind_is_refused(desk: Desk) -> None:
    hand, lease = at_work(desk)
    hand.children(lease, "nobody", job(), [])
    assert why(hand.checkpoint(lease, "nobody", 1)) == "invalid"
    hand.park(lease, sleep("nap", 1), event("call"), end_of("nobody"))
    desk.advance(seconds=1)
    assert Checkpoint.objects.get(name="nobody").output is None


# Groups


def test_records_of_one_lease_and_of_several_are_stored_in_one_call_and_answered_in_order(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start_many(range(3))
    offered = hand.claim()
    [hand.start(lease) for lease in offered]
    asked = [Record(lease_id=lease.id, name=name, pos=1, output=f"{place} {name}") for name in ("a", "b") for place, lease in enumerate(offered)]
    answers = checkpoints.checkpoint(asked)
    assert [(each.lease_id, each.name, each.output) for each in answers] == [(each.lease_id, each.name, each.output) for each in asked]
    assert [len(rows(lease)) for lease in offered] == [2, 2, 2]


def test_a_lease_that_does_not_exist_is_told_so_and_its_neighbour_is_stored(desk: Desk) -> None:
    _, lease = at_work(desk)
    unknown = ["no id", "01939999-0000-7000-8000-000000000000"]
    answers = checkpoints.checkpoint([Record(lease_id=each, name="probe", pos=1) for each in [*unknown, lease.id]])
    assert [why(answer) for answer in answers] == ["unknown_lease", "unknown_lease", None]


# Leases


def test_a_checkpoint_of_an_orphaned_lease_lets_it_live_again(desk: Desk) -> None:
    hand, lease = at_work(desk)
    desk.advance(seconds=31)
    assert desk.lease(lease).status == "orphaned"
    assert hand.checkpoint(lease, "probe", 1).refused is None
    row = desk.lease(lease)
    assert (row.status, row.orphaned_at, row.expires_at) == ("started", None, desk.now + app_settings.LEASE_TTL)


def test_a_checkpoint_extends_no_lease_that_is_healthy(desk: Desk) -> None:
    hand, lease = at_work(desk)
    expires_at = desk.lease(lease).expires_at
    desk.advance(seconds=20)
    hand.checkpoint(lease, "probe", 1)
    assert desk.lease(lease).expires_at == expires_at


# Reclaims are counted since the last checkpoint


def lost(desk: Desk, hand: Hand, times: int) -> Iterator[Offered]:
    """The leases of a step whose workers are lost, one after the other."""
    for _ in range(times):
        yield hand.take()
        desk.advance(seconds=31)
        desk.advance(seconds=31)


def test_a_body_that_gets_on_is_never_poison(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start()
    for place, lease in enumerate(lost(desk, hand, 8)):
        hand.checkpoint(lease, f"s{place}", place)
    assert (run.phase, desk.step(run, "work").reclaims) == ("retrying", 1)
    hand.complete(hand.take())
    assert run.status == "succeeded"


@pytest.mark.parametrize("name", ["s0", "bad\0"], ids=["stored already", "invalid"])
def test_a_body_that_stores_nothing_new_is_poison_after_its_reclaims(desk: Desk, name: str) -> None:
    hand = desk.worker(job())
    run = job().start()
    for lease in lost(desk, hand, 1):
        hand.checkpoint(lease, "s0", 0)
    for lease in lost(desk, hand, app_settings.MAX_RECLAIMS):
        hand.checkpoint(lease, name, 0)
    assert (run.status, run.failure.class_) == ("failed", "poison")


def test_starting_children_is_getting_on(desk: Desk) -> None:
    hand = desk.worker(job())
    desk.worker(job("other"), name="w2")
    run = job().start()
    for place, lease in enumerate(lost(desk, hand, 8)):
        assert hand.children(lease, f"c{place}", "other", [place]).refused is None
    assert desk.step(run, "work").reclaims == 1
