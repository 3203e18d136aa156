"""Bodies in processes of their own that are left behind: exactly the process of that body is ended. The processes are stand-ins."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from ezgh_workflows_django.protocol.outcomes import Answer, Outcome
from ezgh_workflows_django.testing.scripted import lease_of
from ezgh_workflows_django.worker import processes
from ezgh_workflows_django.worker.hands import Hands, Held
from ezgh_workflows_django.worker.processes import ProcessBodies
from ezgh_workflows_django.worker.serving import Serving
from ezgh_workflows_django.worker.transports.recipe import Recipe
from ezgh_workflows_django.worker.wear import Limits

from .bench import one_step

JOB = one_step(lambda: None)


class StandIn:
    """A process whose bodies end when the test says so; one that is killed goes on until then."""

    made: list[StandIn] = []
    most: int | None = None
    passes = 0

    def __init__(self, home: Recipe, limits: Limits) -> None:
        if len(self.made) == self.most:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        self.pid = len(self.made)
        self.spent: str | None = None
        self.is_up = True
        self.is_killed = False
        self.ran: list[Held] = []
        self.begun: Queue[Held] = Queue()
        self.may_end = threading.Semaphore(self.passes)
        self._process = SimpleNamespace(returncode=None)
        self.made.append(self)

    def run(self, held: Held, on_crash: Any) -> Any:
        self.ran.append(held)
        self.begun.put(held)
        self.may_end.acquire()
        return Outcome.completed("done"), None

    def kill(self) -> None:
        self.is_killed = True

    def tell(self, *said: Any) -> None:
        """Nobody hears it."""

    def end(self, *, kill: bool = False, patience: float = 5.0) -> str:
        return "ended"


class Bench:
    """One stand-in at work, and what ends."""

    def __init__(self) -> None:
        self.ended: Queue[Held] = Queue()
        self.classes: list[str | None] = []
        self.crashes: list[str] = []
        self.hands = Hands(2)
        self.bodies = ProcessBodies(
            1,
            Recipe("nowhere:nothing"),
            limits=Limits(),
            on_end=self._ended,
            on_crash=lambda error: self.crashes.append(str(error)),
            release=lambda: None,
        )

    def _ended(self, held: Held, outcome: Outcome, answer: Answer | None) -> None:
        self.classes.append(outcome.class_ or None)
        self.ended.put(held)

    def run(self) -> Held:
        lease = lease_of(JOB, "only")
        held = Held(lease, Serving([JOB]).find(lease), 0.0)
        self.hands.take([held])
        self.hands.begin(held)
        self.bodies.run(held)
        return held


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    StandIn.made.clear()
    monkeypatch.setattr(processes, "BodyProcess", StandIn)
    bench = Bench()
    yield bench
    for made in StandIn.made:
        made.may_end.release(10)
    bench.bodies.close(5)


def test_a_process_that_was_ended_as_its_body_ended_gets_no_other_body(bench: Bench) -> None:
    held = bench.run()
    [first] = StandIn.made
    assert first.begun.get(timeout=60) is held
    assert bench.bodies.leave(held)
    first.may_end.release()
    assert bench.ended.get(timeout=60) is held
    following = bench.run()
    second = StandIn.made[1]
    assert second.begun.get(timeout=60) is following
    assert (first.ran, first.is_killed, second.is_killed) == ([held], True, False)


def test_no_process_is_taken_away_between_the_look_and_the_kill(bench: Bench) -> None:
    held = bench.run()
    [process] = StandIn.made
    process.begun.get(timeout=60)
    locked: list[bool] = []
    process.kill = lambda: locked.append(bench.bodies._lock.locked())  # type: ignore[method-assign]  # what it is asked under
    bench.bodies.leave(held)
    assert locked == [True]


def test_a_body_that_has_no_process_yet_never_gets_one(bench: Bench) -> None:
    held = bench.run()
    [process] = StandIn.made
    process.begun.get(timeout=60)
    waiting = bench.run()
    assert bench.hands.leave(waiting)
    assert not bench.bodies.leave(waiting)
    process.may_end.release()
    assert {bench.ended.get(timeout=60), bench.ended.get(timeout=60)} == {held, waiting}
    assert process.ran == [held]


@pytest.fixture
def full(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose process is to be replaced after the next body, where the system has no room for another."""
    [process] = StandIn.made
    process.spent = "1 tasks are done"
    process.may_end.release()
    monkeypatch.setattr(StandIn, "most", 1)
    return bench


def test_a_body_has_ended_as_it_did_where_no_process_can_take_the_place_of_its_own(full: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    held = full.run()
    assert full.ended.get(timeout=60) is held
    monkeypatch.setattr(StandIn, "most", None)  # there is room again
    monkeypatch.setattr(StandIn, "passes", 1)
    following = full.run()
    assert full.ended.get(timeout=60) is following
    assert (full.classes, full.crashes, len(StandIn.made)) == ([None, None], [], 2)


def test_a_body_for_which_no_process_can_be_started_goes_back_and_the_worker_gives_up(full: Bench) -> None:
    done, following = full.run(), full.run()
    assert [full.ended.get(timeout=60), full.ended.get(timeout=60)] == [done, following]
    assert full.classes == [None, "returned"]
    assert full.crashes == [
        "the processes that are to run bodies do not come up; the last one could not be started: [Errno 11] Resource temporarily unavailable"
    ]
