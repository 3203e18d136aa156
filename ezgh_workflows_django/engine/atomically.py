"""A body and its result in one transaction: its own ORM writes happen exactly once, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import overload

from ..protocol.durable import Record, Stored
from ..protocol.outcomes import Answer, Report
from . import checkpoints, outcomes
from .transactions import carry_out


class _Refused(Exception):
    def __init__(self, answer: Stored | Answer) -> None:
        self.answer = answer
        super().__init__()


@overload
def atomically(work: Callable[[], Record]) -> Stored: ...


@overload
def atomically(work: Callable[[], Report]) -> Answer: ...


@overload
def atomically(work: Callable[[], Record | Report]) -> Stored | Answer: ...


def atomically(work: Callable[[], Record | Report]) -> Stored | Answer:
    """Run `work` and store what it returns, in one transaction on the workflows' database; the lease is checked before the commit.

    A refusal rolls everything back and is the answer; so does a result that an earlier call has stored, whose answer was lost: what was done
    again here leaves nothing. What `work` raises comes through after the rollback. After a conflict the whole
    is done again. On SQLite the file's one write lock is held all the while.
    """
    try:
        return carry_out(lambda: _once(work))
    except _Refused as refused:
        return refused.answer


def _once(work: Callable[[], Record | Report]) -> Stored | Answer:
    done = work()
    answer: Stored | Answer
    [answer] = checkpoints.checkpoint([done]) if isinstance(done, Record) else outcomes.report([done])
    if answer.refused is not None or (isinstance(answer, Stored) and answer.repeated):
        raise _Refused(answer)
    return answer
