"""What a worker tells whoever started it: a command that prints, a test that waits. Decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ..protocol.messages import Lease, Registered, Registration
from ..protocol.outcomes import Answer, Outcome

_log = logging.getLogger("ezgh_workflows.worker")


class Listener:
    """Hears of a worker's life, from any of its threads; logs it. Override what you want to hear otherwise; what you raise is logged."""

    def registered(self, registration: Registration, session: Registered) -> None:
        """The worker has a session, at its start or again."""
        _log.info("worker %s registered as %s for app %s", registration.worker, session.worker_id, registration.app)

    def finished(self, lease: Lease, outcome: Outcome, seconds: float, answer: Answer | None) -> None:
        """A step's outcome has landed; `answer` says what became of it. `seconds` is how long its body took."""
        _log.info(
            "%s/%s attempt %d of run %s: %s in %.3f s", lease.workflow, lease.step, lease.attempt, lease.run_id, outcome.class_ or outcome.status, seconds
        )

    def alive(self) -> None:
        """The worker's loop goes round: heard at least once a minute, at most once a second."""

    def warning(self, message: str) -> None:
        """Something went wrong that the worker gets over."""
        _log.warning("%s", message)

    def error(self, message: str) -> None:
        """Something went wrong that ends the worker, or that is a bug."""
        _log.error("%s", message)

    def stopping(self, running: int, grace: float) -> None:
        """The worker takes no more work; this many bodies have `grace` seconds left."""
        _log.info("stopping: %d bodies at work have %g s", running, grace)

    def ended(self) -> None:
        """The worker has ended: nothing more is heard of it."""


class Guarded(Listener):
    """A listener whose errors are logged and go no further: a print that fails must not end a worker (case B40)."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def registered(self, registration: Registration, session: Registered) -> None:
        """As the listener's own."""
        self._tell(self._listener.registered, registration, session)

    def finished(self, lease: Lease, outcome: Outcome, seconds: float, answer: Answer | None) -> None:
        """As the listener's own."""
        self._tell(self._listener.finished, lease, outcome, seconds, answer)

    def alive(self) -> None:
        """As the listener's own."""
        self._tell(self._listener.alive)

    def warning(self, message: str) -> None:
        """As the listener's own."""
        self._tell(self._listener.warning, message)

    def error(self, message: str) -> None:
        """As the listener's own."""
        self._tell(self._listener.error, message)

    def stopping(self, running: int, grace: float) -> None:
        """As the listener's own."""
        self._tell(self._listener.stopping, running, grace)

    def ended(self) -> None:
        """As the listener's own."""
        self._tell(self._listener.ended)

    @staticmethod
    def _tell(method: Callable[..., None], *said: Any) -> None:
        try:
            method(*said)
        except Exception:  # noqa: BLE001 - a user's code
            _log.exception("the worker's listener failed in %s", method.__name__)
