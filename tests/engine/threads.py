"""Calls at the same moment, each in a thread with a database connection of its own. For tests with `transactional_db`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from django.db import connections

PATIENCE = 60.0
"""Seconds after which a thread that does not answer fails its test."""


def together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Let all calls go at one moment; their answers in order. Raises the first error of any of them."""
    barrier = threading.Barrier(len(calls))
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(_alone, call, barrier) for call in calls]
        return [future.result(PATIENCE) for future in futures]


def elsewhere(call: Callable[[], Any]) -> Any:
    """What the call gives on another connection: it sees only what is committed."""
    return together([call])[0]


def begin(call: Callable[[], Any]) -> Future[Any]:
    """Let a call run beside the test; ask the future for its answer with `PATIENCE`."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(_alone, call, threading.Barrier(1))
    pool.shutdown(wait=False)
    return future


def answer_of(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call with its error, if it raises one, as its answer."""

    def attempt() -> Any:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            return error

    return attempt


def _alone(call: Callable[[], Any], barrier: threading.Barrier) -> Any:
    try:
        barrier.wait(PATIENCE)
        return call()
    finally:
        connections.close_all()
