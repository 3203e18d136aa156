"""One event loop in a thread of its own, for async bodies. Knows coroutines, not leases."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from .cancellation import Cancelled

WIND_UP: Final = 1.0
"""Seconds that tasks which were cancelled at the end are given."""


class LoopThread:
    """Runs coroutines side by side. `on_crash` is told of an error in the loop's own work; `release` is called as the thread ends."""

    def __init__(self, *, on_crash: Callable[[BaseException], object], release: Callable[[], object]) -> None:
        self._on_crash = on_crash
        self._release = release
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closing = False
        self._is_retired = False
        self._thread = threading.Thread(target=self._serve, name="workflows-loop", daemon=True)
        self._thread.start()

    def submit(self, passage: Callable[[], Coroutine[Any, Any, Any]], cancelled: Cancelled, on_end: Callable[[asyncio.Task[Any]], object]) -> None:
        """Run a coroutine; `cancelled` cancels it, `on_end` is given its task once that is over, in the loop's thread."""
        self._loop.call_soon_threadsafe(self._spawn, passage, cancelled, on_end)

    def is_stuck(self, patience: float) -> bool:
        """Whether the loop does not take a turn within `patience` seconds: some body blocks it."""
        turned = threading.Event()
        try:
            self._loop.call_soon_threadsafe(turned.set)
        except RuntimeError:  # it was retired, and has just ended
            return False
        return not turned.wait(patience)

    def retire(self, on_turn: Callable[[], object]) -> None:
        """Nothing more is submitted: end once all that runs here has ended. `on_turn` is called in the loop's thread, when it takes its next turn."""
        self._loop.call_soon_threadsafe(self._retire, on_turn)

    def close(self, timeout: float) -> None:
        """Stop the loop and wait for its thread, at most `timeout` seconds; a blocked one stays behind."""
        self._is_closing = True
        with suppress(RuntimeError):  # it was retired, and has just ended
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)

    def _spawn(self, passage: Callable[[], Coroutine[Any, Any, Any]], cancelled: Cancelled, on_end: Callable[[asyncio.Task[Any]], object]) -> None:
        task = self._loop.create_task(passage())
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._end(done, on_end))
        if cancelled.is_set():
            task.cancel()  # at once, in this thread: so not even its first lines run
        cancelled.on_fire(lambda: self._cancel(task))

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(task.cancel)

    def _end(self, task: asyncio.Task[Any], on_end: Callable[[asyncio.Task[Any]], object]) -> None:
        self._tasks.discard(task)
        try:
            on_end(task)
        except BaseException as error:  # noqa: BLE001 - the worker ends with it, and says why
            self._on_crash(error)
        self._end_if_retired()

    def _retire(self, on_turn: Callable[[], object]) -> None:
        on_turn()
        self._is_retired = True
        self._end_if_retired()

    def _end_if_retired(self) -> None:
        if self._is_retired and not self._tasks:
            self._is_closing = True
            self._loop.stop()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._is_closing:
                self._turn()
        finally:
            self._wind_up()
            self._release()

    def _wind_up(self) -> None:
        """Close the loop; one whose tasks will not end when cancelled is left as it is, with the process about to end."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            with suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_until_complete(asyncio.wait(set(self._tasks), timeout=WIND_UP))
        if not self._tasks:
            self._loop.close()

    def _turn(self) -> None:
        """Run the loop until it is stopped. A SystemExit in a task that a body made goes to that body, and must not end everybody's loop."""
        try:
            self._loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            return
        except BaseException as error:  # noqa: BLE001 - the worker ends with it, and says why
            self._on_crash(error)
            self._is_closing = True
