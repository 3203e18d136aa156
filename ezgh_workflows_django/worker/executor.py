"""From a lease to an outcome, in named stages. Knows no transport, no other lease, no time limit.

One passage serves both kinds of bodies: a sync body never makes it wait, so `execute` drives it in the calling thread without an event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from ..protocol.messages import Lease
from ..protocol.outcomes import Answer, Outcome, Report
from ..protocol.states import FailureClass, Refusal
from . import telemetry
from .context import Context, with_step_info
from .durable import LOST, Pass
from .failures import failed
from .manner import drive
from .suspension import Broken, Suspended, Unwound

if TYPE_CHECKING:
    from ..definitions.bodies import Body
    from .keeper import Keeper

_log = logging.getLogger("ezgh_workflows.worker")

Middleware = Callable[[Context], AbstractContextManager[Any]]
"""What surrounds every body: called with its context, entered before it, left after it, in its thread. It may raise; it can't swallow."""


@dataclass(slots=True)
class Execution:
    """One attempt on its way through the stages.

    `body` is None where this worker does not hold the step; `parents` are the names in the step's `after`. `scope` must surround the body
    in its own thread; where it is also an async context manager, an async body is surrounded by that side of it. `keeper` is what the words of
    a durable function need. With one, a `transactional` body and its outcome are one transaction: `answer` then says what became of it, and
    the outcome is not to be reported again.
    """

    lease: Lease
    body: Body | None
    context: Context
    parents: Sequence[str] = ()
    middleware: Sequence[Middleware] = ()
    scope: AbstractContextManager[Any] = field(default_factory=nullcontext)
    keeper: Keeper | None = None
    transactional: bool = False
    input: Any = None
    result: Any = None
    returned: bool = False
    output: Any = None
    answer: Answer | None = None
    home: Pass | None = None
    parked: Suspended | None = None
    broken: Broken | None = None

    @property
    def is_async(self) -> bool:
        """Whether the body must run on an event loop."""
        return self.body is not None and self.body.is_async

    def run(self) -> Outcome:
        """The outcome, in the calling thread; an async body gets an event loop of its own."""
        if self.transactional and self.keeper is not None and self.body is not None:
            with telemetry.attempt(self.lease) as tell:
                outcome = self._in_one_transaction(self.keeper)
                tell(outcome)
            return outcome
        return asyncio.run(self.arun()) if self.is_async else drive(self.arun())

    async def arun(self) -> Outcome:
        """The outcome. Whatever a body raises becomes one; nothing is raised."""
        if self.body is None:
            return unservable(self.lease)
        with telemetry.attempt(self.lease) as tell:
            try:
                outcome = await self._passage()
            except BaseException as error:  # noqa: BLE001 - user code ran: SystemExit, KeyboardInterrupt and friends fail the attempt, not the worker
                outcome = await self._ended(error)
            tell(outcome)
        return outcome

    async def _passage(self) -> Outcome:
        self.home = self.context.begin(self.keeper, is_async=self.is_async, transactional=self.transactional and self.keeper is not None)
        for stage in STAGES:
            await stage(self)
        return Outcome.completed(self.output, state=self.context.patch, usage=self.context.usage, spans=self.context.spans)

    async def _ended(self, error: BaseException) -> Outcome:
        """The outcome of a body that raised, or whose input or output did."""
        context = self.context
        try:
            self.parked = await self.home.end(error) if self.home is not None else None
        except Broken as broken:
            self.broken = broken
            _log.warning("step %s of run %s, attempt %d: %s: %s", *_names(self.lease), broken.class_, broken, exc_info=error)
            return Outcome.failed(broken.class_, str(broken), usage=context.usage, spans=context.spans)
        except BaseException as another:  # noqa: BLE001 - the body was told to stop meanwhile
            error = another
        if self.parked is not None:
            return Outcome.suspended(self.parked.waits, self.parked.mode, state=context.patch, usage=context.usage, spans=context.spans, noted=context.anchors)
        if isinstance(error, Unwound) or (isinstance(error, asyncio.CancelledError) and context.cancelled.is_set()):
            why = f"the body was told to stop, and has ended: {context.cancelled.why or error}"
            return Outcome.returned(why, usage=context.usage, spans=context.spans)
        return self._failed(error)

    def _failed(self, error: BaseException) -> Outcome:
        outcome = failed(error, self.lease, self.context)
        level = logging.ERROR if self.lease.last else logging.WARNING
        _log.log(level, "step %s of run %s, attempt %d: %s: %s", *_names(self.lease), outcome.class_, outcome.message, exc_info=error)
        return outcome

    def _in_one_transaction(self, keeper: Keeper) -> Outcome:
        scope, self.scope = self.scope, nullcontext()  # around the transaction, not within it
        outcomes: list[Outcome] = []

        def work() -> Report:
            self.result, self.returned = None, False
            outcomes.append(drive(self._passage()))
            return Report(self.lease.id, outcomes[-1])

        try:
            with scope:
                self.answer = keeper.atomically(work)
        except BaseException as error:  # noqa: BLE001 - user code ran
            if self.answer is None:
                return drive(self._ended(error))
            _log.exception("step %s of run %s, attempt %d: leaving the body's surroundings failed; its result counts", *_names(self.lease))
        return self._landed(outcomes[-1])

    def _landed(self, outcome: Outcome) -> Outcome:
        """The outcome that a transaction was to store, or what counts instead where it was refused and rolled back."""
        refused = self.answer.refused if self.answer is not None else None
        if refused is None or refused.reason == Refusal.ALREADY_APPLIED:  # by this very transaction, whose answer was lost
            return outcome
        self.answer = None
        if refused.reason in LOST:
            self.context.cancelled.fire(LOST[refused.reason])
            return Outcome.returned(f"the transaction was rolled back, {refused.reason}: {refused.message}")
        return Outcome.failed(FailureClass.PERMANENT, refused.message, usage=outcome.usage, spans=outcome.spans)


def execute(
    lease: Lease,
    body: Body | None,
    *,
    parents: Sequence[str] = (),
    context: Context | None = None,
    middleware: Sequence[Middleware] = (),
    scope: AbstractContextManager[Any] | None = None,
    keeper: Keeper | None = None,
) -> Outcome:
    """Run one attempt in the calling thread and say how it ended. Give a `context` to keep its `cancelled` at hand. Raises nothing."""
    return Execution(lease, body, context or Context(lease), parents, middleware, scope or nullcontext(), keeper).run()


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


async def end_pass(work: Execution) -> None:
    """The body has returned: whether it may have, by what the passes before asked for. Raises `suspension.Broken`."""
    assert work.home is not None
    await work.home.end(None)


async def encode_output(work: Execution) -> None:
    """The result as a plain JSON value. What can't be stored raises `InvalidPayload`, its path beginning with `output`."""
    assert work.body is not None
    work.output = work.body.encode(work.result)


STAGES: Final[Sequence[Callable[[Execution], Awaitable[None]]]] = (decode_input, call_body, end_pass, encode_output)


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


def _names(lease: Lease) -> tuple[str, str, int]:
    return lease.step, lease.run_id, lease.attempt
