"""The wire form of a workflow: what is stored, hashed and sent. JSON only; what only code can say is marked, never carried.

Written by `to_spec`, read by `from_spec`, described by `SPEC_SCHEMA`. Defaults are left out, durations are milliseconds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidWorkflow
from ..protocol import codec
from .durations import from_milliseconds, milliseconds
from .names import CLASS_PATTERN, MAX_EVENT_LENGTH, MAX_KEY_LENGTH, REVISION_PATTERN, STEP_PATTERN, WORKFLOW_PATTERN
from .policies import Concurrency, Cron, RateLimit, Retry, Sleep, Wait, is_literal_key
from .shape import shape_faults
from .spec_faults import spec_faults
from .starts import MISSING

if TYPE_CHECKING:
    from .graph import Step, Workflow

_MS: Final = {"type": "integer", "minimum": 0}
RETRY_SCHEMA: Final[Mapping[str, Any]] = {
    "description": "How often a failure is tried again, and after how long.",
    "type": "object",
    "properties": {
        "max_attempts": {"type": "integer"},
        "initial_ms": _MS,
        "factor": {"type": "number"},
        "maximum_ms": _MS,
        "jitter": {"type": "number"},
        "on": {"type": "array", "items": {"type": "string", "pattern": CLASS_PATTERN}},
        "exhausted": {"enum": ["fail", "pause"]},
    },
}
"""The JSON Schema of a retry policy."""
_KEY: Final = {
    "key": {"type": "string", "maxLength": MAX_KEY_LENGTH},
    "key_expr": {"type": "string"},
    "key_callable": {"enum": [True]},
}
_WAIT: Final = {
    "type": "object",
    "required": ["event"],
    "properties": {
        "event": {"type": "string", "maxLength": MAX_EVENT_LENGTH},
        **_KEY,
        "timeout_ms": _MS,
        "lookback_ms": {"type": ["integer", "null"], "minimum": 0},
        "on_timeout": {"enum": ["fail", "continue"]},
    },
}
_STEP: Final = {
    "type": "object",
    "required": ["name", "kind"],
    "properties": {
        "name": {"type": "string", "pattern": STEP_PATTERN},
        "kind": {"enum": ["run", "wait", "sleep"]},
        "after": {"type": "array", "items": {"type": "string"}},
        "retry": RETRY_SCHEMA,
        "timeout_ms": _MS,
        "delivery": {"enum": ["at_least_once", "at_most_once"]},
        "input": {},
        "wait": _WAIT,
        "sleep_ms": _MS,
        "transactional": {"type": "boolean"},
    },
}
_CRON: Final = {
    "type": "object",
    "required": ["expression"],
    "properties": {
        "expression": {"type": "string"},
        "timezone": {"type": "string"},
        "payload": {},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "overlap": {"enum": ["skip", "queue", "allow", "cancel_running"]},
        "catch_up": {"enum": ["last", "all", "none"]},
    },
}
SPEC_SCHEMA: Final[Mapping[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Workflow definition",
    "description": "A workflow in its wire form, as `Workflow.to_spec()` has it. Defaults are left out, durations are milliseconds.",
    "type": "object",
    "required": ["name", "revision", "steps"],
    "properties": {
        "name": {"type": "string", "pattern": WORKFLOW_PATTERN},
        "revision": {"type": "string", "pattern": REVISION_PATTERN},
        "steps": {"type": "array", "minItems": 1, "items": _STEP},
        "timeout_ms": _MS,
        "deadline_ms": _MS,
        "retry": RETRY_SCHEMA,
        "on_failure": {"type": "boolean"},
        "cron": {"type": "array", "items": _CRON},
        "concurrency": {
            "type": "object",
            "required": ["limit"],
            "properties": {"limit": {"type": "integer"}, **_KEY, "on_limit": {"enum": ["queue", "reject", "cancel_oldest"]}},
        },
        "rate": {"type": "object", "required": ["limit", "per_ms"], "properties": {"limit": {"type": "integer"}, "per_ms": _MS}},
        "input_schemas": {
            "type": "object",
            "description": "JSON Schemas of typed bodies, by step; outside the hash",
            "additionalProperties": {"type": "object"},
        },
    },
}
"""The JSON Schema of the wire form. What it can't say (cycles, ranges, expressions) is said by `validation`."""

UNHASHED: Final = frozenset({"input_schemas"})
"""Keys that travel along, but make no other version."""


class Elsewhere:
    """Stands for a body that another process holds, in a workflow that was read from its wire form."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __call__(self, *_: Any) -> Any:
        """Raises: there is no code here."""
        raise TypeError(f"{self.what} was read from the wire: its code is in another process")


def canonical(value: Any) -> str:
    """The one JSON text of a value: keys sorted, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def version_of(spec: Mapping[str, Any]) -> str:
    """16 hex digits of the SHA-256 of the wire form. Keys the wire form does not know make no other version."""
    hashed = {key: value for key, value in spec.items() if key in SPEC_SCHEMA["properties"] and key not in UNHASHED}
    return hashlib.sha256(canonical(hashed).encode()).hexdigest()[:16]


def to_spec(workflow: Workflow) -> dict[str, Any]:
    """The wire form of a workflow, without its input schemas."""
    spec: dict[str, Any] = {"name": workflow.name, "revision": workflow.revision, "steps": [_step_spec(step) for step in workflow.steps]}
    optional = {
        "timeout_ms": _ms(workflow.timeout),
        "deadline_ms": _ms(workflow.deadline),
        "retry": retry_spec(workflow.retry),
        "on_failure": workflow.on_failure is not None or None,
        "cron": [_cron_spec(cron) for cron in workflow.cron] or None,
        "concurrency": _concurrency_spec(workflow.concurrency),
        "rate": workflow.rate and {"limit": workflow.rate.limit, "per_ms": milliseconds(workflow.rate.per)},
    }
    return spec | _given(optional)


def from_spec(spec: Any) -> Workflow:
    """The workflow a wire form says, its bodies elsewhere. Raises `InvalidWorkflow` with every fault; unknown keys are ignored."""
    from .graph import Workflow  # graph imports this module

    name = spec.get("name") if isinstance(spec, Mapping) else None
    where = f"workflow {name}" if isinstance(name, str) else "workflow"
    faults = shape_faults(spec, SPEC_SCHEMA, where) or spec_faults(spec, where)
    if faults:
        raise InvalidWorkflow(faults)
    return Workflow(**_read_workflow(spec))


def read_retry(stored: Mapping[str, Any]) -> Retry:
    """The policy a stored wire form says."""
    return Retry(
        max_attempts=stored.get("max_attempts", 1),
        initial=_span(stored.get("initial_ms", 1_000)),
        factor=stored.get("factor", 2),
        maximum=_span(stored.get("maximum_ms", 300_000)),
        jitter=stored.get("jitter", 0.1),
        on=frozenset(stored["on"]) if "on" in stored else "any",
        exhausted=stored.get("exhausted", "fail"),
    )


def _step_spec(step: Step) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": step.name, "kind": step.kind.value}
    optional = {
        "after": list(step.after) or None,
        "retry": retry_spec(step.retry),
        "timeout_ms": _ms(step.timeout),
        "delivery": _unless(step.delivery, "at_least_once"),
        "input": step.input,
        "wait": _wait_spec(step.wait),
        "sleep_ms": step.sleep and milliseconds(step.sleep.duration),
        "transactional": step.transactional or None,
    }
    return spec | _given(optional)


def retry_spec(retry: Retry | None) -> dict[str, Any] | None:
    """The wire form of a retry policy; None for none."""
    if retry is None:
        return None
    return _given(
        {
            "max_attempts": _unless(retry.max_attempts, 1),
            "initial_ms": _unless(milliseconds(retry.initial), 1_000),
            "factor": _unless(_number(retry.factor), 2),
            "maximum_ms": _unless(milliseconds(retry.maximum), 300_000),
            "jitter": _unless(_number(retry.jitter), 0.1),
            "on": None if retry.on == "any" else sorted({retry.on} if isinstance(retry.on, str) else set(retry.on)),
            "exhausted": _unless(retry.exhausted, "fail"),
        }
    )


def _key_spec(policy: Wait | Concurrency) -> dict[str, Any]:
    literal = is_literal_key(policy.key)
    pairs = {
        "key": str(policy.key) if literal else None,
        "key_callable": True if policy.key is not None and not literal else None,
        "key_expr": policy.key_expr,
    }
    return _given(pairs)


def _wait_spec(wait: Wait | None) -> dict[str, Any] | None:
    if wait is None:
        return None
    spec = {"event": wait.event} | _key_spec(wait) | _given({"timeout_ms": _ms(wait.timeout), "on_timeout": _unless(wait.on_timeout, "fail")})
    lookback = _ms(wait.lookback)
    return spec if lookback == 0 else spec | {"lookback_ms": lookback}


def _cron_spec(cron: Cron) -> dict[str, Any]:
    optional = {
        "timezone": _unless(cron.timezone, "UTC"),
        "labels": dict(cron.labels) if cron.labels else None,
        "overlap": _unless(cron.overlap, "skip"),
        "catch_up": _unless(cron.catch_up, "last"),
    }
    payload = {} if cron.payload is MISSING else {"payload": codec.plain(cron.payload, "payload")}
    return {"expression": cron.expression} | _given(optional) | payload


def _concurrency_spec(concurrency: Concurrency | None) -> dict[str, Any] | None:
    if concurrency is None:
        return None
    return {"limit": concurrency.limit} | _key_spec(concurrency) | _given({"on_limit": _unless(concurrency.on_limit, "queue")})


def _read_workflow(spec: Mapping[str, Any]) -> dict[str, Any]:
    name, concurrency, rate = spec["name"], spec.get("concurrency"), spec.get("rate")
    return {
        "name": name,
        "steps": [_read_step(name, entry) for entry in spec["steps"]],
        "revision": spec["revision"],
        "timeout": _optional_span(spec.get("timeout_ms")),
        "deadline": _optional_span(spec.get("deadline_ms")),
        "retry": read_retry(spec["retry"]) if "retry" in spec else None,
        "on_failure": Elsewhere(f"{name}/on_failure") if spec.get("on_failure") else None,
        "cron": [_read_cron(entry) for entry in spec.get("cron", ())],
        "concurrency": concurrency and Concurrency(concurrency["limit"], *_read_key(name, concurrency), concurrency.get("on_limit", "queue")),
        "rate": rate and RateLimit(rate["limit"], _span(rate["per_ms"])),
    }


def _read_step(workflow: str, entry: Mapping[str, Any]) -> Step:
    from .graph import Step  # graph imports this module

    where = f"{workflow}/{entry['name']}"
    return Step(
        entry["name"],
        run=Elsewhere(where) if entry["kind"] == "run" else None,
        wait=_read_wait(where, entry["wait"]) if "wait" in entry else None,
        sleep=Sleep(_span(entry["sleep_ms"])) if "sleep_ms" in entry else None,
        after=entry.get("after", ()),
        retry=read_retry(entry["retry"]) if "retry" in entry else None,
        timeout=_optional_span(entry.get("timeout_ms")),
        delivery=entry.get("delivery", "at_least_once"),
        input=entry.get("input"),
        transactional=entry.get("transactional", False),
    )


def _read_key(where: str, stored: Mapping[str, Any]) -> tuple[Any, str | None]:
    key = Elsewhere(where) if stored.get("key_callable") else stored.get("key")
    return key, stored.get("key_expr")


def _read_wait(where: str, stored: Mapping[str, Any]) -> Wait:
    key, key_expr = _read_key(where, stored)
    return Wait(
        stored["event"],
        key=key,
        key_expr=key_expr,
        timeout=_optional_span(stored.get("timeout_ms")),
        on_timeout=stored.get("on_timeout", "fail"),
        lookback=_optional_span(stored.get("lookback_ms", 0)),
    )


def _read_cron(stored: Mapping[str, Any]) -> Cron:
    return Cron(
        stored["expression"],
        timezone=stored.get("timezone", "UTC"),
        payload=stored.get("payload", MISSING),
        labels=stored.get("labels"),
        overlap=stored.get("overlap", "skip"),
        catch_up=stored.get("catch_up", "last"),
    )


def _span(ms: int) -> Any:
    # Beyond a timedelta's range the number of seconds stays what it is, for validation to refuse by name.
    try:
        return from_milliseconds(ms)
    except ValueError:
        return ms // 1_000


def _optional_span(ms: int | None) -> Any:
    return None if ms is None else _span(ms)


def _ms(duration: Any) -> int | None:
    return None if duration is None else milliseconds(duration)


def _number(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def _unless(value: Any, default: Any) -> Any:
    return None if value == default else value


def _given(pairs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in pairs.items() if value is not None}
