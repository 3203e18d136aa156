"""The threads of sync bodies: which jobs run, where, and what becomes of those that are left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from ezgh_workflows_django.worker.pool import Pool

spoken: ContextVar[str] = ContextVar("spoken", default="nothing")


class Bench:
    """A pool of one thread and one spare. A thread that ends waits at the gate, where one is set up, before it is gone."""

    def __init__(self, size: int = 1) -> None:
        self.gate: threading.Event | None = None
        self.at_gate = threading.Event()
        self.crashes: list[BaseException] = []
        self.pool = Pool(size, spare=1, on_crash=self.crashes.append, release=self._release)

    def begin(self, key: str) -> threading.Event:
        """A job that has begun; it ends when the event that this gives is set."""
        begun, end = threading.Event(), threading.Event()

        def job() -> None:
            begun.set()
            end.wait(60)

        self.pool.submit(key, job)
        assert begun.wait(60)
        return end

    def ran(self, key: str) -> threading.Event:
        """A job that sets the event that this gives."""
        done = threading.Event()
        self.pool.submit(key, done.set)
        return done

    def _release(self) -> None:
        if self.gate is not None:
            self.at_gate.set()
            self.gate.wait(60)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    if bench.gate is not None:
        bench.gate.set()
    bench.pool.close(5)
    assert bench.crashes == []


def test_a_job_that_comes_while_a_left_thread_is_about_to_end_gets_a_thread_of_its_own(bench: Bench) -> None:
    first = bench.begin("first")
    bench.pool.leave("first")
    second = bench.begin("second")
    bench.pool.leave("second")
    bench.gate = threading.Event()
    first.set()
    assert bench.at_gate.wait(60)
    assert bench.pool.capacity == 1
    assert bench.ran("third").wait(60)
    second.set()


def test_a_left_job_that_no_thread_has_taken_up_never_runs_and_costs_no_thread(bench: Bench) -> None:
    end = bench.begin("first")
    waiting = bench.ran("waiting")
    assert bench.pool.leave("waiting") is False
    assert bench.pool.stuck == 0
    end.set()
    assert bench.ran("next").wait(60)
    assert not waiting.is_set()


def test_leaving_a_job_that_has_begun_or_ended_says_so(bench: Bench) -> None:
    end = bench.begin("first")
    assert bench.pool.leave("first") is True
    assert bench.pool.leave("first") is True
    assert bench.pool.stuck == 1
    end.set()


def test_a_job_that_waits_runs_as_soon_as_a_stuck_thread_has_come_free(bench: Bench) -> None:
    ends = [bench.begin("first")]
    bench.pool.leave("first")
    ends.append(bench.begin("second"))
    bench.pool.leave("second")
    waiting = bench.ran("waiting")
    assert bench.pool.capacity == 0
    ends[0].set()
    assert waiting.wait(60)
    ends[1].set()


def test_a_job_finds_nothing_in_its_context_of_the_one_before(bench: Bench) -> None:
    heard: list[str] = []
    spoke, listened = threading.Event(), threading.Event()

    def speaks() -> None:
        spoken.set("a secret")
        spoke.set()

    def listens() -> None:
        heard.append(spoken.get())
        listened.set()

    bench.pool.submit("speaks", speaks)
    assert spoke.wait(60)
    bench.pool.submit("listens", listens)
    assert listened.wait(60)
    assert heard == ["nothing"]
