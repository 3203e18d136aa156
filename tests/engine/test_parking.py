"""Bodies that park: what they wait for is stored once, and they go on in the same attempt when it has come (cases B08, B09)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from ezgh_workflows_django import Retry, Step, Workflow, emit
from ezgh_workflows_django.models import Checkpoint, Event, JournalEntry, Lease, Receipt, Wait
from ezgh_workflows_django.protocol.messages import Failure, WaitFor
from ezgh_workflows_django.protocol.messages import Lease as Offered
from ezgh_workflows_django.protocol.states import WaitKind
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body, brought, end_of, event, job, retry_of, sleep, why


class Parked:
    """One run of `job` whose body parks as it is told."""

    def __init__(self, desk: Desk, workflow: Workflow | None = None) -> None:
        self.desk = desk
        self.workflow: Any = workflow or job()
        self.hand: Hand = desk.worker(self.workflow)
        self.run: Any = self.workflow.start({"n": 1})
        self.lease: Offered = self.hand.take()

    def park(self, *waits: WaitFor, mode: str = "all") -> str | None:
        """Park; the status the step is left in."""
        answer = self.hand.park(self.lease, *waits, mode=mode)
        assert answer.refused is None, answer.refused
        return answer.step

    def go_on(self) -> Offered:
        """The next pass of the body."""
        self.lease = self.hand.take()
        return self.lease

    def checkpoint(self, name: str) -> Checkpoint:
        """The row of that name."""
        return Checkpoint.objects.get(run=self.run.id, name=name)

    @property
    def step(self) -> Any:
        """The body's step, as it is stored."""
        return self.desk.step(self.run, self.lease.step)


@pytest.fixture
def parked(desk: Desk, django_capture_on_commit_callbacks: Any) -> Parked:
    """A body at work."""
    return Parked(desk)


@pytest.fixture
def send(django_capture_on_commit_callbacks: Any) -> Any:
    """`emit`, with the work that follows its commit."""

    def emit_and_commit(name: str, *arguments: Any, **named: Any) -> None:
        with django_capture_on_commit_callbacks(execute=True):
            emit(name, *arguments, **named)

    return emit_and_commit


# What parking is


def test_a_parked_step_goes_on_in_the_same_attempt_under_a_new_lease_and_token(parked: Parked) -> None:
    first = parked.lease
    assert parked.park(sleep("nap", 60)) == "sleeping"
    assert (parked.desk.lease(first).status, parked.step.attempts, parked.hand.claim()) == ("suspended", 1, ())
    parked.desk.advance(seconds=60)
    again = parked.go_on()
    assert (again.attempt, again.token, again.id != first.id) == (1, first.token + 1, True)
    assert parked.hand.complete(again, "done").run == "succeeded"
    assert (parked.step.attempts, parked.step.failures) == (1, 0)


def test_a_failure_after_going_on_is_the_end_of_that_attempt_even_without_started(desk: Desk) -> None:
    """Attempts are 1 to n without a gap (J4)."""
    parked = Parked(desk, job(retry=Retry(max_attempts=3, initial=1, jitter=0)))
    parked.park(sleep("nap", 0))
    [resumed] = parked.hand.claim()
    parked.hand.fail(resumed)
    desk.advance(seconds=1)
    assert (resumed.attempt, parked.go_on().attempt) == (1, 2)


def test_an_offer_to_go_on_that_nobody_takes_up_is_offered_again_in_the_same_attempt(parked: Parked) -> None:
    parked.park(sleep("nap", 0))
    [lost] = parked.hand.claim()
    parked.desk.advance(seconds=11)
    again = parked.go_on()
    assert (lost.attempt, again.attempt, again.token) == (1, 1, 3)


def test_a_second_suspend_of_a_lease_is_already_applied_and_says_what_was_stored(parked: Parked) -> None:
    parked.park(sleep("nap", 60))
    answer = parked.hand.park(parked.lease, sleep("other", 1))
    assert answer.refused is not None
    assert (answer.refused.reason, answer.refused.outcome) == ("already_applied", {"status": "suspended"})
    assert list(Checkpoint.objects.values_list("name", flat=True)) == ["nap"]


def test_a_parked_body_spends_no_timeout(desk: Desk) -> None:
    parked = Parked(desk, Workflow("slow", [Step("work", run=body, timeout=timedelta(minutes=1))]))
    parked.park(sleep("nap", 24 * 3600))
    desk.advance(days=1)
    parked.go_on()
    desk.advance(seconds=29)
    assert parked.hand.complete(parked.lease).run == "succeeded"


def test_parking_stores_the_bodys_state(parked: Parked) -> None:
    parked.hand.park(parked.lease, sleep("nap", 0), state={"seen": [1]})
    assert parked.go_on().state == {"seen": [1]}


# Sleep


@pytest.mark.parametrize("waits", [sleep("nap", 0), sleep("nap", until=datetime(2020, 1, 1, tzinfo=UTC))], ids=["0", "past"])
def test_a_sleep_that_is_over_wakes_at_once(parked: Parked, waits: WaitFor) -> None:
    assert parked.park(waits) == "ready"
    assert not brought(parked.go_on(), "nap").is_open


@pytest.mark.parametrize("waits", [sleep("nap", 90), sleep("nap", until=datetime(2024, 1, 1, 10, 1, 30, tzinfo=UTC))], ids=["ms", "until"])
def test_a_sleep_ends_at_its_time_and_never_before(parked: Parked, waits: WaitFor) -> None:
    parked.desk.now = datetime(2024, 1, 1, 10, 0, tzinfo=UTC)
    parked.hand.beat(parked.lease)
    parked.park(waits)
    parked.desk.advance(seconds=89.999)
    assert parked.run.phase == "sleeping"
    parked.desk.advance(seconds=0.001)
    assert parked.run.phase == "queued"
    assert brought(parked.go_on(), "nap").at == parked.desk.now


def test_a_sleep_asked_for_again_ends_when_it_was_to_end_at_first(parked: Parked) -> None:
    parked.park(sleep("nap", 60), event("call"), mode="any")
    parked.desk.advance(seconds=30)
    parked.run.signal("call")
    parked.go_on()
    assert parked.park(sleep("nap", 3600)) == "sleeping"
    parked.desk.advance(seconds=30)
    assert not brought(parked.go_on(), "nap").is_open


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
    met = list(Checkpoint.objects.order_by("pos").values_list("created_at", "met_at"))
    assert [met_at - created_at for created_at, met_at in met] == [timedelta(seconds=1)] * 4
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


# Retries of inner steps


BOOM: Final = Failure(class_="error", message="boom")
POLICY: Final = {"max_attempts": 3, "initial_ms": 10_000, "jitter": 0}


def test_a_body_rests_without_a_worker_until_its_inner_step_may_be_tried_again(parked: Parked) -> None:
    stored = parked.hand.checkpoint(parked.lease, "charge", failure=BOOM, retry=POLICY)
    assert parked.park(retry_of("charge")) == "sleeping"
    assert (parked.step.timer_at, parked.hand.claim()) == (stored.retry_at, ())
    parked.desk.advance(seconds=10)
    charge = brought(parked.go_on(), "charge")
    assert (charge.is_open, charge.failures, parked.lease.attempt) == (True, 1, 1)
    parked.hand.checkpoint(parked.lease, "charge", "paid")
    assert parked.park(retry_of("charge")) == "ready"


def test_a_retry_that_is_due_does_not_wake_a_body_that_waits_for_all(parked: Parked) -> None:
    parked.hand.checkpoint(parked.lease, "charge", failure=BOOM, retry=POLICY)
    parked.park(retry_of("charge"), event("paid"))
    parked.desk.advance(seconds=10)
    assert (parked.run.phase, parked.step.timer_at) == ("waiting", None)
    parked.run.signal("paid")
    assert parked.run.phase == "queued"


# What is refused


REFUSED: Final[dict[str, tuple[WaitFor, ...]]] = {
    "nothing": (),
    "one name twice": (sleep("a", 1), event("a")),
    "a retry of nothing": (sleep("ok", 1), retry_of("nothing")),
    "children nobody started": (sleep("ok", 1), end_of("nobody")),
    "a sleep without a length": (WaitFor(name="nap", kind=WaitKind.SLEEP),),
    "a sleep of two lengths": (WaitFor(name="nap", kind=WaitKind.SLEEP, ms=1, until=datetime(2024, 1, 1, tzinfo=UTC)),),
    "a sleep to a naive time": (sleep("nap", until=datetime(2024, 1, 1)),),  # noqa: DTZ001 - that is the fault
    "a sleep of ages": (sleep("nap", 3651 * 24 * 3600),),
    "a sleep to a far day": (sleep("nap", until=datetime.max.replace(tzinfo=UTC)),),
    "a negative sleep": (sleep("nap", -1),),
    "an event without a name": (WaitFor(name="a", kind=WaitKind.EVENT),),
    "an event with NUL": (event("a", "b\0"),),
    "a key too long": (event("a", "b", "k" * 256),),
    "a timeout of ages": (event("a", timeout_ms=10**15),),
    "a choice that is none": (event("a", on_timeout="perhaps"),),
    "a name too long": (sleep("n" * 256, 1),),
    "a place that is none": (sleep("nap", 1, pos=-1),),
    "a step taken for a sleep": (sleep("ok", 1), sleep("stored", 1)),
    "a step taken for children": (end_of("stored"),),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_can_not_be_waited_for_is_refused_whole_and_the_body_works_on(parked: Parked, fault: str) -> None:
    parked.hand.checkpoint(parked.lease, "stored", 1)
    answer = parked.hand.park(parked.lease, *REFUSED[fault], state={"patched": True})
    assert why(answer) == "invalid"
    assert list(Checkpoint.objects.values_list("name", flat=True)) == ["stored"]
    assert (parked.desk.lease(parked.lease).status, parked.desk.run(parked.run).state, Wait.objects.count()) == ("started", "{}", 0)
    assert parked.hand.complete(parked.lease).run == "succeeded"


def test_a_wait_can_not_be_taken_for_a_retry_once_it_is_stored(parked: Parked) -> None:
    parked.park(sleep("nap", 0))
    assert why(parked.hand.park(parked.go_on(), retry_of("nap"))) == "invalid"


# What else happens to a run meanwhile


def test_what_comes_while_the_run_is_paused_is_taken_in_and_waits_for_the_resume(parked: Parked, send: Any) -> None:
    parked.run.pause()
    assert parked.park(event("pay", "paid"), sleep("nap", 60)) == "waiting"
    send("paid", payload=1)
    parked.desk.advance(seconds=60)
    assert (parked.step.status, parked.step.claim_order, parked.hand.claim()) == ("ready", None, ())
    parked.run.resume()
    assert [each.is_open for each in parked.go_on().checkpoints] == [False, False]


def test_cancel_ends_a_parked_body(parked: Parked) -> None:
    parked.park(event("pay", "paid"), sleep("nap", 60))
    assert parked.run.cancel() == "cancelled"
    assert (parked.step.status, parked.step.parked, parked.step.timer_at, Wait.objects.count()) == ("cancelled", None, None, 0)
    parked.desk.advance(seconds=60)
    assert parked.hand.claim() == ()


def test_a_deadline_ends_a_parked_body_whose_timer_is_due_later(desk: Desk) -> None:
    parked = Parked(desk, job(deadline=timedelta(hours=1)))
    parked.park(sleep("nap", 3600))
    desk.advance(hours=3)
    assert (parked.run.status, parked.step.status) == ("timed_out", "cancelled")


def test_a_body_whose_sleep_ends_before_the_deadline_goes_on_where_both_are_seen_late(desk: Desk) -> None:
    parked = Parked(desk, job(deadline=timedelta(hours=1)))
    parked.park(sleep("nap", 3599))
    desk.now += timedelta(hours=3)
    desk.tick()
    assert parked.checkpoint("nap").met_at == desk.now
    assert parked.run.status == "timed_out"


def test_a_siblings_failure_cuts_a_parked_body_short(desk: Desk) -> None:
    pair: Any = Workflow("pair", [Step("work", run=body), Step("beside", run=body)], on_failure=body)
    hand = desk.worker(pair)
    run = pair.start()
    beside, work = sorted(hand.claim(), key=lambda lease: lease.step)
    hand.park(work, event("never"))
    hand.fail(beside, "permanent")
    assert (desk.step(run, "work").status, Wait.objects.count()) == ("cancelled", 0)
    assert [lease.step for lease in hand.claim()] == ["on_failure"]


def test_resolve_ends_a_body_that_waits(parked: Parked) -> None:
    parked.park(event("pay", "paid"))
    parked.run.resolve("work", {"by": "hand"}, "it was done by telephone")
    assert (parked.run.status, parked.run.result(), Wait.objects.count()) == ("succeeded", {"by": "hand"}, 0)


def test_a_compensation_may_park(desk: Desk) -> None:
    parked = Parked(desk, job(on_failure=body))
    parked.hand.fail(parked.lease, "permanent")
    parked.go_on()
    assert (parked.lease.step, parked.park(event("refunded"))) == ("on_failure", "waiting")
    assert parked.run.status == "failing"
    parked.run.signal("refunded", 40)
    assert brought(parked.go_on(), "refunded").output == 40
    assert parked.hand.complete(parked.lease).run == "failed"


# A new episode


def test_retry_begins_a_body_anew_and_its_events_are_free_again(parked: Parked, send: Any) -> None:
    send("paid", payload=40)
    parked.hand.checkpoint(parked.lease, "probe", 1)
    parked.park(event("pay", "paid"))
    parked.hand.fail(parked.go_on(), "permanent")
    parked.run.retry()
    again = parked.go_on()
    assert (again.checkpoints, again.attempt, Receipt.objects.count()) == ((), 2, 0)
    assert parked.park(event("pay", "paid")) == "ready"
    assert brought(parked.go_on(), "pay").output == 40


def test_retry_of_a_cancelled_run_begins_its_parked_body_anew(parked: Parked) -> None:
    parked.park(sleep("nap", 60))
    parked.run.cancel()
    parked.run.retry()
    assert (parked.step.parked, parked.step.is_resuming, parked.go_on().checkpoints) == (None, False, ())


# A month asleep


def test_a_month_asleep_holds_no_lease_and_one_timer(parked: Parked) -> None:
    parked.park(sleep("month", 30 * 24 * 3600))
    assert Lease.objects.filter(live_step__isnull=False).count() == 0
    ticked = parked.desk.tick()
    assert (ticked.handled, parked.step.timer_at) == (0, parked.desk.now + timedelta(days=30))
    parked.desk.advance(days=29, hours=23)
    assert parked.run.phase == "sleeping"
    parked.desk.advance(hours=1)
    assert not brought(parked.go_on(), "month").is_open
