"""Where database work is done under an async server: on a few threads of this process, so that connections stay few whatever is held.

Django gives every async request a thread of its own; a connection used there would live as long as the request (research: feasibility 1).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest

from ..engine.hygiene import engine_call, other_databases

T = TypeVar("T")

THREADS: Final = 3
"""With the one that listens for work, four database connections for a process."""


class Threads:
    """The threads, started as they are needed; they live as long as the process, or until `close`."""

    def __init__(self, size: int = THREADS) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, call: Callable[[], T]) -> T:
        """What `call` gives, done on one of the threads. A call that has begun is carried through, even if nobody waits for it any more."""
        return await asyncio.wrap_future(self.post(call))

    def post(self, call: Callable[[], T]) -> Future[T]:
        """Have `call` done on one of the threads; never waits."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._size, thread_name_prefix="ezgh-workflows-api")
            return self._pool.submit(_with_connection, call)

    def close(self) -> None:
        """Let what was asked for be done, then let go of every thread and its connection."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is None:
            return
        all_here = threading.Barrier(self._size)
        for _ in range(self._size):  # one for each thread, because none ends before the last has begun
            pool.submit(_close_connections, all_here)
        pool.shutdown(wait=True)


threads = Threads()


def is_async(request: HttpRequest) -> bool:
    """Whether the request came through ASGI: only there can it be held without holding a thread and a connection."""
    return isinstance(request, ASGIRequest)


async def work(request: HttpRequest, call: Callable[[], T]) -> T:
    """Do database work for a request: on the process's own threads under ASGI, in the request's own thread under WSGI."""
    if is_async(request):
        return await threads.run(call)
    return await sync_to_async(call)()


def _with_connection(call: Callable[[], T]) -> T:
    with other_databases(), engine_call():
        return call()


def _close_connections(all_here: threading.Barrier) -> None:
    all_here.wait(timeout=60)
    connections.close_all()
