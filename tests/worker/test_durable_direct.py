"""Durable functions in a real worker on a real database: threads, transactions, parking, retries and children together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from ezgh_workflows_django import Context, Retry, RunFailed, Worker, Workflow, workflow
from ezgh_workflows_django.engine import maintenance
from ezgh_workflows_django.engine.direct import DirectEngine
from ezgh_workflows_django.models import Run
from ezgh_workflows_django.worker.transports.direct import DirectTransport
from tests.process.conftest import until

from .bench import Running

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 10_000

tries: list[int] = []


def make(name: str) -> int:
    """One row."""
    return Group.objects.create(name=name).pk


def make_at_the_second_try() -> int:
    """One row, made in vain the first time."""
    made = make(f"try {len(tries)}")
    tries.append(made)
    if len(tries) == 1:
        raise ValueError("the first time")
    return len(tries)


@workflow("child")
def child(number: int) -> int:
    """What a parent waits for."""
    return number * 10


@workflow("sync-parent")
def sync_parent(ctx: Context) -> list[Any]:
    """Every kind of word that needs no event."""
    rows = ctx.map("rows", make, ["a", "b", "c"], concurrency=3)
    tried = ctx.step("tried", make_at_the_second_try, transactional=True, retry=Retry(max_attempts=2, initial=0.01))
    ctx.sleep("rest", 0.01)
    tens = ctx.gather(lambda: ctx.run_workflow("one", child, 1), lambda: ctx.run_batch("many", child, [2, 3]))
    return [len(rows), tried, tens]


@workflow("async-parent")
async def async_parent(ctx: Context) -> list[Any]:
    """The same, async."""
    rows = await ctx.map("rows", make, ["a", "b", "c"], concurrency=3)
    tried = await ctx.step("tried", make_at_the_second_try, transactional=True, retry=Retry(max_attempts=2, initial=0.01))
    await ctx.sleep("rest", 0.01)
    tens = await ctx.gather(ctx.run_workflow("one", child, 1), ctx.run_batch("many", child, [2, 3]))
    return [len(rows), tried, tens]


@workflow("whole", transactional=True)
def whole(ctx: Context) -> int:
    """A body that is one transaction with its outcome; it fails after its write where its input says so."""
    made = make(f"whole {ctx.input}")
    return made // (0 if ctx.input == "fails" else made)


@workflow("brood")
def brood(ctx: Context, count: int) -> None:
    """Waits for many children."""
    ctx.run_batch("all", child, range(count))


@contextmanager
def at_work(*workflows: Workflow) -> Iterator[None]:
    """A real worker meanwhile."""
    running = Running(Worker(DirectTransport(DirectEngine()), workflows=workflows))
    try:
        yield
    finally:
        assert running.stop() == 0


@pytest.mark.parametrize("parent", [sync_parent, async_parent], ids=["sync", "async"])
def test_a_durable_function_is_carried_to_its_end_with_each_effect_once(parent: Workflow) -> None:
    tries.clear()
    run = parent.start()
    with at_work(parent, child):
        assert run.result(30) == [3, 2, [10, [20, 30]]]
    assert sorted(Group.objects.values_list("name", flat=True)) == ["a", "b", "c", "try 1"]


@pytest.mark.parametrize(("input", "phase", "rows"), [("works", "succeeded", ["whole works"]), ("fails", "failed", [])])
def test_a_transactional_body_writes_its_rows_with_its_outcome_or_not_at_all(input: str, phase: str, rows: list[str]) -> None:
    run = whole.start(input)
    with at_work(whole), suppress(RunFailed):
        run.result(30)
    assert (run.phase, list(Group.objects.values_list("name", flat=True))) == (phase, rows)


@pytest.mark.long
@pytest.mark.skipif(connection.vendor != "postgresql", reason="at its size once: that it is linear, test_children_cost.py counts on each database")
def test_one_cancel_ends_ten_thousand_children_of_one_batch() -> None:
    """B62, at its size."""
    child.start(0)  # its definition is stored: who works on the children is not there
    run = brood.start(MANY)
    with at_work(brood):
        until(lambda: run.phase == "waiting", 100)
    assert Run.objects.filter(parent__pk=run.id, status="running").count() == MANY

    begun = time.monotonic()
    run.cancel("enough")
    until(lambda: maintenance.tick() and not Run.objects.filter(parent__pk=run.id, status="running").exists(), 100)
    print(f"{MANY} children cancelled in {time.monotonic() - begun:.1f} s")
    assert Run.objects.filter(parent__pk=run.id, status="cancelled").count() == MANY
