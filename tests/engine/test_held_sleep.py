"""How long a held claim sleeps between two looks while the database tells of new work: until a step of its own is due, never in a spin for another's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django import Retry, Step, Workflow
from ezgh_workflows_django.engine import apps, clock, leases, wakeups
from ezgh_workflows_django.engine import sleeps as engine_sleeps
from ezgh_workflows_django.engine.direct import DirectEngine
from ezgh_workflows_django.models import App
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.protocol.messages import Claimed, ClaimRequest, Serve
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body, job
from tests.engine.test_statements import CONTROL, counted
from tests.engine.test_wakeups import wait_until
from tests.engine.threads import PATIENCE, begin

ROUNDS = 3
PATIENT = wakeups.LOOK_EVERY_LISTENING


class Listening(wakeups.Listener):
    """One that is told of new work, though nobody tells it."""

    @property
    def patience(self) -> float:
        """As where a database tells."""
        return PATIENT

    def ensure(self) -> None:
        """It need not begin."""


class Sleeps:
    """The sleeps of a claim that is held: each moves the clock, and the last of `ROUNDS` ends it."""

    def __init__(self, desk: Desk) -> None:
        self.engine = DirectEngine()
        self.seconds: list[float] = []
        self._desk = desk

    def __call__(self, app_id: int, since: int, seconds: float, stopped: Any) -> None:
        self.seconds.append(seconds)
        self._desk.now += timedelta(seconds=seconds)
        if len(self.seconds) == ROUNDS:
            self.engine.interrupt()

    def hold(self, hand: Hand, **rest: Any) -> Claimed:
        """What the claim was answered in the end."""
        return self.engine.claim(request(hand, wait_ms=60_000, **rest))


@pytest.fixture
def sleeps(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Sleeps:
    """The sleeps of the test's one held claim, under a database that tells of new work."""
    made = Sleeps(desk)
    monkeypatch.setattr(wakeups, "listener", Listening())
    monkeypatch.setattr(wakeups, "pause", made)
    return made


def request(hand: Hand, **rest: Any) -> ClaimRequest:
    """A claim of one step."""
    return ClaimRequest(**{"worker_id": hand.session.worker_id, "claim_id": "held", "max": 1, "serves": hand.serves, **rest})


def two() -> Workflow:
    """Two steps beside each other."""
    return Workflow("two", [Step("a", run=body), Step("b", run=body)])


def only(hand: Hand, *steps: str) -> dict[str, Any]:
    """A claim of these steps only."""
    [serve] = hand.serves
    return {"serves": (Serve(serve.name, serve.revision, frozenset(steps)),)}


def a_step_that_is_not_served(desk: Desk) -> tuple[Hand, dict[str, Any]]:
    """`--only b` beside a ready `a`."""
    hand = desk.worker(two())
    two().start()
    hand.complete(*hand.claim(1, serves=only(hand, "b")["serves"]))
    return hand, only(hand, "b")


def a_definition_that_is_banned(desk: Desk) -> tuple[Hand, dict[str, Any]]:
    """It was found unable to serve what is ready."""
    hand = desk.worker(job())
    job().start()
    [lease] = hand.claim()
    hand.fail(lease, "unservable")
    return hand, {}


def a_step_of_another_run(desk: Desk) -> tuple[Hand, dict[str, Any]]:
    """`run=`, beside a run of the same workflow."""
    hand = desk.worker(job())
    mine = job().start()
    hand.take()
    job().start()
    return hand, {"run": mine.id}


def a_paused_workflow(desk: Desk) -> tuple[Hand, dict[str, Any]]:
    """What is ready is held back."""
    hand = desk.worker(job())
    job().start()
    apps.pause(App.objects.get(name="default"), by=("system", "test"), workflow="job")
    return hand, {}


def a_step_that_nobody_may_take_yet(desk: Desk) -> tuple[Hand, dict[str, Any]]:
    """It is due after the claim will have looked again anyway."""
    hand, _ = a_step_that_fails(desk, PATIENT * ROUNDS + 1)
    return hand, {}


def a_step_that_somebody_holds(desk: Desk) -> tuple[Hand, dict[str, Any]]:
    """It has been due for a while, and can't be had: what a look finds and can't lock looks like this too."""
    hand = desk.worker(job())
    job().start()
    StepRow.objects.update(available_at=desk.now - timedelta(minutes=1))
    apps.pause(App.objects.get(name="default"), by=("system", "test"))
    return hand, {}


TRIGGERS = (
    a_step_that_is_not_served,
    a_definition_that_is_banned,
    a_step_of_another_run,
    a_paused_workflow,
    a_step_that_nobody_may_take_yet,
    a_step_that_somebody_holds,
)


def a_step_that_fails(desk: Desk, seconds: float, priority: int = 0) -> tuple[Hand, str]:
    """It has failed once, and rests so long."""
    flaky = Workflow("flaky", [Step("work", run=body, retry=Retry(max_attempts=2))])
    hand = desk.worker(flaky)
    run = flaky.start(priority=priority)
    hand.fail(hand.take(), retry_after_ms=round(seconds * 1000))
    return hand, run.id


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_what_a_claim_would_not_take_does_not_wake_it(desk: Desk, sleeps: Sleeps, trigger: Callable[[Desk], tuple[Hand, dict[str, Any]]]) -> None:
    hand, rest = trigger(desk)
    opening = counted(lambda: leases.open_claim(request(hand, **rest)))
    answers: list[Claimed] = []
    assert counted(lambda: answers.append(sleeps.hold(hand, **rest))) <= opening + 2 * (ROUNDS + 1)
    assert sleeps.seconds == [PATIENT] * ROUNDS
    assert answers == [Claimed()]


@pytest.mark.parametrize("priority", [-100, 0, 100])
def test_a_claim_sleeps_until_a_step_of_its_own_is_due(desk: Desk, sleeps: Sleeps, priority: int) -> None:
    hand, run = a_step_that_fails(desk, 2, priority)
    assert [lease.run_id for lease in sleeps.hold(hand).leases] == [run]
    assert sleeps.seconds == [2]


def test_what_became_due_just_after_the_look_is_looked_for_soon(desk: Desk, sleeps: Sleeps, monkeypatch: pytest.MonkeyPatch) -> None:
    hand, run = a_step_that_fails(desk, 2)
    asked = leases.Claim.seconds_to_next

    def a_moment_later(call: leases.Claim) -> float:
        desk.now += timedelta(seconds=2.5 if not sleeps.seconds else 0)
        return asked(call)

    monkeypatch.setattr(leases.Claim, "seconds_to_next", a_moment_later)
    assert [lease.run_id for lease in sleeps.hold(hand).leases] == [run]
    assert sleeps.seconds == [engine_sleeps.AT_LEAST]


@pytest.fixture
def real_listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[wakeups.Listener]:
    """The listener of this process, begun afresh."""
    listener = wakeups.Listener()
    monkeypatch.setattr(wakeups, "listener", listener)
    yield listener
    listener.close()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL tells of new work")
@pytest.mark.parametrize("trigger", TRIGGERS[:3])
def test_a_claim_held_on_a_database_that_tells_sleeps_until_it_does(
    transactional_db: None, desk: Desk, real_listener: wakeups.Listener, monkeypatch: pytest.MonkeyPatch, trigger: Callable[[Desk], tuple[Hand, dict[str, Any]]]
) -> None:
    hand, rest = trigger(desk)
    clock.freeze(None)
    StepRow.objects.filter(status="ready").update(available_at=clock.StatementNow())
    real_listener.ensure()
    wait_until(lambda: real_listener.patience == PATIENT)
    seconds: list[float] = []
    really = wakeups.pause

    def pause(app_id: int, since: int, due_in: float, stopped: Any) -> None:
        seconds.append(due_in)
        really(app_id, since, due_in, stopped)

    monkeypatch.setattr(wakeups, "pause", pause)
    engine = DirectEngine()
    statements: list[int] = []

    def hold() -> Claimed:
        with CaptureQueriesContext(connection) as captured:
            answer = engine.claim(request(hand, wait_ms=50_000, **rest))
        statements.append(len([query for query in captured.captured_queries if not query["sql"].startswith(CONTROL)]))
        return answer

    held = begin(hold)
    wait_until(lambda: bool(seconds))
    engine.interrupt()
    assert held.result(PATIENCE) == Claimed()
    assert set(seconds) == {PATIENT}
    assert statements[0] <= 3 + 2 * (len(seconds) + 1)
