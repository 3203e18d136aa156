"""What the worker's tests share: an ear, a worker in a thread, a workflow of one step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ezgh_workflows_django.definitions.graph import Step, Workflow
from ezgh_workflows_django.protocol.messages import Lease
from ezgh_workflows_django.protocol.outcomes import Answer, Outcome
from ezgh_workflows_django.worker import Worker
from ezgh_workflows_django.worker.listener import Listener


class Ear(Listener):
    """Keeps what a worker says."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.errors: list[str] = []
        self.done: list[tuple[str, Outcome]] = []
        self.lives = 0

    def alive(self) -> None:
        self.lives += 1

    def warning(self, message: str) -> None:
        self.warnings.append(message)

    def error(self, message: str) -> None:
        self.errors.append(message)

    def finished(self, lease: Lease, outcome: Outcome, seconds: float, answer: Answer | None) -> None:
        self.done.append((lease.step, outcome))


class Running:
    """A worker at work in a thread."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.code: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.code = self.worker.run_sync()

    def join(self, timeout: float = 60.0) -> int:
        """The exit code, once it has ended by itself."""
        self._thread.join(timeout)
        assert self.code is not None, "the worker did not end"
        return self.code

    def wait_until_free(self) -> bool:
        """Wait until no body is at work; says whether that came within a minute."""
        shift = self.worker._shift
        return shift is not None and shift.hands.wait_until_free(60)

    def stop(self) -> int:
        """Stop it; gives the exit code."""
        self.worker.stop()
        return self.join()


def told(wait: Callable[[Any], object]) -> tuple[Workflow, threading.Event]:
    """A workflow of one step that waits as it is told, given its context, and gives back what that gave; the event is set as it begins."""
    begun = threading.Event()

    def body(ctx: Any) -> object:
        begun.set()
        return wait(ctx)

    return one_step(body), begun


def one_step(body: Callable[..., Any], name: str = "job", **options: Any) -> Workflow:
    """A workflow of one step, `only`, with that body."""
    return Workflow(name, steps=[Step("only", run=body, **options)])
