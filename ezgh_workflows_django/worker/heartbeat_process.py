"""The small process that sends a worker's heartbeats: `python -m ezgh_workflows_django.worker.heartbeat_process`.

It is told what to do on its standard input, a JSON object a line, and says what it was answered on its standard output. It ends when the
pipe closes or its parent is gone, and it falls silent while its parent is stopped or its parent's loop has not stamped it for ten minutes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import IO, Any, Final

from ..errors import Rejected, SessionLost, Unavailable
from ..protocol.messages import Beat, Extension
from .backoff import LeaseBackoff
from .heartbeat import SILENT_AFTER
from .transports.base import Transport
from .transports.recipe import Recipe

PARENT_LOOK: Final = 1.0
"""Seconds between two looks at whether the parent is still there."""


class Charge:
    """The leases this process keeps alive, and when their worker was last known to be alive. Filled by one thread, read by another."""

    def __init__(self, interval: float, now: float) -> None:
        self.interval = interval
        self.stamped_at = now
        self._leases: dict[str, Any] = {}
        self._lock = threading.Lock()

    def told(self, said: dict[str, Any], now: float) -> None:
        """Take in one line from the worker."""
        with self._lock:
            self._leases.update(dict.fromkeys(said.get("hold", ())))
            for lease_id in said.get("let_go", ()):
                self._leases.pop(lease_id, None)
            if "progress" in said and said["progress"][0] in self._leases:
                self._leases[said["progress"][0]] = said["progress"][1]
            self.interval = said.get("interval", self.interval)
            if said.get("stamp"):
                self.stamped_at = now

    def beats(self) -> list[Beat]:
        """One heartbeat for each lease."""
        with self._lock:
            return [Beat(lease_id, progress) for lease_id, progress in self._leases.items()]

    def is_silent(self, now: float) -> bool:
        """Whether the worker's loop is to be taken for dead."""
        return now - self.stamped_at > SILENT_AFTER


class Beater:
    """Sends the heartbeats of a charge; `say` gets each answer as a JSON object."""

    def __init__(self, transport: Transport, charge: Charge, say: Callable[[dict[str, Any]], object], is_stopped: Callable[[], bool]) -> None:
        self._transport = transport
        self._charge = charge
        self._say = say
        self._is_stopped = is_stopped
        self._backoff = LeaseBackoff()

    def run_once(self, now: float) -> float:
        """Send one call for all leases, unless their worker seems dead; gives the seconds until the next one."""
        beats = self._charge.beats()
        if not beats or self._charge.is_silent(now) or self._is_stopped():
            return self._charge.interval
        try:
            answers = self._transport.heartbeat(beats)
        except (Unavailable, SessionLost) as error:
            wait = self._backoff.next(getattr(error, "retry_after", None))
            self._say({"trouble": f"{error}; trying again in {wait:.1f} s", "lost_session": isinstance(error, SessionLost)})
            return wait
        except Rejected as error:  # for good: the worker is told, and ends
            self._say({"rejected": str(error)})
            return self._charge.interval
        self._backoff.reset()
        self._say(_answer(answers, now))
        return self._charge.interval


def _answer(answers: Iterable[Extension], sent_at: float) -> dict[str, Any]:
    """One call's answers. `sent_at` is the machine's monotonic clock, which both processes read."""
    extended = [answer.lease_id for answer in answers if answer.refused is None]
    refused = [(answer.lease_id, answer.refused.reason, answer.refused.message) for answer in answers if answer.refused is not None]
    return {"sent_at": sent_at, "extended": extended, "refused": refused}


def main() -> int:
    """Do what the parent says until it closes the pipe."""
    for shutdown in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(shutdown, signal.SIG_IGN)  # the worker decides when this process ends, not a signal to their group
    told, answers = _take_over_stdio()
    first = json.loads(told.readline() or "null")
    if first is None:
        return 0
    transport = Recipe(first["function"], first["arguments"]).build()
    charge = Charge(first["interval"], time.monotonic())
    beater = Beater(transport, charge, lambda said: _write(answers, said), lambda: _is_stopped(first["parent"]))
    _write(answers, {"up": True})
    threading.Thread(target=_beat, args=(beater, charge), name="beats", daemon=True).start()
    threading.Thread(target=_look_at_parent, args=(first["parent"],), name="parent", daemon=True).start()
    for line in told:
        charge.told(json.loads(line), time.monotonic())
    return 0


def _take_over_stdio() -> tuple[IO[str], IO[str]]:
    """The pipes to the parent, moved away from where a user's `print` goes."""
    told, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return told, answers


def _beat(beater: Beater, charge: Charge) -> None:
    due = time.monotonic()  # at once: while this process started, leases may have lived half their time
    while True:
        now = time.monotonic()
        if now >= due:
            try:
                due = now + beater.run_once(now)
            except BaseException as error:  # noqa: BLE001 - whatever it is, this process ends
                print(f"heartbeat process: {type(error).__name__}: {error}", file=sys.stderr, flush=True)  # noqa: T201 - its last words; it has no logging
                os._exit(1)  # the worker starts another, which is better than a process that beats no more
        time.sleep(max(0.0, min(due - time.monotonic(), charge.interval, 0.5)))


def _look_at_parent(parent: int) -> None:
    # A copy of the pipe's other end may live on in a process that some body forked; then only this tells.
    while os.getppid() == parent:
        time.sleep(PARENT_LOOK)
    os._exit(0)


def _is_stopped(parent: int) -> bool:
    """Whether the parent is stopped (SIGSTOP) or a zombie. Where there is no /proc, it never seems so."""
    try:
        with open(f"/proc/{parent}/stat", "rb") as stat:
            state = stat.read().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in (b"T", b"t", b"Z", b"X")


def _write(answers: IO[str], said: dict[str, Any]) -> None:
    try:
        print(json.dumps(said, separators=(",", ":")), file=answers, flush=True)
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
