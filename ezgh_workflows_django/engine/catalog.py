"""What an app knows to run: definitions stored once by content, and their plans, kept in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from ..definitions.code_keys import code_keys
from ..definitions.graph import Workflow
from ..definitions.plan import Plan
from ..definitions.registry import registry
from ..errors import InvalidWorkflow, UnknownWorkflow
from ..models import App, Definition, Revision, Run, Timetable
from ..protocol import codec
from . import tenancy, uniques
from .transactions import database

SCHEMAS = "input_schemas"
NEWEST = ("-revision_id", "-pk")
"""The newest definition of a name first. A revision is as new as its first definition: one that is edited while it drains stays old."""

_PLANS = 2048


def plan_of(run: Run) -> Plan:
    """The plan a run is pinned to; one query the first time this process meets the definition."""
    return plan(run.version, run.definition_id)


@lru_cache(maxsize=_PLANS)
def plan(version: str, definition_id: int) -> Plan:
    """The plan of a stored definition, which never changes: `version` is the hash of its content."""
    spec = Definition.objects.using(database()).values_list("spec", flat=True).get(pk=definition_id)
    return Plan.from_spec(codec.loads(spec))


def check(specs: Sequence[Mapping[str, Any]], app: App | None = None) -> None:
    """Validate definitions that came from a worker. Raises `InvalidWorkflow` with every fault of every one of them.

    `app`: that of a worker elsewhere. Without it the worker is of this process, and brings the server's own code to whatever app it works for.
    """
    faults: list[str] = []
    for spec in specs:
        try:
            faults += _code_faults(Workflow.from_spec(spec).plan, app)
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
    before = rows.order_by(*NEWEST).values_list("version", "pk").first()
    if before is not None and _had_limits(*before):
        Definition.objects.using(database()).filter(pk=definition.pk).update(due_at=now)


def _had_limits(version: str, definition_id: int) -> bool:
    """Whether runs of a stored definition may stand in line; of one that can't be read they may."""
    try:
        built = plan(version, definition_id)
    except Exception:  # noqa: BLE001 - a stored definition that can't be read must not keep a newer one out (spec: engine.md "Time")
        return True
    return bool(built.concurrency or built.rate)


def newest(app: App, name: str) -> Definition:
    """The newest stored definition of a name: the last one of its newest revision. Raises `UnknownWorkflow`."""
    definition = Definition.objects.using(database()).filter(app=app, workflow=name).order_by(*NEWEST).first()
    if definition is None:
        raise UnknownWorkflow(f'no workflow "{name}" is stored for app "{app.name}": register a worker that serves it, or import its module')
    return definition


def of_app(app: App, name: str) -> Definition | None:
    """The newest stored definition of a name in an app of its own; None in `DEFAULT_APP`, which is at home in the server's code.

    Raises `UnknownWorkflow`: the server's code does not come to other apps by itself.
    """
    return None if _is_default(app) else newest(app, name)


def _code_faults(built: Plan, app: App | None) -> list[str]:
    """What only code can say, where the server's own code does not say it in that app (spec: authoring.md "A graph")."""
    wanted = code_keys(built)
    if not wanted:
        return []
    code = own_code(built)
    if code is not None and app is not None and not _is_at_home(built, app):
        code = None
    return [key.fault for key in wanted if key.held_by(code) is None]


def own_code(built: Plan) -> Workflow | None:
    """This process's code of a definition, by its name and revision; whether it is that app's is the caller's to know."""
    try:
        return registry.get(built.name, built.revision)
    except UnknownWorkflow:
        return None


def _is_at_home(built: Plan, app: App) -> bool:
    """Whether the server's own code has the workflow in that app: in `DEFAULT_APP`, in the developers' apps beside it, and wherever its own workers
    or starts have stored it.

    A stored callable key is the proof of that: nobody else can have brought the first one of its name and revision to the app.
    """
    if _is_default(app) or (app.is_dev and tenancy.is_own(app.pk)):
        return True
    rows = Definition.objects.using(database()).filter(app=app, workflow=built.name, revision__revision=built.revision, spec__contains="key_callable")
    return any(code_keys(plan(*row)) for row in rows.order_by("pk").values_list("version", "pk"))


def _is_default(app: App) -> bool:
    return App.objects.using(database()).filter(pk=app.pk).filter(pk=tenancy.meant(None)).exists()
