"""A worker's calls as the JSON bodies of protocol.md, and back. Shapes are checked by whoever reads a request; here they are only translated.

Reading raises `KeyError`, `TypeError` or `ValueError` for what is no such call, an unknown enum value included; unknown keys are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from . import codec
from .durable import Children, Record, WaitFor
from .failures import Failure
from .messages import Beat, ClaimRequest, Registration, Serve
from .notes import Usage
from .outcomes import Outcome
from .states import CheckpointKind, LeaseStatus, Mode, WaitKind

COMPLETE = "complete"
FAIL = "fail"
SUSPEND = "suspend"


def registration_to_json(registration: Registration) -> dict[str, Any]:
    """`POST workers/register`."""
    told: dict[str, Any] = {
        "worker": registration.worker,
        "app": registration.app,
        "concurrency": registration.concurrency,
        "definitions": [dict(spec) for spec in registration.definitions],
        "sdk": registration.sdk,
        "host": registration.host,
    }
    return told | _given({"organization": registration.organization, "project": registration.project, "cron": registration.cron or None})


def registration_from_json(value: Mapping[str, Any]) -> Registration:
    """Read `POST workers/register`."""
    return Registration(
        worker=value["worker"],
        app=value["app"],
        concurrency=value.get("concurrency", 10),
        definitions=tuple(value.get("definitions", ())),
        sdk=value.get("sdk", ""),
        host=value.get("host", ""),
        organization=value.get("organization"),
        project=value.get("project"),
        cron=value.get("cron", False),
    )


def claim_to_json(request: ClaimRequest) -> dict[str, Any]:
    """`POST steps/claim`."""
    told: dict[str, Any] = {
        "worker_id": request.worker_id,
        "claim_id": request.claim_id,
        "max": request.max,
        "wait_ms": request.wait_ms,
        "serves": [{"name": serve.name, "revision": serve.revision} | _given({"steps": _sorted(serve.steps)}) for serve in request.serves],
    }
    return told | _given({"run": request.run})


def claim_from_json(value: Mapping[str, Any]) -> ClaimRequest:
    """Read `POST steps/claim`."""
    serves = (Serve(each["name"], each["revision"], None if each.get("steps") is None else frozenset(each["steps"])) for each in value.get("serves", ()))
    return ClaimRequest(
        worker_id=value["worker_id"],
        claim_id=value["claim_id"],
        max=value.get("max", 1),
        wait_ms=value.get("wait_ms", 0),
        serves=tuple(serves),
        run=value.get("run"),
    )


def beat_to_json(beat: Beat) -> dict[str, Any]:
    """One entry of `POST steps/heartbeat`."""
    return {"id": beat.lease_id} | _given({"progress": beat.progress})


def beat_from_json(value: Mapping[str, Any]) -> Beat:
    """Read one entry of `POST steps/heartbeat`."""
    return Beat(value["id"], value.get("progress"))


def outcome_to_json(outcome: Outcome) -> tuple[str, dict[str, Any]]:
    """Which call says how a pass ended, and its body. The stack trace stays with the worker."""
    notes = _notes(outcome.state, outcome.usage, outcome.spans)
    if outcome.status is LeaseStatus.SUSPENDED:
        told: dict[str, Any] = {"waits": [wait_to_json(wait) for wait in outcome.waits], "mode": str(outcome.mode)} | notes
        return SUSPEND, told | ({"noted": list(outcome.noted)} if outcome.noted else {})
    if outcome.class_ is None:
        return COMPLETE, {"output": outcome.output} | notes
    told = {"class": outcome.class_, "message": outcome.message or ""}
    told |= _given({"type": outcome.type, "retry_after_ms": outcome.retry_after_ms, "body_ended": None if outcome.body_ended else False})
    return FAIL, told | notes


def outcome_from_json(call: str, value: Mapping[str, Any]) -> Outcome:
    """Read the body of `complete`, `fail` or `suspend`."""
    usage, spans = usage_from_json(value.get("usage", ())), tuple(value.get("spans", ()))
    if call == COMPLETE:
        return Outcome.completed(value.get("output"), state=value.get("state"), usage=usage, spans=spans)
    if call == SUSPEND:
        waits = tuple(wait_from_json(each) for each in value["waits"])
        noted = tuple(value.get("noted", ()))
        return Outcome.suspended(waits, Mode(value.get("mode", Mode.ALL)), state=value.get("state"), usage=usage, spans=spans, noted=noted)
    if call != FAIL:
        raise ValueError(f"{call!r} does not say how a pass ended")
    return Outcome.failed(
        value["class"],
        value.get("message", ""),
        type=value.get("type"),
        retry_after_ms=value.get("retry_after_ms"),
        body_ended=value.get("body_ended", True),
        usage=usage,
        spans=spans,
    )


def wait_to_json(wait: WaitFor) -> dict[str, Any]:
    """One of the `waits` of a suspend."""
    told: dict[str, Any] = {"name": wait.name, "kind": str(wait.kind)} | _given({"pos": wait.pos})
    if wait.kind == WaitKind.SLEEP:
        return told | _given({"ms": wait.ms, "until": codec.plain(wait.until, "until")})
    if wait.kind == WaitKind.CHILD:
        return told | {"runs": list(wait.runs)}
    if wait.kind == WaitKind.RETRY:
        return told
    return (
        told | {"event": wait.event, "key": wait.key, "on_timeout": wait.on_timeout, "lookback_ms": wait.lookback_ms} | _given({"timeout_ms": wait.timeout_ms})
    )


def wait_from_json(value: Mapping[str, Any]) -> WaitFor:
    """Read one of the `waits` of a suspend."""
    return WaitFor(
        name=value["name"],
        kind=WaitKind(value["kind"]),
        pos=value.get("pos"),
        ms=value.get("ms"),
        until=None if value.get("until") is None else datetime.fromisoformat(value["until"]),
        event=value.get("event", ""),
        key=value.get("key", ""),
        timeout_ms=value.get("timeout_ms"),
        on_timeout=value.get("on_timeout", "fail"),
        lookback_ms=value.get("lookback_ms", 0),
        runs=tuple(value.get("runs", ())),
    )


def record_to_json(record: Record) -> dict[str, Any]:
    """`POST steps/{lease}/checkpoint`."""
    told: dict[str, Any] = {"name": record.name, "pos": record.pos, "kind": str(record.kind)}
    if record.failure is None:
        told["output"] = record.output
    else:
        told["error"] = record.failure.to_json()
        told |= _given({"retry": record.retry, "retry_after_ms": record.retry_after_ms, "failures": record.failures})
    return told | _notes(record.state, record.usage, record.spans)


def record_from_json(lease_id: str, value: Mapping[str, Any]) -> Record:
    """Read `POST steps/{lease}/checkpoint`."""
    return Record(
        lease_id=lease_id,
        name=value["name"],
        pos=value["pos"],
        kind=CheckpointKind(value.get("kind", CheckpointKind.STEP)),
        output=value.get("output"),
        failure=Failure.from_json(value["error"]) if value.get("error") is not None else None,
        retry=value.get("retry"),
        retry_after_ms=value.get("retry_after_ms"),
        failures=value.get("failures"),
        state=value.get("state"),
        usage=usage_from_json(value.get("usage", ())),
        spans=tuple(value.get("spans", ())),
    )


def children_to_json(request: Children) -> dict[str, Any]:
    """`POST steps/{lease}/children`."""
    told: dict[str, Any] = {
        "name": request.name,
        "pos": request.pos,
        "workflow": request.workflow,
        "payloads": list(request.payloads),
        "first": request.first,
        "kind": str(request.kind),
    }
    return told | ({} if request.has_payload else {"has_payload": False})


def children_from_json(lease_id: str, value: Mapping[str, Any]) -> Children:
    """Read `POST steps/{lease}/children`."""
    payloads = tuple(value["payloads"])
    kind = value.get("kind", CheckpointKind.CHILD if len(payloads) == 1 and not value.get("first") else CheckpointKind.BATCH)
    return Children(
        lease_id=lease_id,
        name=value["name"],
        pos=value["pos"],
        workflow=value["workflow"],
        payloads=payloads,
        first=value.get("first", 0),
        kind=CheckpointKind(kind),
        has_payload=value.get("has_payload", True),
    )


def usage_to_json(usage: Sequence[Usage]) -> list[dict[str, str]]:
    """Amounts of what was used; decimals as text."""
    return [{"unit": each.unit, "amount": each.amount} | ({} if each.model is None else {"model": each.model}) for each in usage]


def usage_from_json(value: Sequence[Mapping[str, Any]]) -> tuple[Usage, ...]:
    """Read amounts of what was used."""
    return tuple(Usage(unit=each["unit"], amount=str(each["amount"]), model=each.get("model")) for each in value)


def _notes(state: Mapping[str, Any] | None, usage: Sequence[Usage], spans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    told: dict[str, Any] = {} if state is None else {"state": dict(state)}
    if usage:
        told["usage"] = usage_to_json(usage)
    if spans:
        told["spans"] = [dict(span) for span in spans]
    return told


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _sorted(names: frozenset[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)
