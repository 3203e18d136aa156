"""The keys that are computed when a run starts, so that no code is needed later: of its waits, and of the bucket it is counted in.

Raises `InvalidArgument`, by name, where one can't be computed: the start is refused whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..definitions import expressions
from ..definitions.code_keys import CodeKey
from ..definitions.graph import Workflow
from ..definitions.plan import Plan
from ..definitions.policies import RunView
from ..errors import ExpressionError, InvalidArgument
from ..models import Run
from . import payloads, waits


def wait_keys(run: Run, plan: Plan, code: Workflow | None) -> dict[str, str]:
    """The keys of waits that need no output of a step, by step: literal ones, and callable ones. Raises `InvalidArgument`."""
    keys: dict[str, str] = {}
    view: RunView | None = None
    for step in plan.steps.values():
        if step.wait is None:
            continue
        if step.wait.key is not None:
            keys[step.name] = step.wait.key
        elif step.wait.callable_key:
            view = view or _view(run)
            key = CodeKey(plan.name, plan.revision, step.name)
            keys[step.name] = _called(key, code, view, f"workflow {plan.name}, step {step.name}")
    return keys


def slot_key(run: Run, plan: Plan, code: Workflow | None) -> str | None:
    """The key of the bucket a run is counted in, "" where its workflow has one bucket; None where nothing bounds it. Raises `InvalidArgument`."""
    policy = plan.concurrency
    if policy is None:
        return None
    where = f"workflow {plan.name}, concurrency"
    if policy.get("key_callable"):
        return _called(CodeKey(plan.name, plan.revision, None), code, _view(run), where)
    if "key_expr" in policy:
        return _evaluated(policy["key_expr"], _names(run), where)
    return str(policy.get("key", ""))


def _called(key: CodeKey, code: Workflow | None, view: RunView, where: str) -> str:
    held = key.held_by(code)
    if held is None:
        raise InvalidArgument("key", f"{key.fault}: the code here has no callable key {key} in revision {key.revision}")
    try:
        return waits.kept_key(held(view))
    except Exception as error:
        raise InvalidArgument("key", f"{where}: the key could not be computed: {type(error).__name__}: {error}") from error


def _evaluated(source: str, values: Mapping[str, Any], where: str) -> str:
    try:
        return waits.key_text(expressions.evaluate(source, values), source)
    except ExpressionError as error:
        raise InvalidArgument("key", f"{where}: the key could not be computed: {error}") from error


def _view(run: Run) -> RunView:
    labels = json.loads(run.labels)
    return RunView(id=str(run.pk), workflow=run.workflow, payload=payloads.from_text(run.payload), labels=labels, correlation_id=run.correlation_id)


def _names(run: Run) -> dict[str, Any]:
    """What an expression may name when a run starts: no step has an output yet, and no state is patched."""
    return {"payload": payloads.from_text(run.payload), "labels": json.loads(run.labels), "steps": {}, "state": {}, "run_id": str(run.pk)}
