"""The worker's side of the heartbeat process: starts it, tells it which leases are in hand, takes in what it was answered, replaces it when it dies.

What is told before a body runs is told by a plain write in the caller's thread: a body may hold the GIL from its first line.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Any, Final

from ..errors import Rejected
from ..protocol.failures import Refused
from .backoff import LeaseBackoff
from .hands import Hands, Held
from .heartbeat import Pulse
from .listener import Listener
from .offspring import environment, shielded
from .transports.recipe import Recipe

WRITE_PATIENCE: Final = 2.0
"""Seconds that the child is given to read what it was told, before it is replaced."""

MODULE: Final = f"{__package__}.heartbeat_process"


class ProcessHeartbeat:
    """Heartbeats from a small process of their own, which dies with this one. `run` reads its answers, and is a thread's work."""

    def __init__(self, recipe: Recipe, hands: Hands, listener: Listener, *, on_lost_session: Callable[[], object]) -> None:
        self._recipe = recipe
        self._hands = hands
        self._listener = listener
        self._on_lost_session = on_lost_session
        self._pulse = Pulse(hands, listener)
        self._interval: float | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._is_up = threading.Event()
        self._backoff = LeaseBackoff()  # so that a child which can't start is not started in a storm

    @property
    def pid(self) -> int | None:
        """The process's id, while there is one."""
        return self._child.pid if self._child is not None else None

    def begin(self, interval: float) -> None:
        """See `Heartbeat`."""
        with self._lock:
            self._interval = interval
            if self._child is None:
                self._start()
            else:
                self._tell({"interval": interval})

    def hold(self, held: Sequence[Held]) -> None:
        """See `Heartbeat`."""
        self._tell({"hold": [held_one.lease.id for held_one in held]})

    def let_go(self, lease_ids: Sequence[str]) -> None:
        """See `Heartbeat`."""
        if lease_ids:
            self._tell({"let_go": list(lease_ids)})

    def progressed(self, held: Held) -> None:
        """See `Heartbeat`."""
        self._tell({"progress": [held.lease.id, held.progress]})

    def stamp(self) -> None:
        """See `Heartbeat`."""
        self._tell({"stamp": True})

    def wait_until_up(self, timeout: float) -> bool:
        """Whether the child has said that it is ready; a replacement has to say so again."""
        return self._is_up.wait(timeout)

    def close(self) -> None:
        """Close the pipe, which ends the child; see that it is gone."""
        self._closing.set()
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            _end(child)

    def run(self) -> None:
        """Take in the child's answers, and replace it when it ends, until `close`. Raises `Rejected` where the server refuses the worker for good."""
        while not self._closing.is_set():
            child = self._child
            if child is None:
                self._closing.wait(0.05)
                continue
            self._listen(child)
            if not self._closing.is_set():
                self._replace(child)

    def _listen(self, child: subprocess.Popen[bytes]) -> None:
        with suppress(ValueError):  # the pipe was closed between two lines: the child is gone
            for line in _pipe(child.stdout):
                self._take_in(json.loads(line))

    def _take_in(self, said: dict[str, Any]) -> None:
        if said.get("up"):
            self._is_up.set()
        if "sent_at" in said:
            self._backoff.reset()
        for lease_id in said.get("extended", ()):
            self._pulse.extended(lease_id, said["sent_at"])
        for lease_id, reason, message in said.get("refused", ()):
            self._pulse.refused(lease_id, Refused(reason, message))
        if "trouble" in said:
            self._listener.warning(f"heartbeat process: {said['trouble']}")
        if said.get("lost_session"):
            self._on_lost_session()
        if "rejected" in said:
            raise Rejected(said["rejected"])

    def _replace(self, child: subprocess.Popen[bytes]) -> None:
        code = _end(child)
        self._listener.warning(f"the heartbeat process ended with code {code}; starting another")
        self._closing.wait(self._backoff.next())
        with self._lock:
            if self._child is child and not self._closing.is_set():
                self._start()

    def _start(self) -> None:
        self._is_up.clear()
        with shielded():
            self._child = subprocess.Popen([sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())
        os.set_blocking(_pipe(self._child.stdin).fileno(), False)
        self._tell({"function": self._recipe.function, "arguments": dict(self._recipe.arguments), "interval": self._interval, "parent": os.getpid()})
        held = self._hands.all()
        self._tell({"hold": [one.lease.id for one in held]})
        for one in held:
            if one.progress is not None:
                self.progressed(one)

    def _tell(self, said: dict[str, Any]) -> None:
        """Write one line to the child. One that does not take it is killed; `run` replaces it, and the new one is told all anew."""
        line = json.dumps(said, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            child = self._child
            if child is None:
                return
            try:
                _write(_pipe(child.stdin).fileno(), line)
            except (OSError, ValueError):  # it is gone, or does not read, or its pipe was closed
                child.kill()


def _write(fd: int, line: bytes) -> None:
    """Write all of it. Raises `OSError` where the reader does not take it in time."""
    until = time.monotonic() + WRITE_PATIENCE
    while line:
        try:
            line = line[os.write(fd, line) :]
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            select.select((), (fd,), (), 0.1)


def _end(child: subprocess.Popen[bytes]) -> int:
    """Close the pipes and wait for the process; kill it where it does not go."""
    with suppress(OSError):
        _pipe(child.stdin).close()
    try:
        code = child.wait(2)
    except subprocess.TimeoutExpired:
        child.kill()
        code = child.wait()
    _pipe(child.stdout).close()
    return code


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
