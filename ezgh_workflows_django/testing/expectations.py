"""What tests say about journals, and one body alone."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import EllipsisType
from typing import Any

from ..definitions.graph import Workflow
from ..engine.handles import RunHandle
from ..protocol import codec
from ..protocol.messages import Failure, Lease
from ..worker.context import Context, with_step_info

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
    workflow: Workflow,
    step: str,
    input: Any = None,
    *,
    steps: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    attempt: int = 1,
    failure: Failure | None = None,
) -> Any:
    """Run one body alone, decoded and encoded as in a worker, with a context but no engine; gives its output as a JSON value.

    What the body raises is raised. An async body runs on an event loop of its own.
    """
    body = workflow.body(step)
    lease = Lease(
        id="run-body",
        token=1,
        run_id="run-body",
        workflow=workflow.name,
        version=workflow.version,
        revision=workflow.revision,
        step=step,
        attempt=attempt,
        expires_at=datetime.max.replace(tzinfo=UTC),
        expires_in_ms=0,
        input=codec.plain(input, "input"),
        steps=steps or {},
        state=state or {},
        labels=labels or {},
        idempotency_key=f"run-body:{step}",
        failure=failure,
    )
    context = Context(lease)
    with with_step_info(context.info):
        result = body.call(context, body.decode(lease.input, has_input=True, parents=()))
        if body.is_async:
            result = asyncio.run(result)
    return body.encode(result)


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
