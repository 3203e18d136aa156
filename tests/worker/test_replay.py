"""The order in which a body asks for things, against what the passes before were given."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ezgh_workflows_django.protocol.durable import Checkpoint
from ezgh_workflows_django.protocol.states import CheckpointKind
from ezgh_workflows_django.worker.replay import Order
from ezgh_workflows_django.worker.suspension import Broken

STEP, SLEEP, EVENT = CheckpointKind.STEP, CheckpointKind.SLEEP, CheckpointKind.EVENT


def stored(*names: str, kind: CheckpointKind = STEP) -> list[Checkpoint]:
    """Things of their own, in that order."""
    return [Checkpoint(name=name, pos=pos, kind=kind) for pos, name in enumerate(names, 1)]


def group(pos: int, *names: str) -> list[Checkpoint]:
    """Members of one group."""
    return [Checkpoint(name=name, pos=pos, kind=STEP) for name in names]


def walk(before: Sequence[str], now: Sequence[str]) -> str | None:
    """The message of the difference between two orders of steps; None where they fit."""
    order = Order(stored(*before))
    try:
        for name in now:
            order.ask(name, STEP)
        order.finish("returned")
    except Broken as broken:
        return str(broken)
    return None


def test_the_same_things_in_the_same_order_are_given_back() -> None:
    order = Order(stored("a", "b"))
    assert [order.ask(name, STEP)[1] for name in ("a", "b", "c")] == [*stored("a", "b"), None]


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (["reserve", "bill"], "expected step `charge` at 2, the code asks for `bill`"),
        (["charge", "reserve"], "expected step `reserve` at 1, the code asks for `charge`"),
        (["check", "reserve", "charge"], "expected step `reserve` at 1, the code asks for `check`"),
        (["charge"], "expected step `reserve` at 1, the code asks for `charge`"),
        (["reserve"], "expected step `charge` at 2, the code returned without asking for it"),
        (["reserve", "reserve"], "the code asks for `reserve` twice, at 1 and at 2: give each thing a name of its own"),
    ],
    ids=["renamed", "swapped", "inserted", "first removed", "last removed", "twice"],
)
def test_a_difference_is_said_in_plain_words(now: list[str], said: str) -> None:
    """Case B24."""
    assert walk(["reserve", "charge"], now) == said


def test_another_kind_under_the_same_name_is_a_difference_that_names_both_kinds() -> None:
    """Case B24."""
    with pytest.raises(Broken, match="expected step `a` at 1, the code asks for sleep `a`"):
        Order(stored("a")).ask("a", SLEEP)


def test_a_thing_that_moved_into_a_gap_is_a_difference() -> None:
    with pytest.raises(Broken, match="step `b` was at 2, the code asks for `b` at 1"):
        Order(group(2, "b")).ask("b", STEP)


def test_members_of_a_group_come_in_any_order() -> None:
    order = Order(group(1, "m[0]", "m[1]"))
    pos = order.open_group("`m` with 3 items", "m", {"m[0]", "m[1]", "m[2]"}.__contains__)
    assert [order.ask(name, STEP, pos)[1] is not None for name in ("m[1]", "m[2]", "m[0]")] == [True, False, True]
    order.close_group(pos, "map")
    assert order.ask("after", STEP)[0].pos == 2


def test_a_map_that_shrank_below_what_is_stored_is_a_difference() -> None:
    with pytest.raises(Broken, match=r"expected step `m\[2\]` at 1, the code asks for `m` with 2 items"):
        Order(group(1, "m[2]")).open_group("`m` with 2 items", "m", {"m[0]", "m[1]"}.__contains__)


def test_a_thing_in_the_place_of_a_group_is_a_difference() -> None:
    with pytest.raises(Broken, match="expected step `b` at 1, the code asks for `a`"):
        Order(group(1, "a", "b")).ask("a", STEP)


def test_a_group_that_leaves_out_a_member_is_a_difference_at_its_end() -> None:
    order = Order(group(1, "a", "b"))
    pos = order.open_group("a gather")
    order.ask("a", STEP, pos)
    with pytest.raises(Broken, match="expected step `b` at 1, the code does not ask for it in its gather"):
        order.close_group(pos, "gather")


def test_an_open_wait_has_to_be_asked_for_too() -> None:
    order = Order([Checkpoint(name="paid", pos=1, kind=EVENT, is_open=True)])
    with pytest.raises(Broken, match="expected wait `paid` at 1, the code parks on sleep `z` without asking for it"):
        order.finish("parks on sleep `z`")


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.lists(st.sampled_from("abcdef"), unique=True))
def test_an_order_fits_exactly_where_it_goes_on_from_the_one_before(before: list[str], now: list[str]) -> None:
    assert (walk(before, now) is None) == (now[: len(before)] == before)


@given(st.lists(st.sampled_from("abcdef"), unique=True, min_size=1), st.lists(st.sampled_from("abcdef"), unique=True))
def test_nothing_new_is_let_through_in_the_place_of_something_stored(before: list[str], now: list[str]) -> None:
    order = Order(stored(*before))
    try:
        asked = [order.ask(name, STEP) for name in now]
    except Broken:
        return
    assert all(row is None for _, row in asked[len(before) :])
    assert all(row is not None for _, row in asked[: len(before)])


def test_a_new_item_of_a_group_that_something_came_after_is_a_difference() -> None:
    order = Order([*group(1, "m[0]"), *group(2, "after")])
    pos = order.open_group("`m` with 2 items", "m", {"m[0]", "m[1]"}.__contains__)
    order.ask("m[0]", STEP, pos)
    with pytest.raises(Broken, match=r"expected step `after` at 2, the code asks for `m\[1\]` at 1"):
        order.ask("m[1]", STEP, pos)


def test_a_new_thing_in_the_place_of_an_empty_group_is_a_difference_where_something_came_after() -> None:
    with pytest.raises(Broken, match="expected step `after` at 2, the code asks for sleep `new` at 1"):
        Order(group(2, "after")).ask("new", SLEEP)


def test_a_group_with_a_name_in_the_place_of_an_empty_one_is_a_difference_where_something_came_after() -> None:
    order = Order(group(2, "after"))
    pos = order.open_group("wait_any `w`", "w", {"w[a]"}.__contains__)
    with pytest.raises(Broken, match=r"expected step `after` at 2, the code asks for wait `w\[a\]` at 1"):
        order.ask("w[a]", EVENT, pos)


def test_an_empty_group_keeps_its_place() -> None:
    order = Order(group(2, "after"))
    order.close_group(order.open_group("`m` with 0 items", "m", frozenset().__contains__), "map")
    asked, row = order.ask("after", STEP)
    assert (asked.pos, row is not None) == (2, True)
