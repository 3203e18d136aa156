"""Calls that meet: real threads, each with a connection of its own, on the database the suite runs on."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from ezgh_workflows_django import Retry, Step, Wait, Workflow, emit
from ezgh_workflows_django.engine import leases, maintenance, outcomes, reclaim, retention
from ezgh_workflows_django.errors import WorkflowsError
from ezgh_workflows_django.models import Event, Lease, Receipt, Run
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.protocol.messages import Beat
from ezgh_workflows_django.protocol.outcomes import Outcome, Report
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body, job, undone, why
from tests.engine.threads import answer_of, together
from tests.invariant_guard import broken

pytestmark = pytest.mark.usefixtures("transactional_db")


def fan_in(width: int) -> Any:
    """So many parallel steps, then a join."""
    names = [f"p{n}" for n in range(width)]
    return Workflow("fan", steps=[*[Step(name, run=body) for name in names], Step("join", after=names, run=body)])


# Fan-in


def test_parents_that_complete_at_one_moment_open_their_join_once(desk: Desk) -> None:
    """B59."""
    fan = fan_in(24)
    hand = desk.worker(fan)
    run = fan.start(0)
    offered = hand.claim(100)
    leases.started([lease.id for lease in offered])
    answers = together([lambda lease=lease: hand.complete(lease, lease.step) for lease in offered])  # type: ignore[misc]  # a lambda's default
    [join] = hand.claim(100)
    assert ([answer.refused for answer in answers], join.step, join.input) == ([None] * 24, "join", {f"p{n}": f"p{n}" for n in range(24)})
    assert (desk.step(run, "join").token, desk.run(run).open_steps) == (1, 1)


def test_groups_of_outcomes_of_the_same_runs_open_each_join_once(desk: Desk) -> None:
    """B59: the grouped call takes the locks it can get, and does the rest alone."""
    fan = fan_in(4)
    hand = desk.worker(fan)
    runs = fan.start_many(range(5))
    offered = hand.claim(100)
    leases.started([lease.id for lease in offered])
    groups = [[lease for lease in offered if lease.step == f"p{n}"] for n in range(4)]
    together([lambda group=group: outcomes.report([Report(lease.id, Outcome.completed(1)) for lease in group]) for group in groups])  # type: ignore[misc]
    joins = hand.claim(100)
    assert (Counter(lease.run_id for lease in joins), {lease.step for lease in joins}) == (Counter(run.id for run in runs), {"join"})


# Claims


def test_claims_at_one_moment_get_distinct_steps(desk: Desk) -> None:
    """B14, with threads."""
    hands = [desk.worker(job(), name=f"w{n}") for n in range(4)]
    job().start_many(range(120))

    def take_all(hand: Hand) -> list[str]:
        return [lease.run_id for offered in iter(lambda: hand.claim(7), ()) for lease in offered]

    taken = together([lambda hand=hand: take_all(hand) for hand in hands])  # type: ignore[misc]  # a lambda's default
    left = list(itertools.chain.from_iterable(iter(hands[0].claim, ())))
    runs = [*itertools.chain(*taken), *[lease.run_id for lease in left]]
    assert (len(runs), len(set(runs)), Lease.objects.filter(live_step__isnull=False).count()) == (120, 120, 120)


def test_a_claim_beside_a_cancel_never_leaves_a_live_lease_behind(desk: Desk) -> None:
    hand = desk.worker(job())
    runs = job().start_many(range(30))
    together([lambda: [run.cancel() for run in runs], lambda: [hand.claim(3) for _ in runs]])
    assert Lease.objects.filter(live_step__isnull=False).count() == 0
    assert StepRow.objects.exclude(status="cancelled").count() == 0
    assert hand.claim() == ()


# Cancel and complete


@pytest.mark.parametrize("offset_ms", [-2, -1, 0, 1, 2])
def test_cancel_and_complete_at_one_moment_agree_with_the_final_state(desk: Desk, offset_ms: int) -> None:
    """B10, order 3."""
    hand = desk.worker(job())
    for _ in range(10):
        run = job().start(1)
        complete = partial(hand.complete, hand.take())
        cancelled, answer = together([partial(later, max(0, offset_ms), answer_of(run.cancel)), partial(later, max(0, -offset_ms), complete)])
        assert (cancelled == "cancelled") == (run.status == "cancelled") == (answer.refused is not None)
        assert run.status == ("cancelled" if answer.refused else "succeeded")
        assert answer.refused is None or why(answer) == "run_terminal"


def later(milliseconds: float, call: Callable[[], Any]) -> Any:
    """The call, a moment later."""
    time.sleep(milliseconds / 1000)
    return call()


# Reclaim and complete


@pytest.mark.parametrize("attempt", range(10))
def test_a_reclaim_beside_a_complete_has_one_winner(desk: Desk, attempt: int) -> None:
    """B01, fifty times: whichever commits first, the other changes nothing."""
    hand = desk.worker(job())
    runs = job().start_many(range(5))
    offered = hand.claim()
    leases.started([lease.id for lease in offered])
    desk.advance(31)
    assert {desk.lease(lease).status for lease in offered} == {"orphaned"}
    desk.now += timedelta(seconds=31)
    answers, _ = together([lambda: [hand.complete(lease, "first") for lease in offered], lambda: later(attempt / 2, lambda: reclaim.run_once(desk.now, 100))])
    won = {lease.run_id for lease, answer in zip(offered, answers, strict=True) if answer.refused is None}
    assert {run.id for run in runs if run.status == "succeeded"} == won
    assert broken() == []
    assert {why(answer) for answer in answers if answer.refused} <= {"fenced"}
    assert {lease.run_id for lease in hand.claim()} == {run.id for run in runs} - won


# Events and waits


@pytest.mark.parametrize("emits_first_ms", [-1, -0.5, 0, 0.5, 1])
def test_an_event_sent_while_its_wait_opens_is_not_lost(desk: Desk, emits_first_ms: float) -> None:
    """B08, fifty times: seen at once or at the next tick, and taken once."""
    order: Any = Workflow("order", steps=[Step("work", run=body), Step("wait", after=["work"], wait=Wait("paid", key_expr="payload"))])
    hand = desk.worker(order)
    for place in range(10):
        run = order.start(f"k{place}")
        complete, send = partial(hand.complete, hand.take()), partial(emit, "paid", key=f"k{place}", payload=place)
        together([partial(later, max(0, emits_first_ms), complete), partial(later, max(0, -emits_first_ms), send)])
        desk.tick()
        assert (run.phase, run.result(), Receipt.objects.filter(run=run.id).count()) == ("succeeded", place, 1)


@pytest.mark.parametrize("round_", range(5))
def test_a_signal_sent_while_its_wait_opens_is_not_lost(desk: Desk, round_: int) -> None:
    """B08: both hold the run's lock, so one sees the other."""
    order: Any = Workflow("order", steps=[Step("work", run=body), Step("wait", after=["work"], wait=Wait("paid"))])
    hand = desk.worker(order)
    run = order.start(0)
    lease = hand.take()
    together([lambda: hand.complete(lease), lambda: run.signal("paid", round_)])
    assert (run.phase, run.result()) == ("succeeded", round_)


def test_two_events_and_two_waits_at_one_moment_are_paired_off(desk: Desk) -> None:
    pair: Any = Workflow("pair", steps=[Step("one", wait=Wait("paid")), Step("two", wait=Wait("paid"))])
    runs = pair.start_many(range(6))
    together([lambda: emit("paid", payload="a"), lambda: emit("paid", payload="b")])
    desk.tick()
    assert [sorted(step.output for step in run.steps) for run in runs] == [['"a"', '"b"']] * 6
    assert Receipt.objects.count() == 12


def test_an_event_id_used_at_one_moment_is_one_event(desk: Desk) -> None:
    receipts = together([lambda: emit("paid", event_id="e-1")] * 6)
    assert (len({receipt.id for receipt in receipts}), sorted(receipt.known for receipt in receipts)) == (1, [False] + [True] * 5)


def test_where_the_first_to_use_an_event_id_rolls_back_the_next_one_stores_the_event(desk: Desk) -> None:
    """B88, for events: no deadlock undoes a caller's transaction."""

    def send(place: int) -> None:
        undone(lambda: emit("paid", event_id="e-1")) if place else emit("paid", event_id="e-1")

    together([partial(send, place) for place in range(5)])
    assert Event.objects.filter(event_id="e-1").count() == 1


# Everything at once


def mixed() -> Any:
    """Twenty steps: parallel ones, chains behind them, waits, a join; failures are retried once."""
    heads = [Step(f"a{n}", run=body) for n in range(6)]
    tails = [Step(f"b{n}", after=[f"a{n}"], run=body) for n in range(6)]
    waits = [Step(f"w{n}", after=[f"b{n}"], wait=Wait("go", timeout=600, on_timeout="continue")) for n in range(3)]
    last = [Step(f"c{n}", after=["w0", f"b{n + 2}"], run=body) for n in range(4)]
    return Workflow(
        "mixed", steps=[*heads, *tails, *waits, *last, Step("join", after=[step.name for step in last], run=body)], retry=Retry(2, initial=1), on_failure=body
    )


FEW = 4
"""Runs at work, at which no more are started: calls are to meet."""


class Mix:
    """Threads that all work on the same few runs for a while, and on those that come after them."""

    def __init__(self, desk: Desk, runs: list[Any], seconds: float) -> None:
        self._desk = desk
        self._runs = runs
        self._until = time.monotonic() + seconds
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()

    def repeat(self, seed: int, calls: list[tuple[str, Callable[[random.Random], Any]]]) -> None:
        """Make each call once, then calls by chance until the time is over. A refusal is an answer; any other error is the test's failure."""
        chance = random.Random(seed)
        first = chance.sample(calls, len(calls))
        while first or time.monotonic() < self._until:
            name, call = first.pop() if first else chance.choice(calls)
            try:
                call(chance)
            except WorkflowsError:
                name += " refused"
            with self._lock:
                self.calls[name] += 1

    def work(self, hand: Hand, seed: int) -> None:
        """A worker: claims, starts, heartbeats, completes, fails, loses leases."""
        held: list[Any] = []

        def take(chance: random.Random) -> None:
            offered = hand.claim(chance.randint(1, 4))
            leases.started([lease.id for lease in offered])
            held.extend(offered)

        def end(chance: random.Random) -> None:
            some = [held.pop(chance.randrange(len(held))) for _ in range(min(len(held), chance.randint(1, 3)))]
            outcomes.report([Report(lease.id, Outcome.completed(1) if chance.random() < 0.9 else Outcome.failed("error", "boom")) for lease in some])

        def beat(_: random.Random) -> None:
            leases.heartbeat([Beat(lease.id) for lease in held[:3]])

        def lose(_: random.Random) -> None:
            del held[6:]

        self.repeat(seed, [("take", take), ("end", end), ("end", end), ("beat", beat), ("lose", lose)])

    def operate(self, seed: int) -> None:
        """An operator, and the outside."""

        def call(name: str, chance: random.Random, *args: str) -> None:
            getattr(chance.choice(self._runs[-FEW:]), name)(*args)

        def cancel_several(chance: random.Random) -> None:
            for run in chance.sample(self._runs[-FEW:], 3):
                with suppress(WorkflowsError):
                    run.cancel()

        verbs = [(name, partial(call, name)) for name in ("cancel", "retry", "pause", "resume", "resume")]
        self.repeat(seed, [*verbs, ("signal", lambda chance: call("signal", chance, "go")), ("emit", lambda _: emit("go")), ("cancel several", cancel_several)])

    def maintain(self, seed: int) -> None:
        """Maintenance, with a clock that runs fast; what has ended goes, and others come."""

        def tick(_: random.Random) -> None:
            with self._lock:
                self._desk.now += timedelta(seconds=1)
            maintenance.tick()

        def prune(_: random.Random) -> None:
            retention.prune(self._desk.now, 10, timedelta(0))

        def start(_: random.Random) -> None:
            if Run.objects.live().count() < FEW:
                self._runs.extend(mixed().start_many(range(2)))

        self.repeat(seed, [("tick", tick), ("tick", tick), ("tick", tick), ("prune", prune), ("start", start)])


@pytest.mark.long
def test_a_mix_of_verbs_over_a_few_runs_deadlocks_nobody_and_breaks_nothing(desk: Desk) -> None:
    """B67, B68: no error of the database reaches a caller, and J1 to J3 hold afterwards."""
    workflow = mixed()
    hands = [desk.worker(workflow, name=f"w{n}") for n in range(3)]
    runs = list(workflow.start_many(range(5)))
    desk.tick()
    mix = Mix(desk, runs, 4)
    together(
        [
            *[lambda hand=hand, n=n: mix.work(hand, n) for n, hand in enumerate(hands)],
            lambda: mix.operate(10),
            lambda: mix.operate(11),
            lambda: mix.maintain(20),
            lambda: mix.maintain(21),
        ]
    )
    assert broken() == []
    assert {"take", "end", "emit", "tick"} <= set(mix.calls)
    assert {"cancel", "retry", "pause", "resume", "signal"} & set(mix.calls), f"all that the operators asked for was refused: {mix.calls}"


@pytest.mark.long
def test_what_a_mix_of_verbs_left_can_be_brought_to_its_end(desk: Desk) -> None:
    workflow = mixed()
    hand = desk.worker(workflow)
    runs = list(workflow.start_many(range(5)))
    desk.tick()
    mix = Mix(desk, runs, 1.5)
    together([lambda: mix.work(hand, 1), lambda: mix.operate(2), lambda: mix.maintain(3)])
    bring_to_the_end(desk, hand, runs)
    assert (broken(), Run.objects.live().count()) == ([], 0)


def bring_to_the_end(desk: Desk, hand: Hand, runs: list[Any]) -> None:
    """Resume what is paused, let lost leases and timers come due, and work everything off."""
    for run in runs:
        answer_of(run.resume)()
    for _ in range(24):
        desk.advance(61)
        hand.work_off()
