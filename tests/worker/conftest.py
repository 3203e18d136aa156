"""A real worker on a scripted server, run in a thread of the test's; a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ezgh_workflows_django import clock
from ezgh_workflows_django.definitions.graph import Workflow
from ezgh_workflows_django.testing.scripted import ScriptedTransport
from ezgh_workflows_django.worker import Worker

from .bench import Ear, Running
from .passes import Calls, Manner, as_async, as_sync
from .post import Post


@pytest.fixture
def ear() -> Ear:
    """Hears what the worker of `work` says."""
    return Ear()


@pytest.fixture
def work(ear: Ear) -> Iterator[Callable[..., Running]]:
    """`work(transport, workflow, **options)`: a running worker, stopped after the test."""
    running: list[Running] = []

    def start(transport: ScriptedTransport, *workflows: Workflow, **options: Any) -> Running:
        usual: dict[str, Any] = {"listener": ear, "grace": 0.2, "maintenance": False}
        worker = Worker(transport, workflows=workflows, **(usual | options))
        running.append(Running(worker))
        return running[-1]

    yield start
    for one in running:
        one.stop()


@pytest.fixture
def now() -> Iterator[list[float]]:
    """The worker's clock, which stands still: add to `now[0]` to move it."""
    moment = [1_000.0]
    clock.set_source(lambda: moment[0])
    yield moment
    clock.set_source(None)


@pytest.fixture
def post(now: list[float]) -> Iterator[Post]:
    """A post whose clock stands still."""
    post = Post()
    yield post
    post.reporter.close(give_up=True)
    assert post.crashes == []


@pytest.fixture(params=[as_sync, as_async], ids=["sync", "async"])
def body(request: pytest.FixtureRequest) -> Manner:
    """Makes a body of a generator that yields its words: sync, then async."""
    manner: Manner = request.param
    return manner


@pytest.fixture
def calls() -> Calls:
    """Functions for inner steps that keep count of their calls."""
    return Calls()
