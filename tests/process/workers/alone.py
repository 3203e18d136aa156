"""A worker in a plain script: no Django, no database, only the package and httpx. Its server, key and flags come in the environment.

Its bodies say `Any`: other types are pydantic's to judge, which is not there either.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ezgh_workflows_django import Context, Retry, Step, Worker, Workflow, workflow


def say(folder: str, word: str) -> None:
    """Leave a word with this process's id."""
    Path(folder, f"{word}.{os.getpid()}").touch()


def flaky(ctx: Context, number: Any) -> Any:
    """Fails the first time."""
    if ctx.attempt == 1:
        raise ValueError("the first time it fails")
    return number + 1


async def double(number: Any) -> Any:
    """After it."""
    return number * 2


def held(ctx: Context, folder: Any) -> Any:
    """Runs until it is told to stop, or to go on."""
    say(folder, "begun")
    ctx.progress({"at": "the gate"})
    while not Path(folder, "go").exists() and not ctx.cancelled.wait(0.02):
        pass
    say(folder, f"stopped-{ctx.cancelled.why}" if ctx.cancelled.is_set() else "ended")
    return os.getpid()


@workflow("remote-durable")
def durable(ctx: Context, number: Any) -> Any:
    """Keeps a result, waits for an event, starts a child."""
    first = ctx.step("first", lambda: number + 1)
    paid = ctx.wait_for_event("payment", event="paid", key=str(number), timeout=60)
    child = ctx.run_workflow("child", "remote-numbers", first)
    return {"first": first, "paid": paid, "child": child}


@workflow("remote-books")
def books(ctx: Context) -> Any:
    """Asks for what can't be had over HTTP."""
    return ctx.step("post", lambda: 1, transactional=True)


numbers = Workflow("remote-numbers", steps=[Step("flaky", run=flaky, retry=Retry(max_attempts=2, initial=0.05)), Step("double", run=double, after=["flaky"])])
gate = Workflow("remote-gate", steps=[Step("held", run=held)])

if __name__ == "__main__":
    worker = Worker(
        base_url=os.environ["SERVER_URL"],
        api_key=os.environ["SERVER_KEY"],
        workflows=[numbers, gate, durable, books],
        name=os.environ.get("WORKER_NAME", "remote"),
        heartbeat="process",
        grace=float(os.environ.get("GRACE", "30")),
    )
    code = worker.run_sync()
    assert not [name for name in sys.modules if name.partition(".")[0] == "django"], "Django was imported"
    sys.exit(code)
