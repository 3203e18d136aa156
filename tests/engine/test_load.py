"""Everything at once on one database: nobody is shown an error, nothing is lost (cases B14, B15, B67, B68)."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connections, transaction

from ezgh_workflows_django import Retry, Step, Workflow
from ezgh_workflows_django.engine import maintenance
from ezgh_workflows_django.engine.direct import DirectEngine
from ezgh_workflows_django.models import Run
from ezgh_workflows_django.protocol.states import RunStatus
from ezgh_workflows_django.worker.context import Context
from ezgh_workflows_django.worker.transports.direct import DirectTransport
from ezgh_workflows_django.worker.worker import Worker

STRETCH = 4.0
"""Seconds of load."""


def flow() -> Workflow:
    """Three steps, one of which fails the first time."""
    seen: set[str] = set()

    def flaky(ctx: Context, value: Any) -> Any:
        if ctx.info.run_id not in seen:
            seen.add(ctx.info.run_id)
            raise RuntimeError("the first time")
        return value

    return Workflow(
        "flow",
        steps=[
            Step("a", run=lambda value: value),
            Step("b", run=flaky, after=["a"], retry=Retry(max_attempts=3, initial=0.01)),
            Step("c", run=lambda value: value, after=["a", "b"]),
        ],
    )


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_workers_starts_cancels_and_readers_go_on_together_without_an_error() -> None:
    workflow = flow()
    started: list[str] = []
    cancelled: set[str] = set()
    stop = threading.Event()

    def start_in_a_transaction() -> None:
        with transaction.atomic():
            Group.objects.filter(name="a").exists()
            group = Group.objects.create(name=f"group {len(started)} {time.monotonic_ns()}")
            handle = workflow.start({"group": group.pk})
        started.append(handle.id)

    def cancel_one() -> None:
        if len(started) > 20:
            handle = Run.objects.filter(status=RunStatus.RUNNING).order_by("?").values_list("pk", flat=True).first()
            if handle is not None and _cancel(handle):
                cancelled.add(str(handle))
        time.sleep(0.05)

    def read() -> None:
        list(Run.objects.select_related("app").order_by("-id")[:50])
        time.sleep(0.02)

    worker = Worker(DirectTransport(DirectEngine()), workflows=[workflow], concurrency=8, name="loaded")
    errors: list[BaseException] = []
    threads = [_loop(work, stop, errors) for work in (start_in_a_transaction, cancel_one, read, maintenance.tick)]
    codes: list[int] = []
    serving = threading.Thread(target=lambda: codes.append(worker.run_sync()))
    for thread in [*threads, serving]:
        thread.start()
    time.sleep(STRETCH)
    stop.set()
    for thread in threads:
        thread.join(30)
    _wait_until(lambda: not Run.objects.filter(status=RunStatus.RUNNING).exists(), 60)
    worker.stop()
    serving.join(30)

    assert errors == []
    assert codes == [0]
    ended = {str(pk): status for pk, status in Run.objects.values_list("pk", "status")}
    assert set(ended) == set(started)
    assert {run for run, status in ended.items() if status != RunStatus.SUCCEEDED} == cancelled


def _cancel(run_id: uuid.UUID) -> bool:
    from ezgh_workflows_django.engine import runs
    from ezgh_workflows_django.errors import RunTerminal

    try:
        return runs.cancel(run_id) == RunStatus.CANCELLED
    except RunTerminal:
        return False


def _loop(work: Callable[[], object], stop: threading.Event, errors: list[BaseException]) -> threading.Thread:
    def run() -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as error:  # noqa: BLE001 - the test shows it
            errors.append(error)
        finally:
            connections.close_all()

    return threading.Thread(target=run)


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "not in time"
        time.sleep(0.1)
