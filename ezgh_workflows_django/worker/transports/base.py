"""The seam between a worker and its server: the calls of the protocol, with no word of how they travel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, overload

from ...protocol.durable import Children, Record, Started, Stored
from ...protocol.messages import Beat, Claimed, ClaimRequest, Extension, Lease, Registered, Registration
from ...protocol.outcomes import Answer, Report


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a process puts around the bodies it runs, and does as each of its threads ends: a remote worker that has Django looks after its connections."""

    scope: Callable[[Lease], AbstractContextManager[Any]]
    release: Callable[[], object]


class Transport(Protocol):
    """The protocol's calls, blocking. Safe to use from several threads at once.

    Every call raises `errors.Unavailable` where trying again may help, `errors.SessionLost` where the worker must
    register again, and `errors.Rejected` where the server refuses the worker for good.
    """

    def register(self, registration: Registration) -> Registered:
        """Store the definitions, announce them, open a worker session."""

    def claim(self, request: ClaimRequest) -> Claimed:
        """Ask for leases; blocks up to `request.wait_ms` while there are none."""

    def started(self, lease_ids: Sequence[str]) -> Sequence[Extension]:
        """Say that these bodies are about to run; one answer each, in order."""

    def heartbeat(self, beats: Sequence[Beat]) -> Sequence[Extension]:
        """Extend these leases; one answer each, in order."""

    def report(self, reports: Sequence[Report]) -> Sequence[Answer]:
        """Say how these bodies ended; one answer each, in order."""

    def checkpoint(self, records: Sequence[Record]) -> Sequence[Stored]:
        """Store what inner steps came to; one answer each, in order: what is stored under that name now, or the refusal."""

    def children(self, request: Children) -> Started:
        """Start child runs, each once, however often the call is repeated."""

    @overload
    def atomically(self, work: Callable[[], Record]) -> Stored: ...

    @overload
    def atomically(self, work: Callable[[], Report]) -> Answer: ...

    def atomically(self, work: Callable[[], Record] | Callable[[], Report]) -> Stored | Answer:
        """Run `work` in the calling thread and store what it returns, in one database transaction; the lease is checked before the commit.

        A refusal rolls everything back and comes as the answer's `refused`. After a conflict `work` is called again. What `work` raises
        comes through, after the rollback. Raises `errors.NotAvailable` where this way to the server can't do it.
        """

    def leave(self, worker_id: str) -> None:
        """A clean goodbye: the session's announcements end."""

    def interrupt(self) -> None:
        """End a claim that is being held, at once and for good (shutdown). What it was just given is still returned."""

    def body_scope(self, lease: Lease) -> AbstractContextManager[None]:
        """What must surround a body in its own thread (database connections checked and closed, language reset).

        Where it is also an async context manager, an async body is surrounded by that side of it, on its event loop.
        """

    def tend(self) -> None:
        """Give the server's maintenance a chance to run; does nothing where the server looks after itself."""

    def release(self) -> None:
        """Let go of what the calling thread holds (its database connections): each of the worker's threads says so as it ends."""

    def close(self) -> None:
        """Let go of connections and threads."""
