"""The file that says that a worker process is alive, for a supervisor to look at: as old as the slowest of the process's loops."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from ..errors import InvalidArgument
from ..worker.listener import Guarded, Listener


class HeartbeatFile:
    """Touched each time the loops of all apps have been heard since it was touched last: one that is stuck is not hidden by the others.

    A worker that has ended in order is waited for no more. Raises `InvalidArgument` where the file can't be written.
    """

    def __init__(self, path: Path, apps: Iterable[str]) -> None:
        self._path = path
        self._apps = set(apps)
        self._unheard = set(self._apps)
        self._lock = threading.Lock()
        try:
            path.touch()
        except OSError as error:
            raise InvalidArgument("heartbeat-file", f"{path} can't be written: {error.strerror}") from error

    def of(self, app: str, listener: Listener) -> Listener:
        """A listener before another, by which the worker of that app is heard here."""
        return _Beating(listener, self, app)

    def heard(self, app: str) -> None:
        """That app's loop goes round."""
        with self._lock:
            self._unheard.discard(app)
            is_due = not self._unheard
            if is_due:
                self._unheard = set(self._apps)
        if is_due:
            self._path.touch()

    def ended(self, app: str) -> None:
        """That app's worker has ended."""
        with self._lock:
            self._apps.discard(app)
            self._unheard.discard(app)


class _Beating(Guarded):
    def __init__(self, listener: Listener, file: HeartbeatFile, app: str) -> None:
        super().__init__(listener)
        self._file = file
        self._app = app

    def alive(self) -> None:
        """As the listener's own, and for the file."""
        super().alive()
        self._file.heard(self._app)

    def ended(self) -> None:
        """As the listener's own, and for the file."""
        super().ended()
        self._file.ended(self._app)
