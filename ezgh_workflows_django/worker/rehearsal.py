"""A body against what is stored of it, with nothing done: what replaying a journal with this code comes to. Stores nothing, runs no inner step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, overload

from ..definitions.bodies import Body
from ..protocol.durable import Children, Record, Started, Stored
from ..protocol.messages import Lease
from ..protocol.outcomes import Answer, Report
from ..protocol.states import LeaseStatus
from .context import Context
from .executor import Execution


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a body came to. `str()` says it in words.

    One of: `returned` with `output`; `parked` on that; `goes_on` with that, which no pass before has asked for; `broken`, the message of a
    difference or of a swallowed suspension; `raised`, class and message of a failure.
    """

    returned: bool = False
    output: Any = None
    parked: str | None = None
    goes_on: str | None = None
    broken: str | None = None
    raised: str | None = None

    def __str__(self) -> str:
        if self.broken is not None:
            return self.broken
        if self.goes_on is not None:
            return f"goes on with {self.goes_on}"
        if self.parked is not None:
            return f"parks on {self.parked}"
        return f"raised {self.raised}" if self.raised is not None else f"returned {self.output!r:.200}"


def replay(body: Body, lease: Lease, *, parents: Sequence[str] = ()) -> Rehearsal:
    """Run a body against the checkpoints of a lease, up to the first thing that is not stored. What is outside its steps does run."""
    work = Execution(lease, body, Context(lease), parents, keeper=RehearsalKeeper())
    outcome = work.run()
    if work.broken is not None:
        return Rehearsal(broken=str(work.broken))
    if work.parked is not None:
        return Rehearsal(parked=None if work.parked.goes_on else work.parked.what, goes_on=work.parked.goes_on)
    if outcome.status is LeaseStatus.COMPLETED:
        return Rehearsal(returned=True, output=outcome.output)
    return Rehearsal(raised=f"{outcome.class_}: {outcome.message}")


class RehearsalKeeper:
    """A `Keeper` that lets nothing new be done."""

    def may_run(self, name: str) -> bool:
        """Never."""
        return False

    def checkpoint(self, record: Record) -> Stored:
        """Not reached: nothing new is run."""
        raise _nothing_is_stored()

    def children(self, request: Children) -> Started:
        """Not reached: nothing new is run."""
        raise _nothing_is_stored()

    @overload
    def atomically(self, work: Callable[[], Record]) -> Stored: ...

    @overload
    def atomically(self, work: Callable[[], Report]) -> Answer: ...

    def atomically(self, work: Callable[[], Any]) -> Stored | Answer:
        """Not reached: nothing new is run."""
        raise _nothing_is_stored()

    def leave(self, running: Future[Any]) -> None:
        """Nothing to do: no thread was lent."""

    def start(self, call: Callable[[], None]) -> None:
        """At once: members of groups one after another."""
        call()


def _nothing_is_stored() -> RuntimeError:
    return RuntimeError("a rehearsal stores nothing; that can't happen")
