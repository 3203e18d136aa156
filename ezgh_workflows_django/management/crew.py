"""Several workers in one process, one for each app: they run, stop and end together. Knows no flags, and prints nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from ..worker import Worker
from ..worker.shutdown import Cause, Inbox, Word, signals_to

_log = logging.getLogger("ezgh_workflows.worker")


class Crew:
    """The workers of one process. One that ends because of an error takes the others with it: no app is left unserved unseen."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = tuple(workers)
        self._codes: list[int] = []
        self._is_told_to_stop = False

    def run(self) -> int:
        """Work until stopped, in the main thread; gives the highest exit code. A second SIGTERM or SIGINT ends it at once."""
        if len(self._workers) == 1:
            return self._workers[0].run_sync()
        inbox = Inbox()
        with signals_to(inbox):
            for worker in self._workers:
                threading.Thread(target=self._run_one, args=(worker, inbox), name=f"workflows-{worker.app}", daemon=True).start()
            return self._stand_by(inbox)

    @property
    def is_spent(self) -> bool:
        """Whether they ended because a limit was reached, and nobody told them to: a fresh process is to take their place."""
        return all(worker.is_spent for worker in self._workers) and not self._is_told_to_stop

    @property
    def has_left_bodies(self) -> bool:
        """Whether a body is still at work although its worker has ended."""
        return any(worker.occupied or worker.stuck for worker in self._workers)

    def _run_one(self, worker: Worker, inbox: Inbox) -> None:
        code = 1
        try:
            code = worker.run_sync()
        except Exception:  # noqa: BLE001 - whatever it is, the exit code and the other workers must hear of it
            _log.exception("the worker of app %s failed", worker.app)
        finally:
            self._codes.append(code)
            inbox.put(Word(Cause.CLOSED))

    def _stand_by(self, inbox: Inbox) -> int:
        while len(self._codes) < len(self._workers):
            word = inbox.get()
            if word.cause is Cause.SIGNAL and self._is_told_to_stop:
                return 1
            if word.cause is Cause.SIGNAL or max(self._codes, default=0):
                self._is_told_to_stop = self._is_told_to_stop or word.cause is Cause.SIGNAL
                self._each(Worker.stop)
            elif any(worker.is_spent for worker in self._workers):
                self._each(Worker.drain)
        return max(self._codes)

    def _each(self, tell: Callable[[Worker], None]) -> None:
        for worker in self._workers:
            tell(worker)
