"""Workflows that the kit's own tests run, and the list in which their bodies leave marks."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group

from ezgh_workflows_django import Context, Retry, Retryable, Sleep, Step, Wait, Workflow, step_info

MARKS: list[str] = []


def give_back(value: Any) -> Any:
    """A body."""
    return value


def mark(value: Any) -> Any:
    """Leave the step's name."""
    info = step_info()
    assert info is not None
    MARKS.append(info.step)
    return value


def stuck(ctx: Context) -> None:
    """Wait until told to stop, and say why."""
    ctx.cancelled.wait()
    MARKS.append(f"told to stop: {ctx.cancelled.why}")


def doze(ctx: Context) -> bool:
    """Wait ten minutes on `ctx`, which is no sleep."""
    return ctx.cancelled.wait(600)


def fail_twice(ctx: Context) -> int:
    """Fail the first two attempts."""
    if ctx.attempt < 3:
        raise Retryable("not yet")
    return ctx.attempt


def add_group(name: str) -> str:
    """Write with the ORM."""
    return Group.objects.create(name=name).name


async def add_group_later(name: str) -> str:
    """Write with the ORM, from a coroutine: half by its async methods, half in a thread."""
    group = await Group.objects.acreate(name=name)
    await asyncio.sleep(0)
    await sync_to_async(Group.objects.filter(pk=group.pk).update)(name=f"{name}!")
    return (await Group.objects.aget(pk=group.pk)).name


async def stuck_in_a_thread(ctx: Context) -> None:
    """Wait on `ctx` without blocking the loop; the worker cancels the coroutine when its time is up."""
    try:
        await asyncio.to_thread(ctx.cancelled.wait)
    except asyncio.CancelledError:
        MARKS.append("cancelled")
        raise
    MARKS.append("went on")


pay = Workflow(
    "pay",
    steps=[
        Step("reserve", run=give_back),
        Step("paid", after=["reserve"], wait=Wait("payment", key_expr="payload.order", timeout=timedelta(days=3))),
        Step("cool_off", after=["paid"], sleep=Sleep(timedelta(hours=24))),
        Step("ship", after=["cool_off"], run=mark),
    ],
)
export = Workflow("export", steps=[Step("write", run=stuck)], timeout=timedelta(seconds=30))
export_in_a_thread = Workflow("export_in_a_thread", steps=[Step("write", run=stuck_in_a_thread)], timeout=timedelta(seconds=30))
nap = Workflow("nap", steps=[Step("doze", run=doze)])
retried = Workflow("retried", steps=[Step("try", run=fail_twice, retry=Retry(max_attempts=3, initial=timedelta(minutes=1), jitter=0))])
group = Workflow("group", steps=[Step("add", run=add_group)])
group_later = Workflow("group_later", steps=[Step("add", run=add_group_later)])
abreast = Workflow("abreast", steps=[Step(name, run=mark) for name in ("one", "two", "three", "four", "five")])
job = Workflow("job", steps=[Step("work", run=give_back, retry=Retry(max_attempts=2))])

ALL = [pay, export, export_in_a_thread, nap, retried, group, group_later, abreast, job]
