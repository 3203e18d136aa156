"""What a worker process prints: a line for each finished step and each trouble, as text or JSON."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from django.core.management.base import OutputWrapper
from django.utils import timezone

from ..engine import moves
from ..protocol.messages import Lease, Registered, Registration
from ..protocol.outcomes import Answer, Outcome
from ..protocol.states import LeaseStatus
from ..worker.listener import Listener

FORMATS: Final = ("text", "json")


class Printer(Listener):
    """Prints what it hears, whole lines at once: results on `out`, troubles on `err`."""

    def __init__(self, out: OutputWrapper, err: OutputWrapper, *, as_json: bool = False) -> None:
        self._out = out
        self._err = err
        self._as_json = as_json
        self._lock = threading.Lock()

    def said(self, event: str, text: str, **facts: Any) -> None:
        """Print one event: the text, or the facts as a JSON object."""
        self._print(self._out, event, text, facts)

    def registered(self, registration: Registration, session: Registered) -> None:
        """See `Listener`."""
        self.said("registered", f"app {registration.app}: ready", app=registration.app, worker=registration.worker)

    def finished(self, lease: Lease, outcome: Outcome, seconds: float, answer: Answer | None) -> None:
        """See `Listener`."""
        self.said(
            "finished",
            f"{lease.workflow}/{lease.step} attempt {lease.attempt} {_ending(outcome)} after {seconds:.3f} s, run {lease.run_id}{_next(answer)}",
            workflow=lease.workflow,
            step=lease.step,
            run_id=lease.run_id,
            attempt=lease.attempt,
            status=str(outcome.status),
            class_=outcome.class_,
            message=outcome.message,
            seconds=round(seconds, 6),
            retry_at=answer.retry_at.isoformat() if answer is not None and answer.retry_at is not None else None,
        )

    def warning(self, message: str) -> None:
        """See `Listener`."""
        self._print(self._err, "warning", f"warning: {message}", {"message": message})

    def error(self, message: str) -> None:
        """See `Listener`."""
        self._print(self._err, "error", f"error: {message}", {"message": message})

    def stopping(self, running: int, grace: float) -> None:
        """See `Listener`."""
        self.said("stopping", f"stopping: {running} bodies at work have {grace:g} s", running=running, grace=grace)

    def _print(self, stream: OutputWrapper, event: str, text: str, facts: dict[str, Any]) -> None:
        now = timezone.now()
        line = json.dumps({"at": now.isoformat(), "event": event, **_present(facts)}) if self._as_json else f"{timezone.localtime(now):%H:%M:%S} {text}"
        with self._lock:
            stream.write(line)
            stream.flush()  # a pipe would keep it back until there is more


@contextmanager
def moves_printed(printer: Printer) -> Iterator[None]:
    """Meanwhile the moves that the project's `LOGGING` lets through are printed, as the printer's own events are."""
    handler = _MovePrinter(printer)
    moves.logger.addHandler(handler)
    try:
        yield
    finally:
        moves.logger.removeHandler(handler)


class _MovePrinter(logging.Handler):
    """Prints the records of `engine.moves`, at the moments of the moves."""

    def __init__(self, printer: Printer) -> None:
        super().__init__()
        self._printer = printer

    def emit(self, record: logging.LogRecord) -> None:
        """One move."""
        facts = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in moves.facts_of(record).items()}
        self._printer.said(facts.pop("move"), record.getMessage(), **facts)


def _ending(outcome: Outcome) -> str:
    if outcome.status is LeaseStatus.SUSPENDED:
        return f"parked ({', '.join(wait.name for wait in outcome.waits[:3])}{', …' if len(outcome.waits) > 3 else ''})"
    if outcome.class_ is None:
        return str(outcome.status)
    message = (outcome.message or "").splitlines() or [""]
    return f"failed ({outcome.class_}: {message[0][:500]})"


def _next(answer: Answer | None) -> str:
    if answer is None or answer.retry_at is None:
        return ""
    return f"; next attempt at {timezone.localtime(answer.retry_at):%Y-%m-%d %H:%M:%S}"


def _present(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts that have a value, under names without a trailing underscore."""
    return {name.rstrip("_"): value for name, value in facts.items() if value is not None}
