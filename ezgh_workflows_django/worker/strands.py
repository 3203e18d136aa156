"""Who asks: the body itself, a member of a group, or the function of an inner step. Context variables, so that threads and tasks keep them apart."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import cached_property

from .current_step import StepInfo, with_step_info
from .notes import Notes
from .suspension import Suspended


class Strand:
    """One line of code that asks for one thing after another: the body, or a member of one of its groups.

    `home` is its pass, `pos` the place of the group it is in (None: the body itself), `owner` the thread or task that runs it.
    `now` is when the latest result it was given was stored. `suspensions` are those it has not got over. `notes` are what it noted itself,
    `groups` how many groups it has opened.
    """

    def __init__(
        self, home: object, path: str, now: datetime, notes: Notes, *, parent: Strand | None = None, pos: int | None = None, group: object = None
    ) -> None:
        self.home = home
        self.path = path
        self.now = now
        self.notes = notes
        self.parent = parent
        self.pos = pos
        self.group = group
        self.owner: object = None
        self.suspensions: list[Suspended] = []
        self.handed: set[object] = set()
        self.asked: list[str] = []
        self.groups = 0

    @cached_property
    def random(self) -> random.Random:
        """The same numbers in each pass."""
        return random.Random(self.path)  # noqa: S311 - must be the same in each pass

    def lineage(self) -> Iterator[Strand]:
        """This strand, and those that wait for the groups it is in."""
        strand: Strand | None = self
        while strand is not None:
            yield strand
            strand = strand.parent

    def member_path(self, index: int) -> str:
        """The path of that member of the group opened last."""
        return f"{self.path}:{self.groups}.{index}"

    def open_group(self) -> None:
        """Another group of members begins."""
        self.groups += 1


class Inner:
    """One try of an inner step's function."""

    def __init__(self, home: object, name: str, info: StepInfo, notes: Notes, strand: Strand, path: str) -> None:
        self.home = home
        self.name = name
        self.info = info
        self.notes = notes
        self.strand = strand
        self.random = random.Random(path)  # noqa: S311 - must be the same in each try

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Inside the `with` runs the function."""
        token = _inner.set(self)
        try:
            with with_step_info(self.info):
                yield
        finally:
            _inner.reset(token)


_strand: ContextVar[Strand | None] = ContextVar("ezgh_workflows_strand", default=None)
_inner: ContextVar[Inner | None] = ContextVar("ezgh_workflows_inner", default=None)


def enter(strand: Strand) -> None:
    """What runs in this context from now on is that strand."""
    _strand.set(strand)


def current_strand(home: object) -> Strand | None:
    """The strand of that pass that runs here, if one does."""
    strand = _strand.get()
    return strand if strand is not None and strand.home is home else None


def current_inner(home: object) -> Inner | None:
    """The inner step of that pass whose function runs here, if one does."""
    inner = _inner.get()
    return inner if inner is not None and inner.home is home else None
