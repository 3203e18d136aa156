"""A worker that is killed after each thing it stores, and begun anew: `python -m tests.process.workers.reborn APP`.

Each life ends right after its first new checkpoint, start of children, or suspension, and says so on the output. Lives are forked from a process
that has everything imported. One deed at a time is between its doing and its storing, and none where a life ends: so a deed that is noted twice
was done twice by a pass that had its result already.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import django

from ezgh_workflows_django import Worker, step_info
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.protocol.durable import Children, Record, Started, Stored
from ezgh_workflows_django.protocol.messages import Claimed, ClaimRequest
from ezgh_workflows_django.protocol.outcomes import Answer, Report
from ezgh_workflows_django.protocol.states import LeaseStatus
from ezgh_workflows_django.worker.transports.direct import DirectTransport

DEEDS: Final = "deeds.txt"


class Turn:
    """Whose deed is done and not stored yet, by idempotency key; and the end of this life, which waits for that."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: str | None = None
        self._ends_after: str | None = None

    def take(self, key: str) -> None:
        """Wait until nobody else's deed is between its doing and its storing; for good where this life is about to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._holder is None and self._ends_after is None)
            self._holder = key

    def stored(self, key: str) -> None:
        """That deed's result is stored."""
        with self._changed:
            if self._holder == key:
                self._holder = None
                self._changed.notify_all()
                self._end_if_due()

    def end(self, after: str) -> None:
        """End this life, as soon as no deed is half done."""
        with self._changed:
            self._ends_after = self._ends_after or after
            self._end_if_due()

    def _end_if_due(self) -> None:
        if self._ends_after is not None and self._holder is None:
            os.write(1, f"killed after {self._ends_after}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)


class MortalTransport(DirectTransport):
    """Ends the life after the first new thing that was stored through it."""

    def __init__(self, turn: Turn) -> None:
        from ezgh_workflows_django.engine.direct import DirectEngine

        super().__init__(DirectEngine())
        self._turn = turn
        self._keys: dict[str, str] = {}

    def claim(self, request: ClaimRequest) -> Claimed:
        claimed = super().claim(request)
        self._keys |= {lease.id: lease.idempotency_key for lease in claimed.leases}
        return claimed

    def checkpoint(self, records: Sequence[Record]) -> Sequence[Stored]:
        answers = super().checkpoint(records)
        for answer in answers:
            if answer.refused is None:
                self._turn.stored(f"{self._keys[answer.lease_id]}:{answer.name}")
            if answer.refused is None and not answer.repeated:
                self._turn.end(f"checkpoint {answer.name}")
        return answers

    def children(self, request: Children) -> Started:
        answer = super().children(request)
        if answer.refused is None:
            self._turn.end(f"children {request.name}")
        return answer

    def report(self, reports: Sequence[Report]) -> Sequence[Answer]:
        answers = super().report(reports)
        landed = [told for told, answer in zip(reports, answers, strict=True) if answer.refused is None]
        for told in landed:
            self._turn.stored(self._keys[told.lease_id])
        for told in landed:
            if told.outcome.status is LeaseStatus.SUSPENDED:
                self._turn.end(f"park {' '.join(sorted(wait.name for wait in told.outcome.waits))}")
        return answers


def live(app: str) -> int:
    """One life; gives the exit code of a worker that was told to stop."""
    from testproject.gallery import ledger

    turn = Turn()

    def note(album: Path, line: str) -> None:
        info = step_info()
        assert info is not None
        turn.take(info.idempotency_key)
        with open(album / DEEDS, "a") as deeds:
            deeds.write(f"{line}\n")

    ledger.note = note  # the gallery's own ledger forgives a deed that is done again
    return Worker(MortalTransport(turn), app=app, workflows=list(registry), heartbeat="thread", name=f"life-{os.getpid()}").run_sync()


def main(app: str) -> int:
    """One life after another, until one ends otherwise than by its own hand."""
    while True:
        pid = os.fork()
        if pid == 0:
            os._exit(live(app))
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            return os.WEXITSTATUS(status)


if __name__ == "__main__":
    django.setup()
    sys.exit(main(sys.argv[1]))
