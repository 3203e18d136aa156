"""The end of a worker's process. Python waits for every thread that a body has left in an executor, for ever if need be; a worker does not."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import Any, Final, NoReturn

PATIENCE: Final = 2.0
"""Seconds that threads which nobody waits for any more are given, once the process is about to end."""


def at_once(code: int) -> NoReturn:
    """End this process now, with what was printed and nothing else."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def in_time(code: int) -> None:
    """Whenever this process comes to its end, see that it gets there within `PATIENCE` seconds, with that exit code at the latest then.

    Threads of executors are waited for even where they are daemons, and a coroutine that was cancelled leaves its call running in one.
    """
    is_ending, is_over = threading.Event(), threading.Event()
    joins: Any = threading
    joins._register_atexit(is_ending.set)  # what concurrent.futures waits in, so it comes before that: `atexit` comes after all the waiting
    atexit.register(is_over.set)
    threading.Thread(target=_watch, args=(is_ending, is_over, code), name="workflows-exit", daemon=True).start()


def exit_code(error: SystemExit) -> int:
    """The code that Python would end with."""
    return 0 if error.code is None else error.code if isinstance(error.code, int) else 1


def _watch(is_ending: threading.Event, is_over: threading.Event, code: int) -> None:
    is_ending.wait()
    if is_over.wait(PATIENCE):
        return
    own = (threading.main_thread(), threading.current_thread())
    names = ", ".join(sorted(thread.name for thread in threading.enumerate() if thread not in own and not thread.name.startswith("workflows-")))
    print(f"the worker has ended; not waiting any longer for what bodies left running in threads: {names}", file=sys.stderr)  # noqa: T201 - the last words
    at_once(code)
