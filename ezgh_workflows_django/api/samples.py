"""One sample of every object of the worker protocol (spec: protocol.md), by the name that the OpenAPI document has for it.

They are one story: a worker that serves `order` ships order A-1, after it was paid; and one that makes pictures of many sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_WORKER: Final = "0199a3c0-5f0e-7c41-9d51-6a2f6a1f8a01"
_RUN: Final = "0199a3c1-0d3b-7f0c-8b57-2f1f3c9e4b02"
_CHILDREN: Final = ["0199a3c2-44a1-7a08-a3f4-0c9b1d7e5c03", "0199a3c2-44a2-7d16-b9c2-7e8a4f2b6d04"]
_LEASE: Final = "kX3v9Qm2T7aLr5ZcW8pYdN4s"
_OTHER: Final = "pB6n1Hf8K2wEj7RtV3mXgQ9u"
_VERSION: Final = "9f2c5d01aa37e6b4"
_AT: Final = "2026-01-31T09:00:00Z"
_LATER: Final = "2026-01-31T09:00:10Z"
_EXTENDED: Final = {"id": _LEASE, "expires_at": _LATER, "expires_in_ms": 10_000}
_ENDED: Final = {"id": _LEASE, "step": "succeeded", "run": "succeeded"}
_FENCED: Final = {"code": "fenced", "message": "this lease is over: the step was given to another worker"}

_USAGE: Final = {"unit": "tokens_in", "amount": "1250", "model": "small-1"}
_SPAN: Final = {
    "id": "00f067aa0ba902b7",
    "parent": "b7ad6b7169203331",
    "name": "ask the model",
    "start": _AT,
    "end": "2026-01-31T09:00:02.500Z",
    "attributes": {"language": "en"},
    "usage": [_USAGE],
}
_RETRY: Final = {"max_attempts": 5, "initial_ms": 5_000, "factor": 3, "maximum_ms": 60_000}
_DEFINITION: Final = {
    "name": "order",
    "revision": "1",
    "steps": [
        {"name": "reserve", "kind": "run", "retry": _RETRY, "timeout_ms": 300_000},
        {"name": "await_payment", "kind": "wait", "after": ["reserve"], "wait": {"event": "paid", "key_expr": "labels.order"}},
        {"name": "ship", "kind": "run", "after": ["await_payment"], "timeout_ms": 300_000, "delivery": "at_most_once"},
    ],
}
_SERVE: Final = {"name": "order", "revision": "1", "steps": ["ship"]}
_NAMED: Final = {"name": "order", "version": _VERSION}

_COMPLETE: Final = {"output": {"parcel": "P-7"}, "state": {"shipped": True}, "usage": [_USAGE], "spans": [_SPAN]}
_FAIL: Final = {"class": "retryable", "message": "the carrier does not answer", "type": "carrier.Timeout", "retry_after_ms": 30_000}
_WAIT: Final = {"name": "paid", "kind": "event", "pos": 2, "event": "paid", "key": "A-1", "timeout_ms": 86_400_000, "on_timeout": "continue", "lookback_ms": 0}
_SUSPEND: Final = {"waits": [_WAIT, {"name": "a day", "kind": "sleep", "pos": 3, "ms": 86_400_000}], "mode": "any", "noted": ["until-paid"]}
_FAILURE: Final = {"class": "retryable", "message": "the carrier does not answer", "type": "carrier.Timeout"}
_FAILURE_TOLD: Final = {**_FAILURE, "step": "ship", "attempt": 1}
_CHECKPOINT_TOLD: Final = {"name": "small", "pos": 1, "kind": "step", "output": {"width": 320}, "at": _AT}
_LEASE_TOLD: Final = {
    "id": _LEASE,
    "token": 3,
    "run_id": _RUN,
    "workflow": "order",
    "version": _VERSION,
    "revision": "1",
    "step": "ship",
    "attempt": 1,
    "input": {"paid": 40},
    "has_input": True,
    "steps": {"reserve": {"order": "A-1"}, "await_payment": {"paid": 40}},
    "state": {},
    "labels": {"order": "A-1"},
    "correlation_id": "A-1",
    "idempotency_key": f"{_RUN}:ship",
    "delivery": "at_most_once",
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-b7ad6b7169203331-01",
    "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    "span_id": "b7ad6b7169203331",
    "expires_at": _LATER,
    "expires_in_ms": 10_000,
    "timeout_ms": 300_000,
    "deadline": "2026-02-01T09:00:00Z",
    "run_started_at": _AT,
    "checkpoints": [_CHECKPOINT_TOLD],
    "noted": [],
    "failure": None,
    "last": False,
    "retries": True,
}

SAMPLES: Final[Mapping[str, Any]] = {
    "Beat": {"progress": {"done": 3, "of": 10}},
    "BeatOfMany": {"id": _LEASE, "progress": {"done": 3, "of": 10}},
    "Beats": {"leases": [{"id": _LEASE, "progress": {"done": 3, "of": 10}}, {"id": _OTHER}]},
    "Checkpoint": {"name": "small", "pos": 1, "kind": "step", "output": {"width": 320}},
    "CheckpointTold": _CHECKPOINT_TOLD,
    "Children": {"name": "sizes", "pos": 2, "workflow": "resize", "payloads": [{"width": 320}, {"width": 640}], "first": 0, "kind": "batch"},
    "ChildrenTold": {"name": "sizes", "runs": _CHILDREN},
    "Claim": {"worker_id": _WORKER, "claim_id": "7d1f", "max": 10, "wait_ms": 24_000, "serves": [_SERVE]},
    "Complete": _COMPLETE,
    "Definition": _DEFINITION,
    "Ended": _ENDED,
    "EndedOrNot": {"id": _OTHER, "error": _FENCED},
    "Error": {"error": _FENCED},
    "ErrorTold": _FENCED,
    "Extended": _EXTENDED,
    "ExtendedOrNot": _EXTENDED,
    "Fail": _FAIL,
    "Failure": _FAILURE,
    "FailureTold": _FAILURE_TOLD,
    "LeaseIds": {"leases": [_LEASE, _OTHER]},
    "LeaseTold": _LEASE_TOLD,
    "LeasesGiven": {"leases": [_LEASE_TOLD]},
    "ManyEnded": {"outcomes": [_ENDED, {"id": _OTHER, "error": _FENCED}]},
    "ManyExtended": {"leases": [_EXTENDED, {"id": _OTHER, "error": _FENCED}]},
    "NamedVersion": _NAMED,
    "Outcome": {"id": _LEASE, "complete": _COMPLETE},
    "Outcomes": {"outcomes": [{"id": _LEASE, "complete": _COMPLETE}, {"id": _OTHER, "fail": _FAIL}]},
    "RegisteredShape": {
        "worker_id": _WORKER,
        "lease_ttl_ms": 60_000,
        "recovery_ms": 60_000,
        "offer_ttl_ms": 10_000,
        "heartbeat_ms": 20_000,
        "max_wait_ms": 24_000,
        "max_claim": 100,
        "definitions": [_NAMED],
    },
    "Registration": {"worker": "shop-1", "app": "default", "concurrency": 10, "definitions": [_DEFINITION], "sdk": "shell/1", "host": "shop-1.example.org"},
    "RetryPolicy": _RETRY,
    "Serve": _SERVE,
    "Span": _SPAN,
    "StoredTold": {"name": "small", "final": True, "output": {"width": 320}, "at": _AT},
    "Suspend": _SUSPEND,
    "Usage": _USAGE,
    "WaitFor": _WAIT,
}
