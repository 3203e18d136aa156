"""What an app knows to run: definitions stored once by content, and their plans, kept in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from ..definitions.graph import Workflow
from ..definitions.plan import Plan
from ..definitions.registry import registry
from ..errors import InvalidWorkflow, UnknownWorkflow
from ..models import App, Definition, Revision, Run, Timetable
from ..protocol import codec
from . import uniques
from .transactions import database

SCHEMAS = "input_schemas"
_PLANS = 2048


def plan_of(run: Run) -> Plan:
    """The plan a run is pinned to; one query the first time this process meets the definition."""
    return plan(run.version, run.definition_id)


@lru_cache(maxsize=_PLANS)
def plan(version: str, definition_id: int) -> Plan:
    """The plan of a stored definition, which never changes: `version` is the hash of its content."""
    spec = Definition.objects.using(database()).values_list("spec", flat=True).get(pk=definition_id)
    return Plan.from_spec(codec.loads(spec))


def check(specs: Sequence[Mapping[str, Any]]) -> None:
    """Validate definitions that came from a worker. Raises `InvalidWorkflow` with every fault of every one of them."""
    faults: list[str] = []
    for spec in specs:
        try:
            faults += _code_faults(Workflow.from_spec(spec).plan)
        except InvalidWorkflow as error:
            faults += error.faults
    if faults:
        raise InvalidWorkflow(faults)


def store(app: App, spec: Mapping[str, Any], now: datetime) -> Definition:
    """Store a definition where it is missing (insert or ignore), and its revision. Safe in a caller's transaction."""
    hashed = {name: value for name, value in spec.items() if name != SCHEMAS}
    built = Plan.from_spec(hashed)
    definitions = Definition.objects.using(database()).filter(app=app, workflow=built.name, version=built.version)
    known = definitions.first()
    if known is not None:
        return known
    revisions = Revision.objects.using(database()).filter(app=app, workflow=built.name, revision=built.revision)
    revision = uniques.insert_or_find(Revision(app=app, workflow=built.name, revision=built.revision), revisions.first)
    definition = Definition(
        app=app,
        revision=revision,
        workflow=built.name,
        version=built.version,
        spec=codec.dumps(hashed, limit=None, what="definition"),
        input_schemas=codec.dumps(spec.get(SCHEMAS, {}), limit=None, what="definition"),
        longest_timeout_ms=built.longest_timeout_ms,
        created_at=now,
    )
    stored = uniques.insert_or_find(definition, definitions.first)
    if stored is definition:
        _plan_schedules(app, built, now)
        _tell_those_in_line(definition, now)
    return stored


def _plan_schedules(app: App, built: Plan, now: datetime) -> None:
    """Let maintenance see that the workflow's schedules are what this definition says; one that has none and never had any needs nothing."""
    timetables = Timetable.objects.using(database()).filter(app=app, workflow=built.name)
    if timetables.update(due_at=now) or not built.cron:
        return
    timetable = Timetable(app=app, workflow=built.name, due_at=now)
    if uniques.insert_or_find(timetable, timetables.first) is not timetable:
        timetables.update(due_at=now)


def _tell_those_in_line(definition: Definition, now: datetime) -> None:
    """Let maintenance see whether more of those in line may begin under this definition, where the one before it had limits."""
    rows = Definition.objects.using(database()).filter(app=definition.app_id, workflow=definition.workflow, pk__lt=definition.pk)
    before = rows.order_by("-pk").values_list("version", "pk").first()
    if before is not None and (plan(*before).concurrency or plan(*before).rate):
        Definition.objects.using(database()).filter(pk=definition.pk).update(due_at=now)


def newest(app: App, name: str) -> Definition:
    """The newest stored definition of a name. Raises `UnknownWorkflow`."""
    definition = Definition.objects.using(database()).filter(app=app, workflow=name).order_by("-pk").first()
    if definition is None:
        raise UnknownWorkflow(f'no workflow "{name}" is stored for app "{app.name}": register a worker that serves it, or import its module')
    return definition


def _code_faults(built: Plan) -> list[str]:
    """What only code can say, where this server does not hold that code."""
    waits = [step for step in built.steps.values() if step.wait is not None and step.wait.callable_key]
    try:
        registry.get(built.name, built.revision)
    except UnknownWorkflow:
        return [f"workflow {built.name}, step {step.name}: a callable key stays on the server; use key_expr" for step in waits]
    return []
