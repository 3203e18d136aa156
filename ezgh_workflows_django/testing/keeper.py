"""A lab's side of durable functions: their results stored by the real engine, on the test's own connection, one thread at work at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, overload

from asgiref.sync import sync_to_async
from django.db import transaction
from django.utils import timezone

from ..engine import atomically, checkpoints, children
from ..engine.transactions import database
from ..errors import NotAvailable
from ..protocol.durable import Children, Record, Started, Stored
from ..protocol.outcomes import Answer, Report


class _HereKeeper:
    """Threads that a body asks for do their work where it asks, one after another; anything new may be done."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[None]] = set()

    def may_run(self, name: str) -> bool:
        """Always."""
        return True

    def start(self, call: Callable[[], None]) -> None:
        """At once; where a coroutine asks, in the thread that has the turn: there the test's connection may be used."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            call()
            return
        task = asyncio.ensure_future(sync_to_async(call)(), loop=loop)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def leave(self, running: Future[Any]) -> None:
        """Nothing to do: no thread was lent."""


class LabKeeper(_HereKeeper):
    """`worker.keeper.Keeper` for a body that has a lab's turn."""

    def checkpoint(self, record: Record) -> Stored:
        """`engine.checkpoints.checkpoint`."""
        [answer] = checkpoints.checkpoint([record])
        return answer

    def children(self, request: Children) -> Started:
        """`engine.children.start`."""
        return children.start(request)

    @overload
    def atomically(self, work: Callable[[], Record]) -> Stored: ...

    @overload
    def atomically(self, work: Callable[[], Report]) -> Answer: ...

    def atomically(self, work: Callable[[], Record] | Callable[[], Report]) -> Stored | Answer:
        """`engine.atomically.atomically`."""
        return atomically.atomically(work)


class AloneKeeper(_HereKeeper):
    """`worker.keeper.Keeper` for a body that runs alone, without an engine: what inner steps come to is given back, and stored nowhere."""

    def checkpoint(self, record: Record) -> Stored:
        """Give back what the step came to; a failure is final."""
        return Stored(lease_id=record.lease_id, name=record.name, output=record.output, failure=record.failure, at=timezone.now())

    def children(self, request: Children) -> Started:
        """There is no engine to start them."""
        raise NotAvailable(f"the body starts child runs, {request.name} of {request.workflow}, and run_body has no engine: use a Lab")

    @overload
    def atomically(self, work: Callable[[], Record]) -> Stored: ...

    @overload
    def atomically(self, work: Callable[[], Report]) -> Answer: ...

    def atomically(self, work: Callable[[], Record] | Callable[[], Report]) -> Stored | Answer:
        """Run the step's function in a transaction."""
        with transaction.atomic(using=database()):
            done = work()
        return self.checkpoint(done) if isinstance(done, Record) else Answer(lease_id=done.lease_id)
