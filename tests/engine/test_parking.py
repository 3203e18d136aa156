"""Bodies that park: what they wait for is stored once, and they go on in the same attempt when it has come (cases B08, B09)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from ezgh_workflows_django import Retry, Step, Workflow
from ezgh_workflows_django.models import Checkpoint, Lease, Receipt, Wait
from ezgh_workflows_django.protocol.durable import WaitFor
from ezgh_workflows_django.protocol.failures import Failure
from ezgh_workflows_django.protocol.states import WaitKind
from tests.engine.bodies import Parked
from tests.engine.conftest import Desk
from tests.engine.graphs import body, brought, end_of, event, job, retry_of, sleep, why

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
