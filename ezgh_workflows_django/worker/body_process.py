"""A process that runs bodies, one at a time: `python -m ezgh_workflows_django.worker.body_process`. It lives as long as its worker at most.

It is given a lease, says that it has begun, what a body shows, and how that ended; its results of inner steps and its transactions go
straight to the server. When it dies, the worker knows which attempt it took along.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, Final

from .. import clock
from ..errors import Rejected
from ..protocol.messages import Lease
from ..protocol.outcomes import Answer, Outcome
from .bodies import Bodies
from .executor import Middleware, unservable
from .hands import Held
from .keeper import Keeping
from .listener import Listener
from .offspring import SHUTDOWNS
from .serving import Serving
from .transports.base import Transport
from .wear import Limits

PARENT_LOOK: Final = 1.0
"""Seconds between two looks at whether the parent is still there."""

CLOSE_PATIENCE: Final = 2.0


@dataclass(frozen=True, slots=True)
class Home:
    """What bodies run in: the way to the server, the steps that are held, what surrounds them."""

    transport: Transport
    serving: Serving
    middleware: Sequence[Middleware] = ()


class Child:
    """This process's side of the pipe to its worker."""

    def __init__(self, connection: Connection, home: Home, limits: Limits) -> None:
        self._connection = connection
        self._home = home
        self._limits = limits
        self._lock = threading.Lock()
        self._held: Held | None = None
        self._tasks = 0
        self._bodies = Bodies(
            1,
            scope=home.transport.body_scope,
            middleware=home.middleware,
            on_end=self._ended,
            on_crash=self._crashed,
            release=home.transport.release,
            keeping=Keeping(home.transport, Listener(), on_crash=self._crashed),
        )

    def serve(self) -> None:
        """Do what the worker says, until it says that this is the end; where it has gone, this process goes at once."""
        self.say("up")
        while True:
            try:
                word, *said = self._connection.recv()
            except (EOFError, OSError):
                os._exit(0)
            if word == "end":
                break
            if word == "run":
                self._run(*said)
            else:
                self._cancel(*said)
        self._bodies.close(CLOSE_PATIENCE)
        self._home.transport.release()
        self._home.transport.close()

    def say(self, word: str, *said: Any) -> None:
        """Tell the worker something."""
        with self._lock:
            try:
                self._connection.send((word, *said))
            except OSError:
                os._exit(0)

    def _run(self, lease: Lease) -> None:
        self.say("begun")
        held = Held(lease, self._home.serving.find(lease), clock.monotonic(), lambda shown: self.say("progress", shown.progress))
        self._held = held
        if held.holding is None:
            self._ended(held, unservable(lease), None)
        else:
            self._bodies.run(held)

    def _cancel(self, lease_id: str, why: Any) -> None:
        held = self._held
        if held is not None and held.lease.id == lease_id:
            held.fire(why)
            self.say("noted", held.context.usage, held.context.spans)  # a body that does not stop is ended with this process

    def _ended(self, held: Held, outcome: Outcome, answer: Answer | None) -> None:
        self._tasks += 1
        stuck = self._bodies.stuck
        spent = f"{stuck} of its threads are stuck in functions that did not stop at their timeout" if stuck else self._limits.reached(self._tasks)
        self.say("ended", outcome, answer, spent)

    def _crashed(self, error: BaseException) -> None:
        self.say("crash", isinstance(error, Rejected), f"{type(error).__name__}: {error}")


def main() -> int:
    """Run bodies until the worker has no more."""
    for shutdown in SHUTDOWNS:
        signal.signal(shutdown, _stay)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SHUTDOWNS)
    connection = Connection(int(sys.argv[1]))
    try:
        recipe, limits, parent = connection.recv()
    except EOFError:
        return 0
    threading.Thread(target=_look_at_parent, args=(parent,), name="parent", daemon=True).start()
    home: Any = recipe.build()
    Child(connection, home, limits).serve()
    return 0


def _stay(number: int, frame: FrameType | None) -> None:
    """The worker decides when this process ends. A handler, since to ignore a signal is passed on to the programs that a body starts."""


def _look_at_parent(parent: int) -> None:
    # A copy of the pipe's other end may live on in a process that some body forked; then only this tells.
    while os.getppid() == parent:
        time.sleep(PARENT_LOOK)
    os._exit(0)


if __name__ == "__main__":
    from ezgh_workflows_django.worker import body_process  # the module by its own name, whose `Home` others make

    sys.exit(body_process.main())
