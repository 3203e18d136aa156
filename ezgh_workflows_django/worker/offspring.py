"""What the processes that a worker starts have in common: where they find code, which signals they are born deaf to."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

SHUTDOWNS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def environment() -> Mapping[str, str]:
    """The environment of a process that finds the same code."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@contextmanager
def shielded() -> Iterator[None]:
    """Hold back the signals that stop a worker, so that a child started here is born deaf to them: it must outlive the shutdown."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SHUTDOWNS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
