"""The protocol's calls straight into an engine in the same process. Is given the engine; imports none, and knows no database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, overload

from ...errors import Rejected, SessionLost, Unavailable, UnknownApp, UnknownDefinition, UnknownWorker, WorkflowsError
from ...protocol.durable import Children, Record, Started, Stored
from ...protocol.messages import Beat, Claimed, ClaimRequest, Extension, Lease, Registered, Registration
from ...protocol.outcomes import Answer, Report
from .recipe import Recipe

Answered = TypeVar("Answered")


class Engine(Protocol):
    """What a direct transport is given: the protocol's calls, raising this package's errors or those of its database."""

    @property
    def unavailable_errors(self) -> tuple[type[BaseException], ...]:
        """What its database raises when it can't answer now."""

    @property
    def recipe(self) -> Recipe | None:
        """How another process builds a transport to the same engine, or None where it can't."""

    def register(self, registration: Registration) -> Registered:
        """See `Transport`."""

    def claim(self, request: ClaimRequest) -> Claimed:
        """See `Transport`."""

    def started(self, lease_ids: Sequence[str]) -> Sequence[Extension]:
        """See `Transport`."""

    def heartbeat(self, beats: Sequence[Beat]) -> Sequence[Extension]:
        """See `Transport`."""

    def report(self, reports: Sequence[Report]) -> Sequence[Answer]:
        """See `Transport`."""

    def checkpoint(self, records: Sequence[Record]) -> Sequence[Stored]:
        """See `Transport`."""

    def children(self, request: Children) -> Started:
        """See `Transport`."""

    @overload
    def atomically(self, work: Callable[[], Record]) -> Stored: ...

    @overload
    def atomically(self, work: Callable[[], Report]) -> Answer: ...

    def atomically(self, work: Callable[[], Record] | Callable[[], Report]) -> Stored | Answer:
        """See `Transport`."""

    def leave(self, worker_id: str) -> None:
        """See `Transport`."""

    def interrupt(self) -> None:
        """See `Transport`."""

    def body_scope(self, lease: Lease) -> AbstractContextManager[None]:
        """See `Transport`."""

    def tend(self) -> None:
        """See `Transport`."""

    def release(self) -> None:
        """See `Transport`."""

    def close(self) -> None:
        """See `Transport`."""


class DirectTransport:
    """`Transport` on an engine. What its database raises becomes `Unavailable`, an unknown session `SessionLost`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def recipe(self) -> Recipe | None:
        """How another process builds the same transport."""
        return self._engine.recipe

    def register(self, registration: Registration) -> Registered:
        """Store the definitions, announce them, open a session. Raises `Rejected` with every fault of the definitions."""
        try:
            return self._call(self._engine.register, registration)
        except (SessionLost, Unavailable):
            raise
        except WorkflowsError as error:
            raise Rejected(f"the worker can't be registered: {error}") from error

    def claim(self, request: ClaimRequest) -> Claimed:
        """See `Transport`."""
        return self._call(self._engine.claim, request)

    def started(self, lease_ids: Sequence[str]) -> Sequence[Extension]:
        """See `Transport`."""
        return self._call(self._engine.started, lease_ids)

    def heartbeat(self, beats: Sequence[Beat]) -> Sequence[Extension]:
        """See `Transport`."""
        return self._call(self._engine.heartbeat, beats)

    def report(self, reports: Sequence[Report]) -> Sequence[Answer]:
        """See `Transport`."""
        return self._call(self._engine.report, reports)

    def checkpoint(self, records: Sequence[Record]) -> Sequence[Stored]:
        """See `Transport`."""
        return self._call(self._engine.checkpoint, records)

    def children(self, request: Children) -> Started:
        """See `Transport`."""
        return self._call(self._engine.children, request)

    @overload
    def atomically(self, work: Callable[[], Record]) -> Stored: ...

    @overload
    def atomically(self, work: Callable[[], Report]) -> Answer: ...

    def atomically(self, work: Callable[[], Any]) -> Stored | Answer:
        """See `Transport`. What `work` raises comes through as it is, even where it is of the database's own kinds."""
        raised: list[BaseException] = []

        def watched() -> Any:
            try:
                return work()
            except BaseException as error:
                raised.append(error)
                raise

        try:
            answer: Stored | Answer = self._engine.atomically(watched)
        except self._engine.unavailable_errors as error:
            if error in raised:
                raise
            raise Unavailable(f"{type(error).__name__}: {error}") from error
        return answer

    def leave(self, worker_id: str) -> None:
        """See `Transport`."""
        self._call(self._engine.leave, worker_id)

    def interrupt(self) -> None:
        """See `Transport`."""
        self._engine.interrupt()

    def body_scope(self, lease: Lease) -> AbstractContextManager[None]:
        """See `Transport`."""
        return self._engine.body_scope(lease)

    def tend(self) -> None:
        """See `Transport`."""
        self._call(self._engine.tend)

    def release(self) -> None:
        """See `Transport`."""
        self._engine.release()

    def close(self) -> None:
        """See `Transport`."""
        self._engine.close()

    def _call(self, verb: Callable[..., Answered], *arguments: Any) -> Answered:
        try:
            return verb(*arguments)
        except (UnknownWorker, UnknownDefinition) as error:
            raise SessionLost(str(error)) from error
        except UnknownApp as error:
            raise Rejected(str(error)) from error
        except self._engine.unavailable_errors as error:
            raise Unavailable(f"{type(error).__name__}: {error}") from error
