"""The number of statements of each verb, on each database: a verb that grows one is noticed here, and none grows with the graph (case B62).

Savepoints and transaction control are not counted: they are the test's own. What runs after the commit is counted where the test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django import Concurrency, Cron, RateLimit, Retry, Step, Wait, Workflow, emit
from ezgh_workflows_django.engine import admission, checkpoints, events, firing, leases, maintenance, outcomes, runs, timers
from ezgh_workflows_django.models import App, Run, Schedule
from ezgh_workflows_django.protocol.durable import Record, WaitFor
from ezgh_workflows_django.protocol.messages import Beat, ClaimRequest
from ezgh_workflows_django.protocol.messages import Lease as Offered
from ezgh_workflows_django.protocol.notes import Usage
from ezgh_workflows_django.protocol.outcomes import Outcome, Report
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body, chain, end_of, event, job, sleep

CONTROL: Final = ("SAVEPOINT", "RELEASE", "ROLLBACK", "BEGIN", "COMMIT", "PRAGMA")


def counted(call: Callable[[], Any]) -> int:
    """How many statements a call makes."""
    with CaptureQueriesContext(connection) as captured:
        call()
    return len([query for query in captured.captured_queries if not query["sql"].startswith(CONTROL)])


def take(hand: Hand, count: int) -> list[Offered]:
    """That many leases, started."""
    offered = list(hand.claim(count))
    assert len(offered) == count
    leases.started([lease.id for lease in offered])
    return offered


def completed(offered: list[Offered]) -> list[Report]:
    """Each of them came to nothing in particular."""
    return [Report(lease.id, Outcome.completed()) for lease in offered]


def fan(width: int) -> Workflow:
    """One step, then so many at once, then one."""
    names = [f"s{number}" for number in range(width)]
    middle = [Step(name, run=body, after=["first"]) for name in names]
    return Workflow(f"fan-{width}", [Step("first", run=body), *middle, Step("last", run=body, after=names)])


def start_one(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """Four statements: the definition, the run, its step, its journal."""
    return lambda: job().start({"n": 1})


def start_one_of_everything(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """A run with labels and an idempotency key."""
    return lambda: job().start({"n": 1}, labels={"order": "A-1", "region": "eu"}, idempotency_key="A-1")


def start_ten(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """No more than one."""
    return lambda: job().start_many(range(10))


def claim_nothing(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """The session, what it serves, the look."""
    return hand.claim


def claim_one(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """As nothing, and the lease."""
    job().start()
    return hand.claim


def claim_ten(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """As one."""
    job().start_many(range(10))
    return hand.claim


def start_a_lease(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """`started`."""
    job().start()
    [lease] = hand.claim(1)
    return lambda: leases.started([lease.id])


def start_ten_leases(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """`started` of ten runs."""
    job().start_many(range(10))
    offered = hand.claim(10)
    return lambda: leases.started([lease.id for lease in offered])


def beat_ten(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """`heartbeat` of ten runs."""
    job().start_many(range(10))
    offered = take(hand, 10)
    return lambda: leases.heartbeat([Beat(lease.id) for lease in offered])


def complete_in_the_middle(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """A step of a chain: the next one is made ready."""
    chain("a", "b").start()
    offered = take(hand, 1)
    return lambda: outcomes.report(completed(offered))


def complete_the_last(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """The last step of a chain: the run succeeds."""
    job().start()
    offered = take(hand, 1)
    return lambda: outcomes.report(completed(offered))


def complete_ten_runs(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """Ten runs end in one call."""
    job().start_many(range(10))
    offered = take(hand, 10)
    return lambda: outcomes.report(completed(offered))


def complete_ten_of_one_run(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """Ten steps of one run end in one call."""
    fan(20).start()
    outcomes.report(completed(take(hand, 1)))
    offered = take(hand, 10)
    return lambda: outcomes.report(completed(offered))


def fail_with_a_retry_left(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """A step rests."""
    chain("a", "b", retry=Retry(max_attempts=2)).start()
    [lease] = take(hand, 1)
    return lambda: outcomes.report([Report(lease.id, Outcome.failed("error", "boom"))])


def fail_for_good(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """The run fails."""
    job().start()
    [lease] = take(hand, 1)
    return lambda: outcomes.report([Report(lease.id, Outcome.failed("permanent", "boom"))])


def waiting() -> Workflow:
    """It waits, then works."""
    return Workflow("waiting", [Step("call", wait=Wait("called")), Step("work", run=body, after=["call"])])


def signal_a_wait(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """A signal that is taken at once."""
    run = waiting().start()
    return lambda: events.signal(run.id, "called", {"n": 1})


def cancel_a_run(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """A run with a lease."""
    run = job().start()
    take(hand, 1)
    return lambda: runs.cancel(run.id)


def pause_a_run(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """A run with a ready step."""
    run = job().start()
    return lambda: runs.pause(run.id)


def checkpoints_of(offered: list[Offered], count: int = 1) -> list[Record]:
    """So many results of each of these leases."""
    return [Record(lease_id=lease.id, name=f"s{place}", pos=place, output=place) for lease in offered for place in range(count)]


def checkpoint_one(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """The result of one inner step, the first of its body."""
    job().start()
    offered = take(hand, 1)
    return lambda: checkpoints.checkpoint(checkpoints_of(offered))


def checkpoint_one_more(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """A later one: the step says already that it has some."""
    job().start()
    [lease] = take(hand, 1)
    hand.checkpoint(lease, "first", 1)
    return lambda: hand.checkpoint(lease, "second", 2)


def checkpoint_ten_of_one_lease(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """No more than one."""
    job().start()
    offered = take(hand, 1)
    return lambda: checkpoints.checkpoint(checkpoints_of(offered, 10))


def checkpoint_ten_leases(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """Ten runs in one call."""
    job().start_many(range(10))
    offered = take(hand, 10)
    return lambda: checkpoints.checkpoint(checkpoints_of(offered))


def suspend_on(*waits: WaitFor) -> Callable[[Desk, Hand], Callable[[], Any]]:
    """`suspend`."""

    def prepared(desk: Desk, hand: Hand) -> Callable[[], Any]:
        job().start()
        [lease] = take(hand, 1)
        return lambda: hand.park(lease, *waits)

    return prepared


def wake_by_timer(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """A sleep that is over, without the tick's own statements."""
    suspend_on(sleep("nap", 60))(desk, hand)()
    desk.now += timedelta(seconds=60)
    return lambda: timers.run_once(desk.now, 100)


def wake_by_signal(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """A signal that a parked body takes."""
    run = job().start()
    [lease] = take(hand, 1)
    hand.park(lease, event("called"))
    return lambda: events.signal(run.id, "called", {"n": 1})


def start_ten_children(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """`children`, of the run's own workflow."""
    job().start()
    [lease] = take(hand, 1)
    return lambda: hand.children(lease, "all", "job", range(10))


def park_on_ten_children(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """`suspend` until they are over: whether they are is one statement."""
    job().start()
    [lease] = take(hand, 1)
    for place in range(10):
        hand.child(lease, f"c{place}", "job")
    return lambda: hand.park(lease, *[end_of(f"c{place}") for place in range(10)])


def claim_with_checkpoints(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """What is stored of the bodies is one statement for all of them."""
    job().start_many(range(10))
    offered = take(hand, 10)
    checkpoints.checkpoint(checkpoints_of(offered, 3))
    outcomes.report([Report(lease.id, Outcome.suspended((sleep("nap", 0),))) for lease in offered])
    return hand.claim


def complete_with_usage(runs: int) -> Callable[[Desk, Hand], Callable[[], Any]]:
    """As without; the prices, the records and the spans are one statement each."""

    def prepare(desk: Desk, hand: Hand) -> Callable[[], Any]:
        job().start_many(range(runs))
        used = tuple(Usage(unit=unit, amount="1", model="m") for unit in ("in", "out"))
        span = {"id": "00f067aa0ba902b7", "name": "call", "start": "2024-01-01T09:00:00Z", "end": "2024-01-01T09:00:01Z"}
        offered = take(hand, runs)
        return lambda: outcomes.report([Report(lease.id, Outcome.completed(usage=used, spans=(span,))) for lease in offered])

    return prepare


def fire_a_schedule(overlap: str, state: str) -> Callable[[Desk, Hand], Callable[[], Any]]:
    """One occurrence: the schedule and its definition, what has a row, what is at work, what waits; then the occurrence, the start, the next time."""

    def prepare(desk: Desk, hand: Hand) -> Callable[[], Any]:
        desk.worker(job("nightly", cron=Cron("0 * * * *", overlap=overlap, payload=1)))
        desk.tick()
        desk.advance(hours=1 if state == "at work" else 0)
        desk.now += timedelta(hours=1)
        [pk] = Schedule.objects.values_list("pk", flat=True)
        return lambda: firing.see_to(pk)

    return prepare


LIMITED: Final[Mapping[str, Workflow]] = {
    "slots": job("slots", concurrency=Concurrency(1, key_expr="payload")),
    "turns": job("turns", rate=RateLimit(100, per=60)),
    "both": job("both", concurrency=Concurrency(1, key_expr="payload"), rate=RateLimit(100, per=60)),
    "rejecting": job("rejecting", concurrency=Concurrency(1, on_limit="reject")),
}
"""Workflows whose runs have to be let in."""


def start_limited(name: str) -> Callable[[Desk, Hand], Callable[[], Any]]:
    """As any start: nothing opens, nothing is looked at before the commit. What may be refused: its bucket's door, the newest limits, the count."""
    return lambda desk, hand: lambda: LIMITED[name].start("a")


def look_at_starts(name: str, of: Callable[[int], str], count: int = 10) -> Callable[[Desk, Hand], Callable[[], Any]]:
    """What follows the commit of so many starts."""

    def prepared(desk: Desk, hand: Hand) -> Callable[[], Any]:
        LIMITED[name].start_many([of(place) for place in range(count)])
        started = list(Run.objects.filter(workflow=name, status="queued"))
        assert len(started) == count
        return lambda: admission.after_commit(started)

    return prepared


def look_at_an_end(*payloads: str) -> Callable[[Desk, Hand], Callable[[], Any]]:
    """What follows the commit of an end in a bucket."""

    def prepared(desk: Desk, hand: Hand) -> Callable[[], Any]:
        first = LIMITED["slots"].start_many(payloads)[0]
        desk.tick()
        first.cancel()
        ended = [Run.objects.get(pk=first.id)]
        return lambda: admission.after_commit(ended)

    return prepared


def tick_when_idle(desk: Desk, hand: Hand) -> Callable[[], Any]:
    """One statement asks for the earliest due moment over all duties."""
    job().start()
    take(hand, 1)
    desk.tick()
    return maintenance.tick


VERBS: Final[Mapping[str, Callable[[Desk, Hand], Callable[[], Any]]]] = {
    "start": start_one,
    "start with labels and key": start_one_of_everything,
    "start_many of 10": start_ten,
    "claim nothing": claim_nothing,
    "claim 1": claim_one,
    "claim 10": claim_ten,
    "started 1": start_a_lease,
    "started 10": start_ten_leases,
    "heartbeat 10": beat_ten,
    "complete in a chain": complete_in_the_middle,
    "complete the last": complete_the_last,
    "complete 10 runs": complete_ten_runs,
    "complete 10 of one run": complete_ten_of_one_run,
    "complete the last with usage": complete_with_usage(1),
    "complete 10 runs with usage": complete_with_usage(10),
    "fail with a retry left": fail_with_a_retry_left,
    "fail for good": fail_for_good,
    "signal": signal_a_wait,
    "cancel": cancel_a_run,
    "pause": pause_a_run,
    "tick when idle": tick_when_idle,
    "start in line": start_limited("slots"),
    "start that may be refused": start_limited("rejecting"),
    "let in 1": look_at_starts("slots", str, count=1),
    "let in 10 of 10 buckets": look_at_starts("slots", str),
    "let in 1 of 10": look_at_starts("slots", lambda _: "a"),
    "let in 10 by turns": look_at_starts("turns", str),
    "let in 10 by turns and slots": look_at_starts("both", str),
    "an end nobody waits for": look_at_an_end("a"),
    "an end somebody waits for": look_at_an_end("a", "a"),
    "fire": fire_a_schedule("skip", "idle"),
    "fire side by side": fire_a_schedule("allow", "at work"),
    "skip an occurrence": fire_a_schedule("skip", "at work"),
    "queue an occurrence": fire_a_schedule("queue", "at work"),
    "checkpoint 1": checkpoint_one,
    "checkpoint 1 more": checkpoint_one_more,
    "checkpoint 10 of one lease": checkpoint_ten_of_one_lease,
    "checkpoint 10 leases": checkpoint_ten_leases,
    "suspend on a sleep": suspend_on(sleep("nap", 60)),
    "suspend on a sleep that is over": suspend_on(sleep("nap", 0)),
    "suspend on an event": suspend_on(event("called", key="A-1", timeout_ms=1_000)),
    "suspend on 10 events": suspend_on(*[event(f"e{place}") for place in range(10)]),
    "wake by a timer": wake_by_timer,
    "wake by a signal": wake_by_signal,
    "children 10": start_ten_children,
    "suspend on 10 children": park_on_ten_children,
    "claim 10 with checkpoints": claim_with_checkpoints,
}


COUNTS: Final[Mapping[str, int]] = {
    "start": 4,
    "start with labels and key": 7,
    "start_many of 10": 4,
    "claim nothing": 3,
    "claim 1": 7,
    "claim 10": 7,
    "started 1": 7,
    "started 10": 7,
    "heartbeat 10": 2,
    "complete in a chain": 9,
    "complete the last": 7,
    "complete 10 runs": 7,
    "complete 10 of one run": 9,
    "complete the last with usage": 10,
    "complete 10 runs with usage": 10,
    "fail with a retry left": 7,
    "fail for good": 12,
    "signal": 15,
    "cancel": 9,
    "pause": 4,
    "tick when idle": 1,
    "start in line": 4,
    "start that may be refused": 7,
    "let in 1": 9,
    "let in 10 of 10 buckets": 9,
    "let in 1 of 10": 9,
    "let in 10 by turns": 14,
    "let in 10 by turns and slots": 16,
    "an end nobody waits for": 1,
    "an end somebody waits for": 10,
    "fire": 12,
    "fire side by side": 11,
    "skip an occurrence": 8,
    "queue an occurrence": 8,
    "checkpoint 1": 8,
    "checkpoint 1 more": 7,
    "checkpoint 10 of one lease": 8,
    "checkpoint 10 leases": 17,
    "suspend on a sleep": 9,
    "suspend on a sleep that is over": 10,
    "suspend on an event": 16,
    "suspend on 10 events": 34,
    "wake by a timer": 10,
    "wake by a signal": 18,
    "children 10": 16,
    "suspend on 10 children": 9,
    "claim 10 with checkpoints": 8,
}
"""The same on every database, but for `OWN`."""

JOIN: Final = 11
"""Completing the last parent of a join: as in a chain, the gathered writes and the parents' outputs between."""

CLAIM_WITH_ANCESTORS: Final = COUNTS["claim 1"] + 1
"""The outputs of the leases' ancestors are one statement more."""

OWN: Final[Mapping[tuple[str, str], int]] = {
    # The wait for whoever holds the same key is bounded there: three statements to set the bound and to put it back.
    ("postgresql", "start with labels and key"): 10,
    ("mysql", "start with labels and key"): 10,
    # SQLite has one writer: no gate and no door is locked there.
    ("sqlite", "start that may be refused"): 6,
    ("sqlite", "let in 1"): 8,
    ("sqlite", "let in 10 of 10 buckets"): 8,
    ("sqlite", "let in 1 of 10"): 8,
    ("sqlite", "let in 10 by turns and slots"): 15,
    ("sqlite", "an end somebody waits for"): 9,
}


def warm(desk: Desk) -> Hand:
    """A worker of everything here; each plan is in this process's memory, as it is but for the first call."""
    every = [job(), chain("a", "b"), chain("a", "b", retry=Retry(max_attempts=2)), waiting(), fan(20)]
    hand = desk.worker(*every)
    handles = [workflow.start() for workflow in every]
    assert [handle.cancel() for handle in handles] == ["cancelled"] * len(every)
    assert {workflow.start("warm").cancel() for workflow in LIMITED.values()} == {"cancelled"}
    return hand


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_makes_as_many_statements_as_are_written_here(desk: Desk, verb: str) -> None:
    call = VERBS[verb](desk, warm(desk))
    assert counted(call) == OWN.get((connection.vendor, verb), COUNTS[verb])


def test_every_verb_has_its_number() -> None:
    assert set(COUNTS) == set(VERBS)
    assert {verb for _, verb in OWN} <= set(VERBS)


def test_an_idle_look_of_a_held_claim_is_one_statement_over_all_partitions(desk: Desk) -> None:
    App.objects.update(partitions=32)
    hand = warm(desk)
    held = leases.open_claim(ClaimRequest(worker_id=hand.session.worker_id, claim_id="held", max=10, serves=hand.serves))
    assert [counted(held.look), counted(held.look_again)] == [1, 1]


def test_a_held_claim_that_finds_something_takes_one_statement_more_than_one_at_once(desk: Desk) -> None:
    hand = warm(desk)
    request = ClaimRequest(worker_id=hand.session.worker_id, claim_id="held", max=1, serves=hand.serves)
    at_once, later = leases.open_claim(request), leases.open_claim(replace(request, claim_id="later"))
    job().start_many(range(2))
    assert counted(later.look_again) == counted(at_once.look) + 1


def test_emit_with_one_receiver_and_the_work_after_its_commit(desk: Desk, django_capture_on_commit_callbacks: Any) -> None:
    warm(desk)
    run = waiting().start()

    def emit_and_commit() -> None:
        with django_capture_on_commit_callbacks(execute=True):
            emit("called", payload={"n": 1})

    assert counted(emit_and_commit) == {"postgresql": 19}.get(connection.vendor, 18)
    assert run.phase == "queued"


def test_after_a_commit_waiting_workers_are_told_in_one_statement_at_most(desk: Desk, django_capture_on_commit_callbacks: Any) -> None:
    """On PostgreSQL a NOTIFY, once per app and outside the transaction; elsewhere they look by themselves."""
    complete = complete_in_the_middle(desk, warm(desk))
    with django_capture_on_commit_callbacks() as callbacks:
        complete()
    assert counted(lambda: [callback() for callback in callbacks]) == {"postgresql": 1}.get(connection.vendor, 0)


@pytest.mark.parametrize("width", [100, 1_000])
def test_completing_the_head_of_a_fan_costs_the_same_however_wide_it_is(desk: Desk, width: int) -> None:
    """B62: a thousand children are made ready by as many statements as a hundred."""
    hand = desk.worker(fan(width))
    fan(width).start()
    offered = take(hand, 1)
    assert counted(lambda: outcomes.report(completed(offered))) == COUNTS["complete in a chain"]


@pytest.mark.parametrize("width", [100, 1_000])
def test_completing_one_of_a_fan_costs_the_same_however_wide_it_is(desk: Desk, width: int) -> None:
    """B62: the join is counted down, not looked at again through all its parents."""
    hand = desk.worker(fan(width))
    fan(width).start()
    outcomes.report(completed(take(hand, 1)))
    offered = take(hand, 1)
    assert counted(lambda: outcomes.report(completed(offered))) == COUNTS["complete in a chain"]


@pytest.mark.parametrize("width", [100, 1_000])
def test_the_last_of_a_fan_opens_the_join_at_the_same_cost_however_wide_it_is(desk: Desk, width: int) -> None:
    """B62: the join's input is read by one statement."""
    hand = desk.worker(fan(width))
    fan(width).start()
    outcomes.report(completed(take(hand, 1)))
    offered = [lease for _ in range(width // 100) for lease in take(hand, 100)]
    *others, last = offered
    outcomes.report(completed(others))
    assert counted(lambda: outcomes.report(completed([last]))) == JOIN
    assert [lease.step for lease in hand.claim()] == ["last"]


@pytest.mark.parametrize("width", [100, 1_000])
def test_a_claim_costs_the_same_however_many_steps_wait(desk: Desk, width: int) -> None:
    hand = desk.worker(fan(width))
    fan(width).start()
    outcomes.report(completed(take(hand, 1)))
    assert counted(lambda: hand.claim(10)) == CLAIM_WITH_ANCESTORS
