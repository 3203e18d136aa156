"""From a lease to an outcome, in named stages. Knows no transport, no other lease, no time limit.

One passage serves both kinds of bodies: a sync body never makes it wait, so `execute` drives it in the calling thread without an event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from ..protocol.messages import Lease, Outcome
from ..protocol.states import FailureClass
from .context import Context, with_step_info
from .failures import failed

if TYPE_CHECKING:
    from ..definitions.bodies import Body

_log = logging.getLogger("ezgh_workflows.worker")

Middleware = Callable[[Context], AbstractContextManager[Any]]
"""What surrounds every body: called with its context, entered before it, left after it, in its thread. It may raise; it can't swallow."""


@dataclass(slots=True)
class Execution:
    """One attempt on its way through the stages.

    `body` is None where this worker does not hold the step; `parents` are the names in the step's `after`. `scope` must surround the body
    in its own thread; where it is also an async context manager, an async body is surrounded by that side of it.
    """

    lease: Lease
    body: Body | None
    context: Context
    parents: Sequence[str] = ()
    middleware: Sequence[Middleware] = ()
    scope: AbstractContextManager[Any] = field(default_factory=nullcontext)
    input: Any = None
    result: Any = None
    returned: bool = False
    output: Any = None

    @property
    def is_async(self) -> bool:
        """Whether the body must run on an event loop."""
        return self.body is not None and self.body.is_async

    def run(self) -> Outcome:
        """The outcome, in the calling thread; an async body gets an event loop of its own."""
        return asyncio.run(self.arun()) if self.is_async else _drive(self.arun())

    async def arun(self) -> Outcome:
        """The outcome. Whatever a body raises becomes one; nothing is raised."""
        if self.body is None:
            return unservable(self.lease)
        try:
            for stage in STAGES:
                await stage(self)
        except BaseException as error:  # noqa: BLE001 - user code ran: SystemExit, KeyboardInterrupt and friends fail the attempt, not the worker
            return self._failed(error)
        return Outcome.completed(self.output, state=self.context.patch, usage=self.context.usage, spans=self.context.spans)

    def _failed(self, error: BaseException) -> Outcome:
        outcome = failed(error, self.lease, self.context)
        level = logging.ERROR if self.lease.last else logging.WARNING
        _log.log(level, "step %s of run %s, attempt %d: %s: %s", *_names(self.lease), outcome.class_, outcome.message, exc_info=error)
        return outcome


def execute(
    lease: Lease,
    body: Body | None,
    *,
    parents: Sequence[str] = (),
    context: Context | None = None,
    middleware: Sequence[Middleware] = (),
    scope: AbstractContextManager[Any] | None = None,
) -> Outcome:
    """Run one attempt in the calling thread and say how it ended. Give a `context` to keep its `cancelled` at hand. Raises nothing."""
    return Execution(lease, body, context or Context(lease), parents, middleware, scope or nullcontext()).run()


def unservable(lease: Lease) -> Outcome:
    """The outcome of a lease whose step this worker does not hold."""
    held = f"workflow {lease.workflow} revision {lease.revision}, step {lease.step}"
    return Outcome.failed(FailureClass.UNSERVABLE, f"this worker does not hold {held}")


async def decode_input(work: Execution) -> None:
    """The input as the body's annotation wants it. What does not decode raises `Permanent`: the same bytes never will."""
    assert work.body is not None
    work.input = work.body.decode(work.lease.input, has_input=work.lease.has_input, parents=work.parents)


async def call_body(work: Execution) -> None:
    """The body, inside its scope, its step info and the middleware."""
    try:
        with with_step_info(work.context.info):
            if work.is_async and hasattr(work.scope, "__aenter__"):
                async with cast(Any, work.scope):
                    await _call(work)
            else:
                with work.scope:
                    await _call(work)
    except BaseException:
        if not work.returned:
            raise
        # The work is done, and is not done again because something about it could not be tidied up.
        _log.exception("step %s of run %s, attempt %d: leaving the body's surroundings failed; its result counts", *_names(work.lease))


async def encode_output(work: Execution) -> None:
    """The result as a plain JSON value. What can't be stored raises `InvalidPayload`, its path beginning with `output`."""
    assert work.body is not None
    work.output = work.body.encode(work.result)


STAGES: Final[Sequence[Callable[[Execution], Awaitable[None]]]] = (decode_input, call_body, encode_output)


async def _call(work: Execution) -> None:
    assert work.body is not None
    ended = False
    with ExitStack() as around:
        for middleware in work.middleware:
            around.enter_context(middleware(work.context))
        result = work.body.call(work.context, work.input)
        work.result = await result if work.body.is_async else result
        ended = True
    if not ended:
        raise RuntimeError("a middleware swallowed what the body raised; it may raise something else instead")
    work.returned = True


def _drive(passage: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Run a coroutine that never waits, without an event loop."""
    try:
        passage.send(None)
    except StopIteration as end:
        return cast(Outcome, end.value)
    passage.close()
    raise RuntimeError("a sync body's passage waited; that can't happen")


def _names(lease: Lease) -> tuple[str, str, int]:
    return lease.step, lease.run_id, lease.attempt
