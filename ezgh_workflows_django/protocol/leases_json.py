"""A lease as the JSON object of protocol.md, and back. What is empty is left out of a checkpoint; a lease says everything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from . import codec
from .durable import Checkpoint
from .failures import Failure
from .messages import Lease
from .states import CheckpointKind
from .tracing import read as read_trace


def to_json(lease: Lease) -> dict[str, Any]:
    """The wire form of a lease; its values are plain JSON already."""
    return {
        "id": lease.id,
        "token": lease.token,
        "run_id": lease.run_id,
        "workflow": lease.workflow,
        "version": lease.version,
        "revision": lease.revision,
        "step": lease.step,
        "attempt": lease.attempt,
        "input": lease.input,
        "has_input": lease.has_input,
        "steps": dict(lease.steps),
        "state": dict(lease.state),
        "labels": dict(lease.labels),
        "correlation_id": lease.correlation_id,
        "idempotency_key": lease.idempotency_key,
        "delivery": str(lease.delivery),
        "traceparent": lease.traceparent,
        "trace_id": lease.trace_id,
        "span_id": lease.span_id,
        "expires_at": codec.plain(lease.expires_at, "expires_at"),
        "expires_in_ms": lease.expires_in_ms,
        "timeout_ms": lease.timeout_ms,
        "deadline": codec.plain(lease.deadline, "deadline"),
        "run_started_at": codec.plain(lease.run_started_at, "run_started_at"),
        "checkpoints": [_checkpoint_to_json(each) for each in lease.checkpoints],
        "noted": list(lease.noted),
        "failure": None if lease.failure is None else lease.failure.to_json(),
        "last": lease.last,
        "retries": lease.retries,
    }


def from_json(value: Mapping[str, Any]) -> Lease:
    """Read the wire form back; unknown keys are ignored. Raises `KeyError` and `ValueError` for what is no lease."""
    return Lease(
        id=value["id"],
        token=value["token"],
        run_id=value["run_id"],
        workflow=value["workflow"],
        version=value["version"],
        revision=value["revision"],
        step=value["step"],
        attempt=value["attempt"],
        expires_at=datetime.fromisoformat(value["expires_at"]),
        expires_in_ms=value["expires_in_ms"],
        input=value.get("input"),
        has_input=value.get("has_input", True),
        steps=value.get("steps", {}),
        state=value.get("state", {}),
        labels=value.get("labels", {}),
        correlation_id=value.get("correlation_id", ""),
        idempotency_key=value.get("idempotency_key", ""),
        delivery=value["delivery"],
        trace_id=value.get("trace_id", ""),
        span_id=value.get("span_id", ""),
        is_sampled=_is_sampled(value.get("traceparent")),
        timeout_ms=value.get("timeout_ms"),
        deadline=_moment(value.get("deadline")),
        run_started_at=_moment(value.get("run_started_at")),
        checkpoints=tuple(_checkpoint_from_json(each) for each in value.get("checkpoints", ())),
        noted=tuple(value.get("noted", ())),
        failure=_failure(value.get("failure")),
        last=value.get("last", True),
        retries=value.get("retries", False),
    )


def _checkpoint_to_json(checkpoint: Checkpoint) -> dict[str, Any]:
    told: dict[str, Any] = {"name": checkpoint.name, "pos": checkpoint.pos, "kind": str(checkpoint.kind)}
    if checkpoint.failure is not None:
        told["error"] = checkpoint.failure.to_json()
    elif checkpoint.timed_out:
        told["timed_out"] = True
    elif not checkpoint.is_open:
        told["output"] = checkpoint.output
    more = {
        "at": codec.plain(checkpoint.at, "at"),
        "open": checkpoint.is_open,
        "failures": checkpoint.failures,
        "retry_at": codec.plain(checkpoint.retry_at, "retry_at"),
        "children": checkpoint.children,
    }
    return told | {key: value for key, value in more.items() if value}


def _checkpoint_from_json(value: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        name=value["name"],
        pos=value["pos"],
        kind=CheckpointKind(value["kind"]),
        output=value.get("output"),
        failure=_failure(value.get("error")),
        timed_out=value.get("timed_out", False),
        at=_moment(value.get("at")),
        is_open=value.get("open", False),
        failures=value.get("failures", 0),
        retry_at=_moment(value.get("retry_at")),
        children=value.get("children", 0),
    )


def _is_sampled(traceparent: str | None) -> bool:
    context = read_trace(traceparent)
    return context is None or context.is_sampled


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _failure(value: Mapping[str, Any] | None) -> Failure | None:
    return None if value is None else Failure.from_json(value)
