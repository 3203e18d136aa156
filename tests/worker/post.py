"""A worker's parts around a watch that looks when it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ezgh_workflows_django import clock
from ezgh_workflows_django.protocol.outcomes import Outcome
from ezgh_workflows_django.testing.scripted import ScriptedTransport, lease_of
from ezgh_workflows_django.worker.bodies import Bodies
from ezgh_workflows_django.worker.hands import Hands, Held
from ezgh_workflows_django.worker.listener import Listener
from ezgh_workflows_django.worker.reporter import Reporter
from ezgh_workflows_django.worker.serving import Serving
from ezgh_workflows_django.worker.watch import Stuck, Watch

from .bench import one_step


class Post:
    """A worker's parts around a watch that has no thread of its own."""

    def __init__(self, size: int = 2) -> None:
        self.server = ScriptedTransport()
        self.hands = Hands(size)
        self.stuck: list[Stuck] = []
        self.crashes: list[BaseException] = []
        self.reporter = Reporter(self.server, self.hands, Listener(), on_landed=lambda ids: None, on_lost_session=lambda: None)
        self.bodies = Bodies(
            size,
            scope=lambda lease: nullcontext(),
            middleware=(),
            on_end=self.reporter.ended,
            on_crash=self.crashes.append,
            release=lambda: None,
        )
        self.watch = Watch(self.hands, self.bodies, self.reporter, Listener(), lease_life=lambda: 60.0, on_stuck=self.stuck.append)
        threading.Thread(target=self.reporter.run, daemon=True).start()

    def run(self, body: Callable[..., Any], **fields: Any) -> Held:
        """Begin a body, and wait until it runs."""
        begun = threading.Event()

        def wrapped(ctx: Any) -> Any:
            begun.set()
            return body(ctx)

        async def awrapped(ctx: Any) -> Any:
            begun.set()
            return await body(ctx)

        held = self.held(awrapped if fields.pop("is_async", False) else wrapped, **fields)
        self.bodies.run(held)
        assert begun.wait(60)
        return held

    def held(self, body: Callable[..., Any], **fields: Any) -> Held:
        """A lease in hand that was said to begin, and whose body was not given to anybody yet."""
        job = one_step(body)
        lease = lease_of(job, "only", **fields)
        held = Held(lease, Serving([job]).find(lease), clock.monotonic())
        self.hands.take([held])
        self.hands.begin(held)
        return held

    def outcomes(self, held: Held, count: int) -> list[Outcome]:
        """The first `count` outcomes of a lease, once they are there."""
        self.server.wait_until(lambda: len(self.server.outcomes[held.lease.id]) >= count)
        return self.server.outcomes[held.lease.id]
