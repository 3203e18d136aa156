"""The side of a body's own process, in a thread of the test's: when it asks to be replaced."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from ezgh_workflows_django.errors import StepFailed
from ezgh_workflows_django.testing.scripted import ScriptedTransport, lease_of
from ezgh_workflows_django.worker.body_process import Child, Home
from ezgh_workflows_django.worker.context import Context
from ezgh_workflows_django.worker.serving import Serving
from ezgh_workflows_django.worker.wear import Limits

from .bench import one_step


@pytest.fixture
def run() -> Iterator[Callable[[Callable[..., Any]], Any]]:
    """`run(body)`: why the process wants to be replaced after that body, or None."""
    ours, theirs = multiprocessing.Pipe()
    threads: list[threading.Thread] = []

    def one(body: Callable[..., Any]) -> Any:
        job = one_step(body)
        child = Child(theirs, Home(ScriptedTransport(), Serving([job])), Limits())
        threads.append(threading.Thread(target=child.serve, daemon=True))
        threads[-1].start()
        ours.send(("run", lease_of(job, "only")))
        while True:
            assert ours.poll(10)
            word, *said = ours.recv()
            if word == "ended":
                return said[2]

    yield one
    ours.send(("end",))
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_a_process_goes_on_after_a_body_that_left_nothing_behind(run: Callable[..., Any]) -> None:
    assert run(lambda: 1) is None


def test_a_process_in_which_an_inner_step_left_a_thread_behind_is_replaced(run: Callable[..., Any]) -> None:
    gate = threading.Event()

    def body(ctx: Context) -> None:
        with suppress(StepFailed):
            ctx.step("slow", lambda: gate.wait(60), timeout=0.01)

    assert run(body) == "1 of its threads are stuck in functions that did not stop at their timeout"
    gate.set()
