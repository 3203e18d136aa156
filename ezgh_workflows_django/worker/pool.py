"""Threads for sync bodies. A thread whose body will not stop is left behind and replaced, up to a bound.

Knows jobs, not leases. All threads are daemons: one that never returns must not keep the process alive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from contextvars import copy_context
from queue import Empty, SimpleQueue


class Job:
    """One call, under a key by which it can be left behind."""

    __slots__ = ("call", "is_left", "key", "thread")

    def __init__(self, key: Hashable, call: Callable[[], object]) -> None:
        self.key = key
        self.call = call
        self.is_left = False
        self.thread: threading.Thread | None = None


class Pool:
    """Up to `size` threads at work, and up to `spare` more that stand in for stuck ones.

    A job must not raise; where it does, `on_crash` is told. `release` is called by each thread as it ends; with `idle`, one ends that has
    had nothing to do for so many seconds.
    """

    def __init__(
        self,
        size: int,
        *,
        spare: int,
        on_crash: Callable[[BaseException], object],
        release: Callable[[], object],
        name: str = "body",
        idle: float | None = None,
    ) -> None:
        self._size = size
        self._spare = spare
        self._on_crash = on_crash
        self._release = release
        self._name = name
        self._idle = idle
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._running: dict[Hashable, Job] = {}
        self._alive: set[threading.Thread] = set()
        self._left: set[threading.Thread] = set()
        self._made = 0

    def submit(self, key: Hashable, call: Callable[[], object]) -> None:
        """Run `call` in a thread, soon, in a copy of that thread's context."""
        job = Job(key, call)
        with self._lock:
            self._running[key] = job
            self._grow()
        self._queue.put(job)

    def leave(self, key: Hashable) -> bool:
        """Go on without this job. Says whether it had begun, or has ended: another thread then takes the place of its own, while the bound allows.
        One that no thread has taken up is never run."""
        with self._lock:
            job = self._running.pop(key, None)
            if job is None:
                return True
            job.is_left = True
            if job.thread is None:
                return False
            self._alive.discard(job.thread)
            self._left.add(job.thread)
            self._grow()
            return True

    @property
    def stuck(self) -> int:
        """How many threads are still at a job that was left."""
        return len(self._left)

    @property
    def capacity(self) -> int:
        """How many jobs can be at work at once now; below `size` once more than `spare` threads are stuck."""
        return max(0, self._size - max(0, self.stuck - self._spare))

    def close(self, timeout: float) -> None:
        """Let the idle threads end and wait for them, at most `timeout` seconds in all. Stuck ones stay behind."""
        with self._lock:
            threads = set(self._alive)
        for _ in threads:
            self._queue.put(None)
        until = time.monotonic() + timeout
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _grow(self) -> None:
        while len(self._alive) < min(self.capacity, len(self._running)):
            self._made += 1
            thread = threading.Thread(target=self._serve, name=f"workflows-{self._name}-{self._made}", daemon=True)
            self._alive.add(thread)
            thread.start()

    def _serve(self) -> None:
        try:
            while (job := self._next()) is not None:
                if not self._is_mine(job):
                    continue
                copy_context().run(job.call)
                if self._is_over(job):
                    return
        except BaseException as error:  # noqa: BLE001 - the worker ends with it, and says why
            self._on_crash(error)
        finally:
            self._quit()

    def _next(self) -> Job | None:
        """The next job; None when it is time for this thread to end."""
        while True:
            try:
                return self._queue.get(timeout=self._idle)
            except Empty:
                if self._is_surplus():
                    return None

    def _is_surplus(self) -> bool:
        """Whether this thread is not needed; then it counts no more, so that the next job gets another."""
        with self._lock:
            if len(self._alive) <= len(self._running):
                return False
            self._alive.discard(threading.current_thread())
            return True

    def _is_mine(self, job: Job) -> bool:
        """Take a job up; says whether it is still to be run."""
        with self._lock:
            job.thread = threading.current_thread()
            return not job.is_left

    def _is_over(self, job: Job) -> bool:
        """Take note that a job has ended; says whether this thread was replaced meanwhile. Then it counts no more, neither as stuck nor as one that
        could take up the next job."""
        with self._lock:
            if self._running.get(job.key) is job:
                del self._running[job.key]
            if job.is_left:
                self._left.discard(threading.current_thread())
                self._grow()
            return job.is_left

    def _quit(self) -> None:
        self._release()
        with self._lock:
            self._alive.discard(threading.current_thread())
            self._left.discard(threading.current_thread())
