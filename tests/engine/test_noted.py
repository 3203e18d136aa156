"""What a suspend says of its notes: kept with the step in the same transaction, given back with each later lease of it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.engine.bodies import Parked
from tests.engine.graphs import sleep


def go_on(parked: Parked, **rest: Any) -> tuple[str, ...]:
    """Park with these, and go on; what the next lease is given."""
    answer = parked.hand.park(parked.lease, sleep(f"nap-{parked.lease.token}", 0), **rest)
    assert answer.refused is None, answer.refused
    return parked.go_on().noted


def test_what_the_suspends_of_a_step_noted_is_given_to_each_later_pass(parked: Parked) -> None:
    assert parked.lease.noted == ()
    assert go_on(parked) == ()
    assert go_on(parked, noted=("a", "b"), state={"n": 1}) == ("a", "b")
    assert go_on(parked) == ("a", "b")
    assert go_on(parked, noted=("b", "c")) == ("a", "b", "c")


def test_a_suspend_that_is_repeated_notes_nothing_more(parked: Parked) -> None:
    lease = parked.lease
    assert go_on(parked, noted=("a",)) == ("a",)
    answer = parked.hand.park(lease, sleep("nap", 0), noted=("b",))
    assert answer.refused is not None
    assert answer.refused.reason == "already_applied"
    assert go_on(parked) == ("a",)


def test_a_later_attempt_is_given_it_too_and_a_new_episode_begins_without(parked: Parked) -> None:
    go_on(parked, noted=("a",))
    parked.desk.advance(seconds=31)
    parked.desk.advance(seconds=31)
    again = parked.go_on()
    assert (again.attempt, again.noted) == (2, ("a",))
    parked.hand.fail(again)
    parked.run.retry()
    assert parked.go_on().noted == ()


REFUSED: Final[dict[str, tuple[Any, ...]]] = {
    "an empty text": ("",),
    "a text too long": ("a", "b" * 65),
    "NUL": ("\0",),
    "a number": (1,),
    "too many": tuple(map(str, range(100_001))),
}


@pytest.mark.parametrize("noted", REFUSED.values(), ids=REFUSED.keys())
def test_what_can_not_be_kept_is_refused_by_name_and_changes_nothing(parked: Parked, noted: tuple[Any, ...]) -> None:
    answer = parked.hand.park(parked.lease, sleep("nap", 60), noted=noted, state={"n": 1})
    assert answer.refused is not None
    assert (answer.refused.reason, "noted" in answer.refused.message) == ("invalid", True)
    assert parked.step.status == "leased"
    assert (parked.step.noted, parked.desk.run(parked.run).state) == (None, "{}")
