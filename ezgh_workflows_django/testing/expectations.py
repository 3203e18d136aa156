"""What tests say about journals, and one body alone."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import EllipsisType
from typing import Any

from asgiref.sync import async_to_sync

from ..definitions.bodies import Body
from ..definitions.graph import Step
from ..definitions.starts import MISSING
from ..engine.handles import RunHandle
from ..protocol import codec
from ..protocol.failures import Failure
from ..protocol.messages import Lease
from ..worker.cancellation import Cancelled
from ..worker.context import Context, with_step_info
from ..worker.suspension import Suspended
from .keeper import AloneKeeper

Expected = str | tuple[str, str] | EllipsisType
"""A kind, a kind and a step, or `...` for whatever comes between."""


def assert_journal(run: Any, expected: Sequence[Expected]) -> None:
    """The run's journal is this: kinds (`"step.started"`), kinds with their step, or `...` for any entries between.

    Raises `AssertionError` with both side by side.
    """
    entries = [(entry.kind, entry.step) for entry in RunHandle(run.id).journal]
    if not _matches(entries, list(expected)):
        wanted = ["..." if each is ... else each if isinstance(each, str) else " ".join(each) for each in expected]
        seen = [f"{kind} {step}".strip() for kind, step in entries]
        raise AssertionError("the journal is not as expected:\n" + "\n".join(difflib.ndiff(wanted, seen)))


def run_body(
    step: Step | Callable[..., Any],
    input: Any = MISSING,
    *,
    workflow: str = "alone",
    steps: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    attempt: int = 1,
    last: bool = True,
    failure: Failure | None = None,
    cancelled: Cancelled | None = None,
) -> Any:
    """Run one body alone, in the calling thread, decoded and encoded as in a worker, with a context but no engine; gives its output as a JSON value.

    `step` is one of a workflow (`order.step("ship")`) or a function. Without `input` it is run as in a run without payload. The other arguments
    are what the context shows; `cancelled` may have fired. What the body raises is raised. A coroutine's ORM calls meet the test's connection.
    Inner steps run, once and without retries (a `def`'s without timeouts), and are stored nowhere. A body that parks (a sleep, a wait, children) raises
    `AssertionError`: that takes a `Lab`.
    """
    function, name, parents = _taken_apart(step)
    where = f"{workflow}/{name}"
    body = Body(function, where)
    lease = Lease(
        id=where,
        token=1,
        run_id=where,
        workflow=workflow,
        version="",
        revision="1",
        step=name,
        attempt=attempt,
        expires_at=datetime.max.replace(tzinfo=UTC),
        expires_in_ms=0,
        input=None if input is MISSING else codec.plain(input, "input"),
        has_input=input is not MISSING,
        steps=steps or {},
        state=state or {},
        labels=labels or {},
        idempotency_key=where,
        last=last,
        failure=failure,
    )
    context = Context(lease, cancelled=cancelled)
    decoded = body.decode(lease.input, has_input=lease.has_input, parents=parents)
    try:
        with with_step_info(context.info):
            result = async_to_sync(_awaited)(body, context, decoded) if body.is_async else _called(body, context, decoded)
    except Suspended as parked:
        raise AssertionError(f"the body of {where} parks on {parked.what}, and run_body runs one pass alone: use a Lab") from None
    return body.encode(result)


def _called(body: Body, context: Context, decoded: Any) -> Any:
    context.begin(AloneKeeper(), is_async=False)
    return body.call(context, decoded)


async def _awaited(body: Body, context: Context, decoded: Any) -> Any:
    context.begin(AloneKeeper(), is_async=True)
    return await body.call(context, decoded)


def _taken_apart(step: Step | Callable[..., Any]) -> tuple[Callable[..., Any], str, Sequence[str]]:
    """The function, its step's name, and the names of the steps its input is made of."""
    if not isinstance(step, Step):
        return step, getattr(step, "__name__", "body"), ()
    if step.run is None:
        raise ValueError(f"step {step.name} is a {step.kind}: it has no body to run")
    return step.run, step.name, () if step.input is not None else step.after


def _matches(entries: list[tuple[str, str]], expected: list[Expected]) -> bool:
    """Glob matching: an ellipsis takes as many entries as it must."""
    reachable = {0}
    for each in expected:
        if each is ...:
            reachable = set(range(min(reachable), len(entries) + 1)) if reachable else set()
        else:
            reachable = {place + 1 for place in reachable if place < len(entries) and _is(entries[place], each)}
    return len(entries) in reachable


def _is(entry: tuple[str, str], expected: Expected) -> bool:
    return entry == expected or entry[0] == expected
