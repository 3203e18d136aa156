"""Bodies in processes of their own, one at a time in each: one that ends its process fails its attempt, and nothing else.

The worker's side of `body_process`. A process that is done with is replaced before the next body needs one.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ..errors import Rejected
from ..protocol.outcomes import Answer, Outcome
from ..protocol.states import FailureClass
from .hands import Held, Phase
from .offspring import environment, shielded
from .pool import Pool
from .transports.recipe import Recipe
from .wear import Limits

MODULE: Final = f"{__package__}.body_process"

MOST_FAILURES: Final = 3
"""Processes that can't be started or end before they are up, one after another, until the worker gives up."""

OnEnd = Callable[[Held, Outcome, Answer | None], object]


class NotBegun(Exception):
    """The process was gone before the body began."""


class BodyProcess:
    """One process that runs bodies, one at a time."""

    def __init__(self, home: Recipe, limits: Limits) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        self._lock = threading.Lock()
        self.is_up = False
        self.is_killed = False
        self.spent: str | None = None
        with theirs, shielded():
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(theirs.fileno())], stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=environment()
            )
        self.tell(home, limits, os.getpid())

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def run(self, held: Held, on_crash: Callable[[BaseException], object]) -> tuple[Outcome, Answer | None]:
        """Run a body; gives its outcome, and the server's answer where that has landed already. Raises `NotBegun`."""
        self.tell("run", held.lease)
        held.cancelled.on_fire(lambda: self.tell("cancel", held.lease.id, held.cancelled.why))
        has_begun = False
        try:
            while True:
                word, *said = self._connection.recv()
                if word == "ended":
                    outcome, answer, self.spent = said
                    return outcome, answer
                self.is_up = True
                has_begun = has_begun or word == "begun"
                if word == "progress":
                    held.context.progress(said[0])
                elif word == "noted":
                    held.context.noted(*said)
                elif word == "crash":
                    on_crash(Rejected(said[1]) if said[0] else RuntimeError(said[1]))
        except (EOFError, OSError):
            ended = self.end(kill=True)
            if not has_begun:
                raise NotBegun(ended) from None
            return Outcome.failed(FailureClass.CRASHED, f"the process that ran the body {ended}"), None

    def tell(self, *said: Any) -> None:
        """Send it something; where it is gone, whoever listens to it sees that."""
        with self._lock, suppress(OSError):
            self._connection.send(said)

    def kill(self) -> None:
        """End it at once."""
        self.is_killed = True
        self._process.kill()

    def end(self, *, kill: bool = False, patience: float = 5.0) -> str:
        """See that it ends, at once or within `patience` seconds; says how it did."""
        if kill:
            self.kill()
        else:
            self.tell("end")
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        with self._lock:
            self._connection.close()
        return in_words(self._process.returncode)


class ProcessBodies:
    """`bodies.Runner` on `size` processes, which `home` tells what to run. One that reaches a limit is replaced between two bodies."""

    def __init__(
        self, size: int, home: Recipe, *, limits: Limits, on_end: OnEnd, on_crash: Callable[[BaseException], object], release: Callable[[], object]
    ) -> None:
        self._home = home
        self._limits = limits
        self._on_end = on_end
        self._on_crash = on_crash
        self._lock = threading.Lock()
        self._at_work: dict[Held, BodyProcess] = {}
        self._failures = 0
        self._is_closing = False
        self._pool = Pool(size, spare=0, on_crash=on_crash, release=release)
        self._idle = [BodyProcess(home, limits) for _ in range(size)]

    def run(self, held: Held) -> None:
        """Run the body of a lease, soon."""
        self._pool.submit(held, partial(self._run, held))

    def leave(self, held: Held) -> bool:
        """End the process of a body that did not stop. Says whether it had one."""
        with self._lock:  # a process that has just become idle may already have the next body in hand
            process = self._at_work.get(held)
            if process is not None:
                process.kill()
            return process is not None

    @property
    def stuck(self) -> int:
        """None ever: what does not stop is ended."""
        return 0

    @property
    def is_exhausted(self) -> bool:
        """Never: what does not stop is ended."""
        return False

    @property
    def capacity(self) -> int:
        """How many bodies can run at once."""
        return self._pool.capacity

    @property
    def pids(self) -> frozenset[int]:
        """The ids of the processes."""
        with self._lock:
            return frozenset(process.pid for process in (*self._idle, *self._at_work.values()))

    def close(self, timeout: float) -> None:
        """End every process: idle ones in order, within `timeout` seconds in all, the others at once."""
        with self._lock:
            self._is_closing = True
            idle, self._idle = self._idle, []
            at_work = list(self._at_work.values())
        for process in at_work:
            process.kill()
        for process in idle:
            process.tell("end")
        for process in idle:
            process.end(patience=timeout / len(idle))
        self._pool.close(timeout)

    def _run(self, held: Held) -> None:
        outcome, answer = self._outcome(held)
        self._on_end(held, outcome, answer)

    def _outcome(self, held: Held) -> tuple[Outcome, Answer | None]:
        while self._failures < MOST_FAILURES:
            try:
                process = self._take(held)
            except OSError as error:  # no room for another process
                self._failed(f"could not be started: {error}")
                continue
            if process is None:
                return Outcome.returned("the worker is stopping, or no process came free for the body; it did not run"), None
            try:
                outcome, answer = process.run(held, self._on_crash)
            except NotBegun as error:
                if not process.is_up:  # one that was up and idle has died of something else
                    self._failed(error)
            else:
                self._failures = 0
                return outcome, answer
            finally:
                self._put_back(held, process)
        return Outcome.returned("no process could be started for the body; it did not run"), None

    def _take(self, held: Held) -> BodyProcess | None:
        with self._lock:
            if self._is_closing or held.phase is Phase.LEFT:
                return None
            process = self._at_work[held] = self._idle.pop(0) if self._idle else BodyProcess(self._home, self._limits)
            return process

    def _put_back(self, held: Held, process: BodyProcess) -> None:
        """What still lives and may live on is idle again; another takes the place of what does not, and is up before it is needed."""
        with self._lock:
            is_over = process.spent is not None or process.is_killed or process._process.returncode is not None
            del self._at_work[held]
            if not self._is_closing:
                with suppress(OSError):  # no room for another process: what this one's body came to counts all the same, and the next body makes its own
                    self._idle.append(BodyProcess(self._home, self._limits) if is_over else process)
                is_kept = not is_over
            else:
                is_kept = False
        if not is_kept:
            process.end()

    def _failed(self, how: object) -> None:
        self._failures += 1
        if self._failures == MOST_FAILURES:
            self._on_crash(RuntimeError(f"the processes that are to run bodies do not come up; the last one {how}"))


def in_words(code: int) -> str:
    """How a process ended, by its return code."""
    if code >= 0:
        return f"ended with code {code}"
    hint = ", as the system does with one that takes too much memory" if code == -signal.SIGKILL else ""
    return f"was ended by {_signal(-code)}{hint}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
