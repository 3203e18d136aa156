"""The log line of a move: the one place where it is written. Logger `ezgh_workflows.moves`, one record a move, after its commit.

A move is what the journal has a row of, and an offered lease, which is its own record. Facts are fields of the record (`extra`): ids, names,
numbers and moments. Payloads, outputs, messages and what people write are never among them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from ..models import Lease, Run

logger = logging.getLogger("ezgh_workflows.moves")

OFFERED: Final = "lease.offered"

_SAFE: Final = ("token", "retry_at", "until", "late_ms", "episode", "ending_as", "call")
"""What of a journal row's data is logged under its own name."""

NAMES: Final = ("move", "run_id", "workflow", "app_id", "seq", "step", "attempt", "worker", "trace_id", "at", *_SAFE, "failure_class", "refusal")
"""The fields of a record; each has those that there are."""

_TROUBLES: Final = frozenset({"step.failed", "lease.refused", "lease.orphaned", "lease.reclaimed", "lease.timed_out", "on_failure.abandoned"})


@dataclass(frozen=True, slots=True)
class Move:
    """One move, as it will be logged."""

    kind: str
    facts: Mapping[str, Any]


def level_of(kind: str) -> int:
    """What becomes of whole runs, and troubles: INFO. The rest: DEBUG."""
    return logging.INFO if kind.startswith("run.") or kind in _TROUBLES else logging.DEBUG


def is_told(kind: str) -> bool:
    """Whether anybody wants to know. Cheap: asked for every move."""
    return logger.isEnabledFor(level_of(kind))


def of_journal(run: Run, kind: str, at: datetime, step: str, attempt: int | None, worker: str, data: Mapping[str, Any]) -> Move:
    """The move that a journal row tells of."""
    facts = {
        "run_id": str(run.pk),
        "workflow": run.workflow,
        "app_id": run.app_id,
        "seq": run.journal_seq,
        "step": step or None,
        "attempt": attempt,
        "worker": worker or None,
        "trace_id": run.trace_id,
        "at": at,
        **{name: data.get(name) for name in _SAFE},
        "failure_class": (data.get("failure") or {}).get("class"),
        "refusal": data.get("reason") if kind == "lease.refused" else None,
    }
    return Move(kind, {name: value for name, value in facts.items() if value is not None})


def of_offer(lease: Lease, workflow: str) -> Move:
    """The move of a lease that was handed out. A claim does not read the run, whose trace is on every later move of the lease."""
    facts = {"run_id": str(lease.run_id), "workflow": workflow, "step": lease.step.name, "attempt": lease.attempt, "worker": lease.worker_name}
    return Move(OFFERED, {**facts, "token": lease.token, "at": lease.offered_at})


def tell(moves: Iterable[Move]) -> None:
    """Log moves that have been committed."""
    for move in moves:
        logger.log(level_of(move.kind), "%s%s of run %s", move.kind, _where(move.facts), move.facts["run_id"], extra={"move": move.kind, **move.facts})


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """The facts of a record of this logger, for whoever prints them."""
    return {name: getattr(record, name) for name in NAMES if hasattr(record, name)}


def _where(facts: Mapping[str, Any]) -> str:
    attempt = f" attempt {facts['attempt']}" if "attempt" in facts else ""
    worker = f" by {facts['worker']}" if "worker" in facts else ""
    step = f"/{facts['step']}" if "step" in facts else ""
    return f" {facts['workflow']}{step}{attempt}{worker}"
