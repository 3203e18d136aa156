"""The server's answers to a worker as the JSON bodies of protocol.md, and back. Nothing is checked here, only translated."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from . import codec, leases_json
from .durable import Started, Stored
from .failures import Failure, Refused
from .messages import USUAL_MAX_CLAIM, Claimed, Extension, Registered
from .outcomes import Answer


def registered_to_json(registered: Registered) -> dict[str, Any]:
    """The answer to `register`."""
    return {
        "worker_id": registered.worker_id,
        "lease_ttl_ms": registered.lease_ttl_ms,
        "recovery_ms": registered.recovery_ms,
        "offer_ttl_ms": registered.offer_ttl_ms,
        "heartbeat_ms": registered.heartbeat_ms,
        "max_wait_ms": registered.max_wait_ms,
        "max_claim": registered.max_claim,
        "definitions": [{"name": name, "version": version} for name, version in registered.definitions],
    }


def registered_from_json(value: Mapping[str, Any]) -> Registered:
    """Read the answer to `register`."""
    return Registered(
        worker_id=value["worker_id"],
        lease_ttl_ms=value["lease_ttl_ms"],
        recovery_ms=value["recovery_ms"],
        offer_ttl_ms=value["offer_ttl_ms"],
        heartbeat_ms=value["heartbeat_ms"],
        max_wait_ms=value["max_wait_ms"],
        max_claim=value.get("max_claim", USUAL_MAX_CLAIM),
        definitions=tuple((each["name"], each["version"]) for each in value.get("definitions", ())),
    )


def claimed_to_json(claimed: Claimed) -> dict[str, Any]:
    """The answer to `claim`."""
    told: dict[str, Any] = {"leases": [leases_json.to_json(lease) for lease in claimed.leases]}
    return told if claimed.retry_after_ms is None else {**told, "retry_after_ms": claimed.retry_after_ms}


def claimed_from_json(value: Mapping[str, Any]) -> Claimed:
    """Read the answer to `claim`."""
    return Claimed(leases=tuple(leases_json.from_json(each) for each in value["leases"]), retry_after_ms=value.get("retry_after_ms"))


def extension_to_json(extension: Extension) -> dict[str, Any]:
    """The answer to `started` or a heartbeat, or one of many."""
    if extension.refused is not None:
        return {"id": extension.lease_id, "error": refused_to_json(extension.refused)}
    return {"id": extension.lease_id, "expires_at": codec.plain(extension.expires_at, "expires_at"), "expires_in_ms": extension.expires_in_ms}


def extension_from_json(lease_id: str, value: Mapping[str, Any]) -> Extension:
    """Read the answer to `started` or a heartbeat, or one of many."""
    if "error" in value:
        return Extension(lease_id=lease_id, refused=refused_from_json(value["error"]))
    return Extension(lease_id=lease_id, expires_at=_moment(value.get("expires_at")), expires_in_ms=value.get("expires_in_ms"))


def answer_to_json(answer: Answer) -> dict[str, Any]:
    """The answer to `complete`, `fail` or `suspend`, or one of many."""
    if answer.refused is not None:
        return {"id": answer.lease_id, "error": refused_to_json(answer.refused)}
    told: dict[str, Any] = {"id": answer.lease_id, "step": answer.step and str(answer.step), "run": answer.run and str(answer.run)}
    return told if answer.retry_at is None else {**told, "retry_at": codec.plain(answer.retry_at, "retry_at")}


def answer_from_json(lease_id: str, value: Mapping[str, Any]) -> Answer:
    """Read the answer to `complete`, `fail` or `suspend`, or one of many. Raises `KeyError` where it says neither what the step is now nor why not."""
    if "error" in value:
        return Answer(lease_id=lease_id, refused=refused_from_json(value["error"]))
    return Answer(lease_id=lease_id, step=value["step"], run=value.get("run"), retry_at=_moment(value.get("retry_at")))


def stored_to_json(stored: Stored) -> dict[str, Any]:
    """The answer to `checkpoint`, or one of many."""
    if stored.refused is not None:
        return {"name": stored.name, "error": refused_to_json(stored.refused)}
    told: dict[str, Any] = {"name": stored.name, "final": stored.is_final}
    if stored.failure is None:
        told["output"] = stored.output
    else:
        told["failure"] = stored.failure.to_json()
    more = {"at": codec.plain(stored.at, "at"), "retry_at": codec.plain(stored.retry_at, "retry_at"), "repeated": stored.repeated or None}
    return told | {key: value for key, value in more.items() if value is not None}


def stored_from_json(lease_id: str, name: str, value: Mapping[str, Any]) -> Stored:
    """Read the answer to `checkpoint`, or one of many."""
    if "error" in value:
        return Stored(lease_id=lease_id, name=name, refused=refused_from_json(value["error"]))
    return Stored(
        lease_id=lease_id,
        name=value.get("name", name),
        output=value.get("output"),
        failure=Failure.from_json(value["failure"]) if value.get("failure") is not None else None,
        at=_moment(value.get("at")),
        retry_at=_moment(value.get("retry_at")),
        repeated=value.get("repeated", False),
    )


def started_to_json(started: Started) -> dict[str, Any]:
    """The answer to `children`."""
    return {"name": started.name, "runs": list(started.runs)}


def started_from_json(lease_id: str, value: Mapping[str, Any]) -> Started:
    """Read the answer to `children`."""
    return Started(lease_id=lease_id, name=value["name"], runs=tuple(value["runs"]))


def refused_to_json(refused: Refused) -> dict[str, Any]:
    """The `error` of a refused call."""
    told: dict[str, Any] = {"code": str(refused.reason), "message": refused.message}
    return told if refused.outcome is None else {**told, "outcome": dict(refused.outcome)}


def refused_from_json(value: Mapping[str, Any]) -> Refused:
    """Read the `error` of a refused call."""
    return Refused(value["code"], value.get("message", ""), value.get("outcome"))


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
