"""How a worker is told to stop: a queue that is safe to write to from a POSIX signal handler, and the handlers themselves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Final


class Cause(Enum):
    """Why a worker ends."""

    STOP = auto()  # `stop()`
    SIGNAL = auto()
    IDLE = auto()
    SPENT = auto()  # it has done its share, and makes room for a fresh one
    CRASH = auto()
    UNSENT = auto()  # outcomes could not be sent while it ended, which was said
    CLOSED = auto()  # it has ended


@dataclass(frozen=True, slots=True)
class Word:
    """One reason to end, with the error of a crash."""

    cause: Cause
    error: BaseException | None = None


LOOK: Final = 0.5
"""Seconds after which a reader looks again. A signal that arrives while the main thread is on its way into a wait does not end that wait."""


class Inbox:
    """Words for the thread in `run_sync`. `put` is safe in any thread and in a signal handler, where an Event's `set` may deadlock."""

    def __init__(self) -> None:
        self._words: SimpleQueue[Word] = SimpleQueue()

    def put(self, word: Word) -> None:
        """Leave a word; never blocks."""
        self._words.put(word)

    def get(self) -> Word:
        """The next word; blocks while there is none."""
        while True:
            try:
                return self._words.get(timeout=LOOK)
            except Empty:
                continue


SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def hold_signals() -> None:
    """Hold SIGTERM and SIGINT back until `signals_to` takes them, in whatever program this process becomes meanwhile."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


@contextmanager
def signals_to(inbox: Inbox) -> Iterator[None]:
    """Put SIGTERM and SIGINT into the inbox, as PID 1 too, with one that was held back until now; in the main thread only, since no other may.
    Puts the old handlers back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def tell(number: int, frame: FrameType | None) -> None:
        inbox.put(Word(Cause.SIGNAL))

    before = {number: signal.signal(number, tell) for number in SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
