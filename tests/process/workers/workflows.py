"""Bodies that say when they begin and end, and wait for the test's word, through files in the folder they are given."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from ezgh_workflows_django import Context, Retry, Step, Workflow

GIL_SECONDS = 6.0


def say(folder: str, word: str) -> None:
    """Leave a word with this process's id, for `Folder.heard`."""
    Path(folder, f"{word}.{os.getpid()}").touch()


def wait_for(folder: str, word: str) -> None:
    """Wait for the test to say a word."""
    while not Path(folder, word).exists():
        time.sleep(0.01)


def gated_body(folder: str) -> int:
    """Runs until the test says `go`; gives the process it ran in."""
    say(folder, "begun")
    wait_for(folder, "go")
    say(folder, "ended")
    return os.getpid()


def quick_body(number: int) -> int:
    """Asks the database something, as bodies do."""
    return number + User.objects.filter(pk=-1).count()


def gil_body(folder: str) -> int:
    """Then holds the GIL in one call into C."""
    say(folder, "begun")
    wait_for(folder, "go")
    ctypes.PyDLL(None).usleep(int(GIL_SECONDS * 1_000_000))
    return os.getpid()


def deadly_body(folder: str) -> None:
    """Takes its process with it."""
    say(folder, "begun")
    os._exit(9)


def exits(word: str) -> None:
    """Raises what is no `Exception`."""
    raisers: dict[str, Callable[[], object]] = {"SystemExit": sys.exit, "KeyboardInterrupt": _interrupt, "GeneratorExit": _close}
    raisers[word]()


def _interrupt() -> None:
    raise KeyboardInterrupt


def _close() -> None:
    raise GeneratorExit


def cancellable_body(ctx: Context, folder: str) -> None:
    """Runs until it is told to stop."""
    say(folder, "begun")
    ctx.cancelled.wait()
    say(folder, f"stopped-{ctx.cancelled.why}")


def stubborn_body(folder: str) -> None:
    """Ignores its timeout, and everything else."""
    say(folder, "begun")
    threading.Event().wait()


async def offloading_body(folder: str) -> None:
    """Waits for a thread of an executor, which Python joins when it ends."""
    say(folder, "begun")
    await sync_to_async(threading.Event().wait, thread_sensitive=False)()


gated = Workflow("gated", steps=[Step("only", run=gated_body)])
quick = Workflow("quick", steps=[Step("only", run=quick_body, retry=Retry(max_attempts=10, initial=timedelta(milliseconds=100)))])
gil = Workflow("gil", steps=[Step("only", run=gil_body)])
deadly = Workflow("deadly", steps=[Step("only", run=deadly_body)])
leaving = Workflow("leaving", steps=[Step("only", run=exits)])
cancellable = Workflow("cancellable", steps=[Step("only", run=cancellable_body)])
stubborn = Workflow("stubborn", steps=[Step("only", run=stubborn_body, timeout=timedelta(seconds=1))])
offloading = Workflow("offloading", steps=[Step("only", run=offloading_body)])
