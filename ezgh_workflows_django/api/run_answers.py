"""Runs as JSON: how they stand, what they are made of. Lease ids stay with those who hold them."""

from __future__ import annotations

from typing import Any, Final

from ..conf import app_settings
from ..engine import catalog, payloads, reading, totals
from ..engine.transactions import database
from ..models import JournalEntry, Lease, Run, SpanRecord, Step
from ..protocol import amounts, codec
from ..protocol.states import RunStatus

MOST_ATTEMPTS: Final = 200


def brief(run: Run) -> dict[str, Any]:
    """A run as a list shows it. Its app is to have been read with it."""
    return {
        "id": str(run.pk),
        "app": run.app.name,
        "workflow": run.workflow,
        "version": run.version,
        "status": run.status,
        "attention": run.attention,
        "labels": payloads.from_text(run.labels),
        "correlation_id": run.correlation_id,
        "idempotency_key": run.idempotency_key,
        "priority": run.priority,
        "episode": run.episode,
        "parent": None if run.parent_id is None else str(run.parent_id),
        "created_at": moment(run.created_at),
        "start_at": moment(run.start_at),
        "started_at": moment(run.started_at),
        "ended_at": moment(run.ended_at),
        "deadline_at": moment(run.deadline_at),
        "failure": payloads.from_text(run.failure),
        "reason": run.reason,
        "cost": cost(run.usage),
    }


def in_full(run: Run) -> dict[str, Any]:
    """A run with all that can be asked of it; the last 200 attempts, in order."""
    return {
        **brief(run),
        "phase": reading.phase(run),
        "waiting_for": [{"step": each.step, "event": each.event, "key": each.key, "until": moment(each.until)} for each in reading.waiting_for(run)],
        "payload": payloads.from_text(run.payload),
        "state": payloads.from_text(run.state),
        "output": reading.output(run) if run.status == RunStatus.SUCCEEDED else None,
        "trace_id": run.trace_id,
        "usage": usage(run.usage),
        "currency": app_settings.CURRENCY,
        "steps": [_step(step) for step in reading.steps(run)],
        "attempts": _attempts(run),
    }


def graph(run: Run) -> dict[str, Any]:
    """The steps of the run's definition, with where each stands."""
    plan = catalog.plan_of(run)
    status = dict(Step.objects.using(database()).filter(run=run).values_list("name", "status"))
    nodes = [{"name": step.name, "kind": step.kind, "after": list(step.after), "status": status.get(step.name)} for step in plan.steps.values()]
    last = plan.on_failure
    on_failure: dict[str, Any] | None = None if last is None else {"name": last.name, "kind": last.kind, "after": [], "status": status.get(last.name)}
    return {"workflow": run.workflow, "version": run.version, "steps": nodes, "on_failure": on_failure}


def journal(run: Run, after: int, limit: int) -> dict[str, Any]:
    """A stretch of the run's journal, in order."""
    rows = list(JournalEntry.objects.using(database()).filter(run=run, seq__gt=after).order_by("seq")[: limit + 1])
    entries = [
        {
            "seq": row.seq,
            "kind": row.kind,
            "at": moment(row.at),
            "step": row.step,
            "attempt": row.attempt,
            "worker": row.worker,
            "data": payloads.from_text(row.data),
        }
        for row in rows[:limit]
    ]
    return {"entries": entries, "next": rows[limit - 1].seq if len(rows) > limit else None}


def spans(run: Run, after: int, limit: int) -> dict[str, Any]:
    """Some of the run's spans, in the order they came in."""
    rows = list(SpanRecord.objects.using(database()).filter(run=run, pk__gt=after).order_by("pk")[: limit + 1])
    return {"spans": [_span(row) for row in rows[:limit]], "next": rows[limit - 1].pk if len(rows) > limit else None}


def usage(text: str | None) -> list[dict[str, Any]]:
    """What was used in all, by model and unit."""
    return [total.to_json() for total in totals.read(text)]


def cost(text: str | None) -> str | None:
    """What that cost, as far as it had a price."""
    sum_ = totals.cost_of(totals.read(text))
    return None if sum_ is None else amounts.text_of(sum_)


def moment(at: Any) -> Any:
    """A moment as it travels; None stays None."""
    return codec.plain(at, "at")


def _step(step: Step) -> dict[str, Any]:
    return {
        "name": step.name,
        "kind": step.kind,
        "status": step.status,
        "attempts": step.attempts,
        "failures": step.failures,
        "available_at": moment(step.available_at),
        "started_at": moment(step.started_at),
        "ended_at": moment(step.ended_at),
        "output": payloads.from_text(step.output),
        "failure": payloads.from_text(step.failure),
        "usage": usage(step.usage),
        "cost": cost(step.usage),
    }


def _span(row: SpanRecord) -> dict[str, Any]:
    return {
        "step": row.step,
        "attempt": row.attempt,
        "checkpoint": row.checkpoint,
        "id": row.span_id,
        "parent": row.parent,
        "name": row.name,
        "start": moment(row.started_at),
        "end": moment(row.ended_at),
        "attributes": payloads.from_text(row.attributes),
        "usage": usage(row.usage),
        "cost": None if row.cost is None else amounts.text_of(row.cost),
    }


def _attempts(run: Run) -> list[dict[str, Any]]:
    leases = Lease.objects.using(database()).filter(run=run).select_related("step").order_by("-offered_at", "-token")[:MOST_ATTEMPTS]
    return [
        {
            "step": lease.step.name,
            "attempt": lease.attempt,
            "worker": lease.worker_name,
            "status": lease.status,
            "offered_at": moment(lease.offered_at),
            "started_at": moment(lease.started_at),
            "ended_at": moment(lease.ended_at),
            "progress": payloads.from_text(lease.progress),
        }
        for lease in reversed(leases)
    ]
