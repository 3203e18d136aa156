"""One pass of a body: who may ask for what, what has been given so far, and how the pass ends. The words themselves are in the files beside.

A pass asks for things in order (`replay`), on strands (`strands`), in a manner (`manner`); what it stores goes through its keeper.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cached_property
from random import Random
from typing import Any, Final, cast

from ..errors import NotAvailable, Permanent
from ..protocol.durable import Checkpoint
from ..protocol.failures import Refused
from ..protocol.messages import Lease
from ..protocol.states import CheckpointKind, FailureClass, Refusal
from .cancellation import Cancelled, Why
from .failures import dotted_name, message_of
from .in_threads import InThreads
from .keeper import Keeper
from .manner import Group, Manner
from .notes import Notes
from .on_loop import OnLoop
from .replay import Asked, Late, Order
from .strands import Strand, current_inner, current_strand
from .suspension import Broken, Suspended, Unwound, bounded, combined, is_suspension, suspensions_in

LOST: Final = {
    Refusal.FENCED: Why.FENCED,
    Refusal.ALREADY_APPLIED: Why.FENCED,
    Refusal.NOT_STARTED: Why.FENCED,
    "unknown_lease": Why.FENCED,
    Refusal.RUN_TERMINAL: Why.RUN_TERMINAL,
}
"""Refusals after which this attempt is nobody's any more."""

PATIENCE: Final = 100
"""Words that are refused to a body which swallows everything, before each further one takes a second: it then spins no more until its timeout."""


class Pass:
    """One pass of the body of `lease`. Made in the thread or task that runs it. Safe from the threads that the body's groups run in."""

    def __init__(self, lease: Lease, keeper: Keeper | None, cancelled: Cancelled, notes: Notes, *, is_async: bool, transactional: bool = False) -> None:
        self.lease = lease
        self.cancelled = cancelled
        self.manner: Manner = OnLoop(keeper, cancelled) if is_async else InThreads(keeper, cancelled)
        self.landed: dict[str, Any] = {}
        self.sent = frozenset(lease.noted)
        self.root = Strand(self, f"{lease.run_id}:{lease.step}", lease.run_started_at or offered_at(lease), notes)
        self.root.owner = self.manner.me()
        self._keeper = keeper
        self.is_async = is_async
        self._transactional = transactional
        self._lock = threading.RLock()
        self._broken: Broken | None = None
        self._refused = 0
        self._is_over = False

    @cached_property
    def order(self) -> Order:
        """What the passes before asked for, and what this one has."""
        return Order(self.lease.checkpoints)

    @property
    def keeper(self) -> Keeper:
        """The keeper; whoever asks has made sure, by `may_ask`, that there is one."""
        assert self._keeper is not None
        return self._keeper

    @property
    def strand(self) -> Strand:
        """The strand that runs here: a member of a group, else the body."""
        return current_strand(self) or self.root

    @property
    def now(self) -> datetime:
        """When the latest result was stored that the strand that runs here was given."""
        return self.strand.now

    @property
    def dice(self) -> Random:
        """What gives the function, or the strand, that runs here the same numbers in each pass."""
        inner = current_inner(self)
        return inner.random if inner is not None else self.strand.random

    @property
    def notes(self) -> Notes:
        """Where the function, or the strand, that runs here takes its notes."""
        inner = current_inner(self)
        return inner.notes if inner is not None else self.strand.notes

    async def may_ask(self, what: str) -> Strand:
        """The strand that asks for something, named in words. Raises where nothing may be asked for, or not here."""
        inner = current_inner(self)
        if inner is not None:
            raise Permanent(f"the function of step `{inner.name}` asks for {what}: only the body itself can, before or after that step")
        if self._transactional:
            raise Permanent(f"a transactional body is one transaction, and can't ask for {what}: use ctx.step(…, transactional=True) in a body that is not")
        if self._keeper is None:
            raise NotAvailable(f"there is nowhere to keep {what}: this context belongs to no worker and no lab")
        strand, me = self.strand, self.manner.me()
        if self._broken is None and strand.suspensions and (me == strand.owner or me in strand.handed):
            self.swallowed(strand, f"went on to ask for {what}")
        await self._refuse_if_over()
        return strand

    async def ask(self, name: str, kind: CheckpointKind, pos: int | None = None) -> tuple[Asked, Checkpoint | None]:
        """Ask for a thing by name: what is stored of it, or None where it is new and may be done now. Within a group, its place is the group's."""
        strand = await self.may_ask(f"`{name}`")
        with self._lock:
            try:
                in_turn = self.manner.me() == strand.owner  # no thread or task that the body has made for itself
                asked, stored = self.order.ask(name, kind, pos if pos is not None else strand.pos, in_turn=in_turn)
            except Broken as broken:
                if not isinstance(broken, Late) or all(line.group is None for line in strand.lineage()):
                    raise self.broken(broken) from None
                # A gather that failed is over, though a branch of it may not be: what that asks for next is not done, and no difference.
                self._used(strand, name)
                raise self.suspend(Suspended(f"`{name}`", late=broken)) from None
            self._used(strand, name)
        if stored is None:
            await self._let_siblings_ask(strand)
            if not self.keeper.may_run(name):
                raise self.suspend(Suspended(f"{asked}", goes_on=f"{asked} at {asked.pos}"))
        return asked, stored

    async def open_group(self, strand: Strand, what: str, name: str | None = None, fits: Callable[[str], bool] | None = None) -> int:
        """The place of a group that this strand opens; of one with a name, `fits` says which members it will have. Raises `Broken`."""
        with self._lock:
            strand.open_group()
            strand.notes.turn(f"[{strand.groups}")
            place: int = self._in_order(lambda: self.order.open_group(what, name, fits, strand.pos))
            if name is not None:
                self._used(strand, name)
        if name is not None:
            await self._let_siblings_ask(strand, f"{name}[")
        return place

    def close_group(self, pos: int, what: str) -> None:
        """A group of the body itself is over. Raises `Broken` where something stored of it was not asked for."""
        with self._lock:
            self._in_order(lambda: self.order.close_group(pos, what))

    def give(self, stored: Checkpoint) -> Checkpoint:
        """A result is given to the strand that runs here; what it notes from now on is another stretch."""
        strand = self.strand
        strand.notes.turn(stored.name)
        if stored.at is not None:
            strand.now = max(strand.now, stored.at)
        return stored

    def keep(self, stored: Checkpoint, patch: Any) -> None:
        """A result was stored in this pass, with this patch of the state."""
        with self._lock:
            self.order.keep(stored)
            self.landed |= patch
            for line in self.strand.lineage():
                line.notes.overtaken(patch)

    def suspend(self, suspended: Suspended) -> Suspended:
        """Take note that the strand that runs here parks; the caller raises what this gives."""
        strand = self.strand
        with self._lock:
            strand.suspensions.append(suspended)
            strand.handed.add(self.manner.me())
        return suspended

    def refused(self, refused: Refused) -> None:
        """Raise `Unwound` where a refusal says that the lease is lost, after telling the body; else return."""
        if refused.reason in LOST:
            self.cancelled.fire(LOST[refused.reason])
            raise Unwound(f"{refused.reason}: {refused.message}")

    def swallowed(self, strand: Strand, instead: str, error: BaseException | None = None) -> Broken:
        """The pass is broken: this strand parks, and did something else instead."""
        raised = f" and raised {dotted_name(type(error))}: {message_of(error)}" if error is not None else ""
        parks = combined(strand.suspensions, plain=False).what
        return self.broken(
            Broken(
                FailureClass.PERMANENT,
                f"the body parks on {parks}, but {instead}{raised}. What parks a body must pass through it: except BaseException, a bare except, "
                "gather(return_exceptions=True) of asyncio's and a finally that asks for more hold it up; use except Exception, and ctx.gather",
            )
        )

    def broken(self, broken: Broken) -> Broken:
        """The pass is broken, whatever the body does next; the caller raises what this gives."""
        with self._lock:
            self._broken = self._broken or broken
            return self._again()

    def call_again(self, strand: Strand) -> None:
        """The code of this strand is called once more in this pass, from its beginning, on a new strand."""
        with self._lock:
            self.order.forget(strand.asked)
            strand.notes.forget()

    async def end(self, error: BaseException | None) -> Suspended | None:
        """What the body came to, that returned or raised `error`: what it parks on, or None where that stands. Raises `Broken` and `Unwound`."""
        self._is_over = True
        if not self.cancelled.is_set():
            await self.manner.quiet()
        if self._broken is not None:
            raise self._again()
        if isinstance(error, Unwound):
            raise error
        suspended = error is not None and is_suspension(error)
        if self.root.suspensions and not suspended:
            raise self.swallowed(self.root, "returned instead" if error is None else "did not let that pass", error)
        if error is not None and suspended:
            parked = combined(self.root.suspensions or suspensions_in(error), plain=False)
            if parked.late is not None:
                raise self.broken(parked.late)
            self._in_order(lambda: self.order.finish(f"parks on {parked.what}"))
            return cast(Suspended, self._in_order(lambda: bounded(parked)))
        if error is None:
            self._in_order(lambda: self.order.finish("returned"))
        return None

    async def _refuse_if_over(self) -> None:
        if self._broken is None and not self.cancelled.is_set() and not self._is_over:
            return
        self._refused += 1
        if self._refused > PATIENCE:
            await self.manner.pause(1.0)
        if self.cancelled.is_set():
            raise Unwound(f"the body was told to stop: {self.cancelled.why}")
        if self._broken is not None:
            raise self._again()
        raise Suspended("the end of the pass")  # a task that was left running: it is asked for again in the next pass

    async def _let_siblings_ask(self, strand: Strand, but: str | None = None) -> None:
        """A new thing in a gather waits until what is stored of the gather was asked for, so that a difference is found before it runs."""
        group = strand.group
        if not isinstance(group, Group) or self.manner.me() != strand.owner:
            return
        while self.order.has_left(group.pos, but):
            if group.is_stuck:
                self.close_group(group.pos, "gather")
            await self.manner.hold_back(group)

    def _used(self, strand: Strand, name: str) -> None:
        for line in strand.lineage():
            if line.parent is not None:
                line.asked.append(name)
            if isinstance(line.group, Group):
                line.group.release()

    def _in_order(self, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except Broken as broken:
            raise self.broken(broken) from None

    def _again(self) -> Broken:
        assert self._broken is not None
        return Broken(self._broken.class_, str(self._broken))


def offered_at(lease: Lease) -> datetime:
    """When the server made this lease, by its own clock."""
    return lease.expires_at - timedelta(milliseconds=lease.expires_in_ms)
