"""What a parked body waits for comes: events, timeouts, the first of any, the last of all (cases B08, B09, B55, B56)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from ezgh_workflows_django import emit
from ezgh_workflows_django.models import Checkpoint, Event, JournalEntry, Receipt, Wait
from tests.engine.bodies import Parked
from tests.engine.conftest import Desk
from tests.engine.graphs import brought, event, job, sleep

# Events


def test_an_event_that_came_before_the_park_is_taken_at_once(parked: Parked, send: Any) -> None:
    """B08 (a)."""
    send("paid", key="A-1", payload={"paid": 40})
    assert parked.park(event("pay", "paid", "A-1")) == "ready"
    assert brought(parked.go_on(), "pay").output == {"paid": 40}
    assert (Wait.objects.count(), Receipt.objects.count()) == (0, 1)


def test_an_event_that_comes_after_wakes_at_once(parked: Parked, send: Any) -> None:
    assert parked.park(event("pay", "paid", "A-1")) == "waiting"
    send("paid", key="A-2", payload=1)
    assert parked.run.phase == "waiting"
    send("paid", key="A-1", payload=2)
    assert brought(parked.go_on(), "pay").output == 2


def test_an_event_that_neither_side_saw_is_taken_by_the_next_tick(parked: Parked) -> None:
    """B08 (b): the body has looked and found nothing; the sender commits, and its own look does not come."""
    parked.park(event("pay", "paid"))
    emit("paid", payload=3)  # what follows its commit is lost here
    parked.desk.tick()
    assert brought(parked.go_on(), "pay").output == 3


def test_an_event_after_the_second_look_is_taken_by_the_sweep_of_events(parked: Parked) -> None:
    parked.park(event("pay", "paid"))
    parked.desk.tick()
    emit("paid", payload=3)
    parked.desk.advance(seconds=1)
    assert brought(parked.go_on(), "pay").output == 3


def test_a_closed_lookback_takes_nothing_that_came_before(parked: Parked, send: Any) -> None:
    send("paid", payload=1)
    parked.desk.now += timedelta(seconds=1)
    assert parked.park(event("pay", "paid", lookback_ms=None)) == "waiting"
    send("paid", payload=2)
    assert brought(parked.go_on(), "pay").output == 2


def test_a_signal_wakes_the_body_it_is_for_and_no_other(desk: Desk) -> None:
    one = Parked(desk)
    other: Any = job().start()
    for_other = one.hand.take()
    one.park(event("call"))
    one.hand.park(for_other, event("call"))
    assert one.run.signal("call", {"n": 1}) == "delivered"
    assert (one.run.phase, other.phase) == ("queued", "waiting")


def test_an_event_by_key_reaches_every_body_that_waits_for_it_and_a_signal_only_one(desk: Desk, send: Any) -> None:
    """B56: all of the project, never another's; by run id only that one."""
    hands = [desk.worker(job(f"job{n}", revision=str(n)), name=f"w{n}") for n in range(1, 4)]
    runs: list[Any] = []
    for n, hand in enumerate(hands, start=1):
        for _ in range(4):
            runs.append(job(f"job{n}", revision=str(n)).start())
            hand.park(hand.take(), event("reply", key="local-user"))
    runs[5].signal("reply", "you")
    assert [run.phase for run in runs].count("queued") == 1
    assert runs[5].phase == "queued"
    send("reply", key="another-user")
    assert [run.phase for run in runs].count("queued") == 1
    send("reply", key="local-user")
    assert [run.phase for run in runs] == ["queued"] * 12


# Timeouts


def test_a_timeout_is_stored_and_no_arrival(parked: Parked) -> None:
    """B09."""
    parked.park(event("pay", "paid", timeout_ms=1_000))
    parked.desk.advance(seconds=1)
    pay = brought(parked.go_on(), "pay")
    assert (pay.timed_out, pay.output, pay.is_open, pay.at) == (True, None, False, parked.desk.now)


def test_a_null_payload_is_an_arrival_and_no_timeout(parked: Parked, send: Any) -> None:
    """B09."""
    parked.park(event("pay", "paid", timeout_ms=1_000))
    send("paid", payload=None)
    pay = brought(parked.go_on(), "pay")
    assert (pay.timed_out, pay.output, pay.is_open) == (False, None, False)
    assert parked.checkpoint("pay").output == "null"


def test_every_timeout_of_a_body_is_remembered_through_crashes(parked: Parked) -> None:
    """B09: two waits, then twice for one event; each elapses once, however often the body is begun again."""
    began = parked.desk.now
    for place, name in enumerate(["tick-1", "tick-2", "again", "again-2"], start=1):
        assert parked.park(event(name, "never" if name.startswith("again") else name, timeout_ms=1_000, pos=place)) == "waiting"
        parked.desk.advance(seconds=1)
        lost = parked.go_on()
        parked.desk.advance(seconds=31)
        parked.desk.advance(seconds=31)
        parked.go_on()
        assert [each.timed_out for each in parked.lease.checkpoints] == [each.timed_out for each in lost.checkpoints] == [True] * place
        assert parked.park(event(name, timeout_ms=1_000, pos=place)) == "ready"
        parked.go_on()
    assert Checkpoint.objects.filter(met_at=F("created_at") + timedelta(seconds=1)).count() == 4
    assert parked.desk.now - began == timedelta(seconds=4 * 63)
    told = JournalEntry.objects.filter(run=parked.run.id, kind="checkpoint.met").order_by("seq")
    assert [(json.loads(row.data)["name"], json.loads(row.data)["timed_out"]) for row in told] == [(n, True) for n in ("tick-1", "tick-2", "again", "again-2")]


@pytest.mark.parametrize(("milliseconds", "timed_out"), [(999, False), (1_000, True), (1_001, True)])
def test_of_an_event_and_a_timeout_the_earlier_wins_even_where_both_are_seen_late(parked: Parked, milliseconds: int, timed_out: bool) -> None:
    """B08 (c): what the timeout beat stays untaken for the next wait."""
    parked.park(event("pay", "paid", timeout_ms=1_000))
    parked.desk.now += timedelta(milliseconds=milliseconds)
    emit("paid", payload=1)
    parked.desk.advance(minutes=1)
    assert brought(parked.go_on(), "pay").timed_out is timed_out
    assert parked.park(event("pay again", "paid", timeout_ms=1_000)) == ("ready" if timed_out else "waiting")


def test_a_wait_keeps_the_key_and_the_timeout_it_was_first_asked_for_with(parked: Parked, send: Any) -> None:
    parked.park(event("pay", "paid", "A-1", timeout_ms=60_000), sleep("nap", 1), mode="any")
    parked.desk.advance(seconds=1)
    parked.go_on()
    parked.park(event("pay", "refunded", "B-2", timeout_ms=1))
    [wait] = parked.run.waiting_for
    assert (wait.event, wait.key, wait.until) == ("paid", "A-1", parked.desk.now + timedelta(seconds=59))
    send("refunded", key="B-2")
    assert parked.run.phase == "waiting"
    parked.desk.advance(seconds=59)
    assert brought(parked.go_on(), "pay").timed_out


# Any, all


def test_of_any_the_earliest_wins_and_what_lost_stays_untaken(parked: Parked) -> None:
    """Both are there when the tick looks; the one that came first wakes the body, the other is found by the next ask."""
    parked.park(event("paid"), event("cancelled"), mode="any")
    emit("cancelled", payload="c")
    parked.desk.now += timedelta(milliseconds=1)
    emit("paid", payload="p")
    parked.desk.tick()
    lease = parked.go_on()
    assert (brought(lease, "cancelled").output, brought(lease, "paid").is_open) == ("c", True)
    assert (Receipt.objects.count(), Wait.objects.count()) == (1, 0)
    assert parked.park(event("paid")) == "ready"
    assert brought(parked.go_on(), "paid").output == "p"


def test_the_wait_of_a_loser_is_closed_while_the_body_runs_and_nothing_is_lost_meanwhile(parked: Parked, send: Any) -> None:
    parked.park(event("paid", timeout_ms=60_000), event("cancelled"), mode="any")
    send("cancelled")
    parked.go_on()
    assert parked.run.waiting_for == []
    send("paid", payload="meanwhile")
    assert not parked.checkpoint("paid").met_at
    assert parked.park(event("paid", timeout_ms=60_000)) == "ready"
    assert brought(parked.go_on(), "paid").output == "meanwhile"


def test_a_timeout_of_one_of_any_wakes_the_body(parked: Parked) -> None:
    parked.park(event("paid", timeout_ms=60_000), event("cancelled", timeout_ms=30_000), mode="any")
    parked.desk.advance(seconds=30)
    lease = parked.go_on()
    assert (brought(lease, "cancelled").timed_out, brought(lease, "paid").is_open) == (True, True)


def test_any_of_something_that_is_stored_already_goes_on_at_once_and_takes_nothing(parked: Parked, send: Any) -> None:
    parked.park(sleep("nap", 0))
    parked.go_on()
    send("paid")
    assert parked.park(sleep("nap", 0), event("paid"), mode="any") == "ready"
    assert Receipt.objects.count() == 0


def test_of_all_each_is_stored_as_it_comes_and_only_the_last_wakes(parked: Parked, send: Any) -> None:
    parked.park(event("a"), event("b"), sleep("nap", 60))
    send("b", payload="b")
    assert (parked.run.phase, parked.checkpoint("b").output, parked.checkpoint("a").met_at) == ("waiting", '"b"', None)
    send("a", payload="a")
    assert (parked.run.phase, parked.step.timer_at) == ("sleeping", parked.desk.now + timedelta(seconds=60))
    parked.desk.advance(seconds=60)
    assert [(each.name, each.output, each.is_open) for each in parked.go_on().checkpoints] == [("a", "a", False), ("b", "b", False), ("nap", None, False)]


def test_two_waits_for_one_event_take_one_each_the_oldest_first(parked: Parked, send: Any) -> None:
    for payload in ("x", "y"):
        send("item", payload=payload)
        parked.desk.now += timedelta(milliseconds=1)
    assert parked.park(event("one", "item"), event("two", "item", pos=2)) == "ready"
    lease = parked.go_on()
    assert (brought(lease, "one").output, brought(lease, "two").output) == ("x", "y")


def test_two_waits_for_one_event_of_which_there_is_one_wait_on(parked: Parked, send: Any) -> None:
    parked.park(event("one", "item"), event("two", "item", pos=2, timeout_ms=60_000))
    send("item", payload="x")
    assert (parked.checkpoint("one").output, parked.checkpoint("two").met_at, parked.run.phase) == ('"x"', None, "waiting")
    parked.desk.advance(seconds=60)
    assert brought(parked.go_on(), "two").timed_out


@pytest.mark.long
def test_a_hundred_events_of_one_name_are_each_received_once_in_order(parked: Parked) -> None:
    """A loop of parks; some events come while the body runs, some while it is parked, some while nobody looks."""
    received = []
    for place in range(100):
        if place % 7 == 0:
            emit("item", payload=place)
        emptied = parked.park(event(f"item-{place}", "item", pos=place + 1)) == "waiting"
        if emptied and place % 7:
            emit("item", payload=place)
        parked.desk.advance(seconds=1)
        received.append(brought(parked.go_on(), f"item-{place}").output)
        parked.hand.beat(parked.lease)
    assert received == list(range(100))
    assert Receipt.objects.values("event").distinct().count() == Receipt.objects.count() == 100


def test_every_signal_of_a_stream_is_seen_in_order_or_refused(parked: Parked) -> None:
    """B55: a body drains what there is, then returns; what is sent afterwards is told so."""
    assert [parked.run.signal("item", n) for n in range(5)] == ["buffered"] * 5
    parked.desk.now += timedelta(milliseconds=1)
    seen = []
    for place in range(6):
        parked.park(event(f"item-{place}", "item", timeout_ms=0, pos=place + 1))
        parked.desk.tick()
        item = brought(parked.go_on(), f"item-{place}")
        seen += [] if item.timed_out else [item.output]
    assert parked.hand.complete(parked.lease, seen).run == "succeeded"
    assert seen == list(range(5))
    with pytest.raises(Exception, match="takes no more signals"):
        parked.run.signal("item", 5)
    assert Event.objects.filter(run=parked.run.id).count() == Receipt.objects.count() == 5
