"""A worker in a process of its own, for tests that kill it: `python -m tests.worker.a_worker ADDRESS BODY [awaited]`.

Says on its output what its body does, and where it is awaited, beside an event loop, that it is stopping.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading
from dataclasses import replace
from typing import Any

from ezgh_workflows_django.definitions.graph import Step, Workflow
from ezgh_workflows_django.testing.scripted import SESSION, ScriptedTransport, lease_of
from ezgh_workflows_django.worker import Worker
from ezgh_workflows_django.worker.listener import Listener
from ezgh_workflows_django.worker.transports.recipe import Recipe


def waits() -> None:
    """Runs until the test says so on the standard input."""
    print("begun", flush=True)
    sys.stdin.readline()
    print("ended", flush=True)


def never_ends() -> None:
    """Runs until the process ends."""
    print("begun", flush=True)
    threading.Event().wait()


def holds_the_gil() -> None:
    """Holds the GIL for two seconds, as a long call into C does."""
    print("begun", flush=True)
    ctypes.PyDLL(None).usleep(2_000_000)
    print("ended", flush=True)


class Ear(Listener):
    """Says that the worker stops."""

    def stopping(self, running: int, grace: float) -> None:
        """So that the next signal is a second one."""
        print("stopping", flush=True)


def main(address: str, body: str, manner: str = "alone") -> int:
    """One lease of that body."""
    job = Workflow("job", steps=[Step("only", run=globals()[body])])
    server = ScriptedTransport(lease_of(job, "only", id="lease"), session=replace(SESSION, heartbeat_ms=100))
    recipe = Recipe("tests.worker.beats:transport", {"address": address})
    options: dict[str, Any] = {"heartbeat": "process", "recipe": recipe, "maintenance": False, "grace": 20, "until_idle": body == "holds_the_gil"}
    if manner == "awaited":
        code = asyncio.run(Worker(server, workflows=[job], listener=Ear(), **options).run())
    else:
        code = Worker(server, workflows=[job], **options).run_sync()
    print([outcome.class_ or "completed" for outcome in server.outcomes["lease"]], flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
