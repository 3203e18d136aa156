"""Telling waiting claims that there may be work: one bell per process, rung after commits.

On PostgreSQL commits in other processes ring it through LISTEN/NOTIFY: one connection a process, sent after the commit
because a NOTIFY inside it serialises all commits (research: feasibility 2). Looking again from time to time
(`patience`) is what correctness rests on; the bell only makes it fast.
"""

from __future__ import annotations

import contextlib
import logging
import operator
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any

from django.db import DatabaseError, connections

from ..conf import app_settings
from .transactions import database

logger = logging.getLogger("ezgh_workflows.wakeups")

CHANNEL = "ezgh_workflows"
LOOK_EVERY = 0.5
LOOK_EVERY_LISTENING = 5.0
_RECONNECT_MAX = 5.0
_POOLED = 3600.0
"""Seconds after which a connection that goes through a pooler is tried again."""


class Bell:
    """Counts the rings of each app, so that a ring between a look and a wait is not lost."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._rings: dict[int, int] = defaultdict(int)
        self._others: list[weakref.WeakMethod[Callable[[Iterable[int]], None]]] = []

    def also(self, told: Callable[[Iterable[int]], None]) -> None:
        """Call this method too with the apps of every ring, in the ringing thread, for as long as its object lives."""
        self._others = [each for each in self._others if each() is not None] + [weakref.WeakMethod(told)]

    def rings(self, app_id: int) -> int:
        """How often this app's bell has rung; pass it to `wait` after looking."""
        with self._condition:
            return self._rings[app_id]

    def ring(self, app_ids: Collection[int]) -> None:
        """Wake whoever waits for one of these apps."""
        with self._condition:
            for app_id in app_ids:
                self._rings[app_id] += 1
            self._condition.notify_all()
        for told in map(operator.call, self._others):
            if told is not None:
                told(app_ids)

    def ring_all(self) -> None:
        """Wake everybody: rings may have been missed."""
        self.ring(list(self._rings))

    def wait(self, app_id: int, since: int, timeout: float, stopped: threading.Event) -> None:
        """Return when the app's bell has rung after `since`, when `stopped` is set, or after `timeout` seconds."""
        with self._condition:
            self._condition.wait_for(lambda: self._rings[app_id] != since or stopped.is_set(), timeout)


bell = Bell()


def notify(app_ids: Iterable[int]) -> None:
    """Ring here, and on PostgreSQL in every process that listens. Never raises: a lost ring costs one look."""
    app_ids = sorted(app_ids)
    bell.ring(app_ids)
    connection = connections[database()]
    if connection.vendor != "postgresql":
        return
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, ",".join(map(str, app_ids))])
    except DatabaseError:
        logger.warning("could not notify apps %s; waiting workers find the work at their next look", app_ids, exc_info=True)


class Listener:
    """A thread that turns PostgreSQL's notifications into rings. Mends its own connection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._connected = threading.Event()

    @property
    def patience(self) -> float:
        """Seconds a waiting claim may go without looking."""
        return LOOK_EVERY_LISTENING if self._connected.is_set() else LOOK_EVERY

    def ensure(self) -> None:
        """Begin to listen, on PostgreSQL, if this process does not yet."""
        if connections[database()].vendor != "postgresql":
            return
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._stopped.clear()
                self._thread = threading.Thread(target=self._run, name="ezgh-workflows-listen", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stop listening and let go of the connection."""
        with self._lock:
            thread, self._thread = self._thread, None
        self._stopped.set()
        if thread is not None:
            thread.join(timeout=5)

    def _run(self) -> None:
        import psycopg

        pause = 0.1
        while not self._stopped.is_set():
            try:
                with self._connect(psycopg) as connection:
                    if self._hears(connection):
                        pause = 0.1
                        self._listen(connection)
                    else:
                        pause = _POOLED
            except psycopg.Error as error:
                logger.warning("listening for work stopped (%s); trying again in %.1f s", error, pause)
            finally:
                self._connected.clear()
            self._stopped.wait(pause)
            pause = min(pause * 2, _RECONNECT_MAX)

    def _connect(self, psycopg: Any) -> Any:
        dsn = app_settings.LISTEN_DSN
        if dsn:
            return psycopg.connect(dsn, autocommit=True)
        parameters = dict(connections[database()].get_connection_params())
        for own in ("cursor_factory", "context", "prepare_threshold", "isolation_level", "server_side_binding"):
            parameters.pop(own, None)
        return psycopg.connect(**parameters, autocommit=True)

    def _hears(self, connection: Any) -> bool:
        """Whether notifications arrive here. Those of a pooler's connection don't: it is recognised by the process that it says it is, which is another's.

        Then waiting claims look as often as where nobody listens. `LISTEN_DSN` is trusted to lead past it.
        """
        if app_settings.LISTEN_DSN:
            return True
        [backend] = connection.execute("SELECT pg_backend_pid()").fetchone()
        if backend != connection.info.backend_pid:
            logger.warning("the database is behind a pooler that brings no notifications; looking for work every %.1f s: set LISTEN_DSN", LOOK_EVERY)
        return bool(backend == connection.info.backend_pid)

    def _listen(self, connection: Any) -> None:
        connection.execute(f"LISTEN {CHANNEL}")
        self._connected.set()
        bell.ring_all()  # whatever was sent while nobody listened
        while not self._stopped.is_set():
            for note in connection.notifies(timeout=1.0, stop_after=1):
                with contextlib.suppress(ValueError):  # somebody else's note on our channel
                    bell.ring([int(part) for part in note.payload.split(",")])


listener = Listener()


def pause(app_id: int, since: int, seconds: float, stopped: threading.Event) -> None:
    """Wait for this app's bell, at most `seconds` and never longer than `patience`."""
    bell.wait(app_id, since, max(0.0, min(seconds, listener.patience)), stopped)
