"""Bodies that say when they begin and end, and wait for the test's word, through files in the folder they are given."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, User

from ezgh_workflows_django import Concurrency, Context, Retry, Step, Workflow, step_info, workflow

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


def spinning_body(folder: str) -> int:
    """Then computes in Python alone."""
    say(folder, "begun")
    wait_for(folder, "go")
    until = time.monotonic() + GIL_SECONDS
    while time.monotonic() < until:
        continue
    return os.getpid()


async def blocking_body(folder: str) -> int:
    """Then blocks the event loop that all async bodies share."""
    say(folder, "begun")
    wait_for(folder, "go")
    time.sleep(GIL_SECONDS)  # noqa: ASYNC251 - just what nobody should do
    return os.getpid()


def deadly_body(folder: str) -> None:
    """Takes its process with it."""
    say(folder, "begun")
    os._exit(9)


def crashing_body(how: str) -> None:
    """Takes its process with it, as C code and the system do."""
    if how == "SIGSEGV":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.Signals[how])


def where_body(folder: str) -> int:
    """Leaves a word; gives the process it ran in."""
    say(folder, "ran")
    return os.getpid()


def filling_body(megabytes: int) -> int:
    """Holds on to memory, as a leak does; gives the process it ran in."""
    _leaked.append(b"x" * megabytes * 1024**2)
    return os.getpid()


_leaked: list[bytes] = []


@workflow("durable")
def durable(ctx: Context, folder: str) -> list[int]:
    """Keeps results, shows how far it is, changes the database with one of them, waits, and goes on."""
    first = ctx.step("first", os.getpid)
    ctx.progress({"at": "first"})
    wait_for(folder, "go")
    ctx.step("second", lambda: User.objects.create(username=f"made-{first}").pk, transactional=True)
    ctx.sleep("rest", 0.2)
    return [first, ctx.step("third", lambda: where_body(folder))]


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


def stubborn_body(ctx: Context, folder: str) -> None:
    """Has used something, and ignores its timeout and everything else."""
    ctx.set_usage(calls=3)
    with ctx.span("call"):
        say(folder, "begun")
    threading.Event().wait()


async def offloading_body(folder: str) -> None:
    """Waits for a thread of an executor, which Python joins when it ends."""
    say(folder, "begun")
    await sync_to_async(threading.Event().wait, thread_sensitive=False)()


def write_row(place: int) -> None:
    """Leave one row. Its name is another each time it is written, so that a second one would be seen."""
    info = step_info()
    assert info is not None
    Group.objects.create(name=f"{info.run_id} {place} {uuid.uuid4().hex[:8]}")


@workflow("ledgering", retry=Retry(max_attempts=20, initial=timedelta(milliseconds=100)))
def ledgering(ctx: Context, rows: int) -> int:
    """Writes that many rows, each with its result."""
    for place in range(rows):
        ctx.step(f"row-{place}", write_row, place, transactional=True)
    return rows


@workflow("listening")
def listening(ctx: Context, key: str) -> str:
    """Waits for one event of its key."""
    ctx.step("begin", lambda: None)
    return str(ctx.wait_for_event("go", event="stress.go", key=key, timeout=timedelta(minutes=5))["key"])


@workflow("collecting")
def collecting(ctx: Context, count: int) -> list[int]:
    """Receives that many signals of one name, one after another."""
    return [ctx.wait_for_event(f"message-{place}", event="message") for place in range(count)]


@workflow("batch_child")
def batch_child(ctx: Context, number: int) -> int:
    """Works a little."""
    return int(ctx.step("square", lambda: number * number))


@workflow("batching")
def batching(ctx: Context, count: int) -> int:
    """Many children; the sum of what they came to, each times its place, so that their order counts."""
    came = ctx.run_batch("children", batch_child, range(count))
    return sum(place * value for place, value in enumerate(came))


@workflow("cancellable_child")
def cancellable_child(ctx: Context, folder: str) -> None:
    """Works until it is told to stop."""
    cancellable_body(ctx, folder)
    say(folder, f"ended-{ctx.info.run_id}")


@workflow("cancelling_parent")
def cancelling_parent(ctx: Context, folder: str) -> None:
    """Waits for three children that do not end."""
    ctx.run_batch("children", cancellable_child, [folder] * 3)


@workflow("napping")
def napping(ctx: Context) -> str:
    """Sleeps for thirty days."""
    ctx.sleep("nap", timedelta(days=30))
    return "awake"


def alone_body(given: dict[str, str]) -> None:
    """Leaves a word where it meets another run with its key at work: a file that only one run can have made."""
    info = step_info()
    place = Path(given["folder"], f"key-{given['key']}")
    try:
        with place.open("x") as mine:
            mine.write(str(info and info.run_id))
    except FileExistsError:  # a worker of this very run may have been killed
        if place.read_text() not in ("", str(info and info.run_id)):
            say(given["folder"], "met")
    time.sleep(0.005)
    place.unlink(missing_ok=True)


gated = Workflow("gated", steps=[Step("only", run=gated_body)])
quick = Workflow("quick", steps=[Step("only", run=quick_body, retry=Retry(max_attempts=10, initial=timedelta(milliseconds=100)))])
gil = Workflow("gil", steps=[Step("only", run=gil_body)])
spinning = Workflow("spinning", steps=[Step("only", run=spinning_body)])
blocking = Workflow("blocking", steps=[Step("only", run=blocking_body)])
deadly = Workflow("deadly", steps=[Step("only", run=deadly_body)])
leaving = Workflow("leaving", steps=[Step("only", run=exits)])
cancellable = Workflow("cancellable", steps=[Step("only", run=cancellable_body)])
stubborn = Workflow("stubborn", steps=[Step("only", run=stubborn_body, timeout=timedelta(seconds=1))])
offloading = Workflow("offloading", steps=[Step("only", run=offloading_body)])
crashing = Workflow("crashing", steps=[Step("only", run=crashing_body)])
where = Workflow("where", steps=[Step("only", run=where_body)])
filling = Workflow("filling", steps=[Step("only", run=filling_body)])
alone = Workflow("alone", steps=[Step("only", run=alone_body)], concurrency=Concurrency(1, key_expr="payload.key"))
