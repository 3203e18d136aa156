"""`ctx.step` and the items of `ctx.map`: a function of a durable function, run once and stored. Decides no retries: the server does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from ..definitions import signatures, validation
from ..definitions.durations import MAX_TIMEOUT_MS, Duration, in_words, milliseconds
from ..definitions.policies import NO_RETRY, Retry
from ..definitions.results import Result
from ..definitions.wire import retry_spec
from ..errors import InvalidArgument, NotAvailable, Permanent, StepFailed
from ..protocol.durable import Checkpoint, Record, Stored, WaitFor
from ..protocol.failures import Failure
from ..protocol.states import CheckpointKind, FailureClass, Mode, WaitKind
from .current_step import StepInfo
from .durable import Pass, offered_at
from .failures import failure_of, retry_after_ms
from .manner import Overran
from .notes import Notes
from .replay import Asked
from .strands import Inner
from .suspension import Broken, Suspended, Unwound

SLACK: Final = timedelta(milliseconds=50)
"""How far the moment of a lease may be off, which is told in whole milliseconds."""

_log = logging.getLogger("ezgh_workflows.worker")


@dataclass(frozen=True, slots=True)
class Work:
    """What an inner step does. Made by `work`, which refuses what can't be."""

    function: Callable[..., Any]
    result: Result
    retry: Retry
    timeout_ms: int | None
    transactional: bool
    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)

    def call(self) -> Any:
        """Call the function."""
        return self.function(*self.arguments, **self.named)


def work(name: str, function: Callable[..., Any], *, retry: Retry | None, timeout: Duration | None, transactional: bool = False) -> Work:
    """An inner step's work. Raises `InvalidArgument`, naming the argument."""
    if not callable(function):
        raise InvalidArgument("fn", f"step `{name}`: {function!r:.80} is not callable: give the function itself, and its arguments after it")
    if retry is not None and not isinstance(retry, Retry):
        raise InvalidArgument("retry", f"step `{name}`: give a Retry, not {type(retry).__name__}")
    if transactional and signatures.is_async(function):
        raise InvalidArgument("transactional", f"step `{name}`: an async function can't run in a database transaction: make it a def")
    for field_, faults in (
        ("retry", validation.inner_retry_faults(retry) if retry is not None else ()),
        ("timeout", validation.duration_faults("timeout", timeout, MAX_TIMEOUT_MS)),
    ):
        for fault in faults:
            raise InvalidArgument(field_, f"step `{name}`: {fault}")
    result = Result(function, f"step {name}")
    try:
        result.check()
    except Permanent as error:
        raise InvalidArgument("fn", str(error)) from error
    ms = None if timeout is None else milliseconds(timeout)
    return Work(function, result, retry or NO_RETRY, ms, transactional)


def with_arguments(work: Work, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Work:
    """The same work on these arguments."""
    return replace(work, arguments=arguments, named=named)


async def step(home: Pass, name: str, work: Work) -> Any:
    """The result of an inner step: the stored one, or that of its function, run now and stored. Raises `StepFailed` where it failed for good."""
    asked, stored = await home.ask(name, CheckpointKind.STEP)
    if stored is not None and stored.is_open and (not _is_due(home, stored) or not home.keeper.may_run(name)):
        raise home.suspend(_until_retry(asked, stored))
    if stored is None or stored.is_open:
        stored = await home.manner.in_flight(_Try(home, asked, work, stored).run())
    if stored.is_open:
        raise home.suspend(_until_retry(asked, stored))
    return _given(home.give(stored), work)


def _given(stored: Checkpoint, work: Work) -> Any:
    if stored.failure is not None:
        raise StepFailed(stored.failure.message, step=stored.name, failure_class=stored.failure.class_, type=stored.failure.type)
    return work.result.decode(stored.output)


def _is_due(home: Pass, stored: Checkpoint) -> bool:
    """Whether the next try's time has come, by the server's clock: another wait may have woken the body earlier."""
    return stored.retry_at is None or stored.retry_at <= offered_at(home.lease) + SLACK


def _until_retry(asked: Asked, stored: Checkpoint) -> Suspended:
    wait = WaitFor(name=asked.name, kind=WaitKind.RETRY, pos=asked.pos, until=stored.retry_at)
    # Any: a sibling that waits for longer must not hold the next try up.
    return Suspended(f"the next try of {asked}", [wait], Mode.ANY)


class _Try:
    """One try of an inner step. `before` is what is stored of the tries before it."""

    def __init__(self, home: Pass, asked: Asked, work: Work, before: Checkpoint | None) -> None:
        self._home = home
        self._asked = asked
        self._work = work
        self._failures = before.failures if before is not None else 0
        self._notes = Notes(home.lease.span_id)
        self._has_begun = False

    async def run(self) -> Checkpoint:
        """Run the function and store what it came to; gives what is stored."""
        stored = await (self._in_transaction() if self._work.transactional else self._plainly())
        if stored.refused is not None:
            self._home.refused(stored.refused)
            stored = await self._store(Failure(class_=FailureClass.PERMANENT, message=stored.refused.message))
        if stored.refused is not None:
            self._home.refused(stored.refused)
            raise Permanent(f"{self._asked} could not be stored: {stored.refused.reason}: {stored.refused.message}")
        return self._kept(stored)

    async def _plainly(self) -> Stored:
        try:
            result = await self._limited(self._call)
            output = self._work.result.encode(result)
        except BaseException as error:  # noqa: BLE001 - user code ran: whatever it raised is the step's failure
            return await self._failed(error)
        return await self._send(self._record(output=output))

    async def _in_transaction(self) -> Stored:
        try:
            stored: Stored = await self._limited(lambda: self._home.keeper.atomically(self._whole))
        except NotAvailable as error:
            if self._has_begun:
                return await self._failed(error)
            raise NotAvailable(f"{self._asked} is transactional, and this worker can't do that: {error}") from error
        except BaseException as error:  # noqa: BLE001 - user code ran: whatever it raised is the step's failure
            return await self._failed(error)
        return stored

    def _whole(self) -> Record:
        self._has_begun = True
        self._notes.forget()  # a conflict rolled back what was done before
        return self._record(output=self._work.result.encode(self._call()))

    async def _limited(self, call: Callable[[], Any]) -> Any:
        if signatures.is_async(self._work.function):
            with self._inner().entered(), self._home.cancelled.limited(self._seconds):
                return await self._home.manner.function(self._work.call, is_async=True, seconds=self._seconds)
        return await self._home.manner.function(call, is_async=False, seconds=self._seconds)

    def _call(self) -> Any:
        with self._inner().entered(), self._home.cancelled.limited(self._seconds):
            return self._work.call()

    @property
    def _seconds(self) -> float | None:
        return None if self._work.timeout_ms is None else self._work.timeout_ms / 1000

    def _inner(self) -> Inner:
        lease, name = self._home.lease, self._asked.name
        info = replace(StepInfo.of(lease), idempotency_key=f"{lease.idempotency_key}:{name}", last=self._is_last)
        return Inner(self._home, name, info, self._notes, self._home.strand, f"{lease.run_id}:{lease.step}:{name}")

    @property
    def _is_last(self) -> bool:
        return self._failures + 1 >= self._work.retry.max_attempts

    async def _failed(self, error: BaseException) -> Stored:
        if isinstance(error, (Unwound, Broken)) or (isinstance(error, asyncio.CancelledError) and self._home.cancelled.is_set()):
            raise error
        if isinstance(error, Overran):
            message = f"it timed out after {in_words(self._work.timeout_ms or 0)}"
            return await self._store(Failure(class_=FailureClass.TIMEOUT, message=message))
        failure = failure_of(error, last=self._is_last, retries=self._work.retry.max_attempts > 1)
        lease = self._home.lease
        where = f"step {self._asked.name} of {lease.workflow}/{lease.step}, run {lease.run_id}"
        _log.warning("%s: %s: %s", where, failure.class_, failure.message, exc_info=error)
        return await self._store(failure, retry_after_ms(error))

    async def _store(self, failure: Failure, retry_after: int | None = None) -> Stored:
        return await self._send(self._record(failure=failure, retry_after_ms=retry_after))

    async def _send(self, record: Record) -> Stored:
        return await self._home.manner.call(lambda: self._home.keeper.checkpoint(record))

    def _record(self, *, output: Any = None, failure: Failure | None = None, retry_after_ms: int | None = None) -> Record:
        return Record(
            lease_id=self._home.lease.id,
            name=self._asked.name,
            pos=self._asked.pos,
            output=output,
            failure=failure,
            retry=None if failure is None else retry_spec(self._work.retry),
            retry_after_ms=retry_after_ms,
            failures=None if failure is None else self._failures,
            state=(self._notes.patch or None) if failure is None else None,
            usage=self._notes.usage,
            spans=self._notes.spans,
        )

    def _kept(self, stored: Stored) -> Checkpoint:
        checkpoint = Checkpoint(
            name=stored.name,
            pos=self._asked.pos,
            kind=CheckpointKind.STEP,
            output=stored.output,
            failure=stored.failure,
            at=stored.at,
            is_open=stored.retry_at is not None,
            failures=self._failures + (stored.failure is not None),
            retry_at=stored.retry_at,
        )
        self._home.keep(checkpoint, self._notes.patch if stored.failure is None else {})
        return checkpoint
