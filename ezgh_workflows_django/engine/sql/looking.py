"""How the steps that a claim asks for are found: each revision, or each step by name, for itself, in order and no further than is needed.

One statement over all of them (`UNION ALL`), written by hand: with one condition for many revisions a database reads all that is ready of them, and
sorts it. So what is ready and not asked for, held back by a pause, or due much later is not even read, however much of it there is. The indexes are
`ezw_step_claim` and `ezw_step_name_claim`. What becomes due within `LEAD` is read in the index alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connections
from django.db.models import Exists, OuterRef, Q
from django.db.models.expressions import RawSQL

from ...models import Definition, Revision, Step, WorkflowPause
from ..clock import Now, StatementNow, read_at
from ..progress import PRIORITY_WEIGHT
from ..start_requests import MAX_PRIORITY
from ..transactions import database

LEAD = MAX_PRIORITY * PRIORITY_WEIGHT
"""How far a step's `claim_order` is from its `available_at` at most."""

JUST_NOW = timedelta(seconds=1)
"""How long ago a step may have become due that the look before did not see yet."""

MOST = 32
"""How many are looked through each for itself: every one costs the database some planning. Where they are more, all are looked through together."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What claims ask for: the revisions that are served, each with its steps (None: all), none of the `banned` definitions; of these runs (None: all)."""

    serving: Mapping[int, frozenset[str] | None]
    banned: frozenset[int] = frozenset()
    run_ids: frozenset[uuid.UUID] | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A step that a look found claimable, before anything is locked."""

    step_id: int
    partition: int
    version: str


@dataclass(frozen=True, slots=True)
class _Sql:
    """A piece of a statement, and its parameters."""

    text: str
    parameters: tuple[Any, ...] = ()


def look(wanted: Wanted, limit: int) -> list[Candidate]:
    """Claimable steps over all partitions, in claim order, none of an app or a workflow that is paused: one statement, no lock."""
    order = ["claim_order", "available_at", "id"]  # as the indexes are: what was made ready at one moment need not be sorted
    found = _first(wanted, [*order, "partition", "definition_id"], _due(), order=", ".join(order), limit=limit)
    if found is None:
        return []
    step, definition = _columns("found", ["id", "partition"]), f"{_quoted(Definition._meta.db_table)} definition"
    text = f"SELECT {step}, definition.version FROM ({found.text}) found JOIN {definition} ON definition.id = found.definition_id"  # noqa: S608 - our own names
    with connections[database()].cursor() as cursor:
        cursor.execute(f"{text} ORDER BY {_columns('found', order)} LIMIT {limit}", found.parameters)
        return [Candidate(*row) for row in cursor.fetchall()]


def runs_with_work(wanted: Wanted) -> set[uuid.UUID]:
    """The runs of the steps that `look` would take, were there no limit: one statement, no lock. For claims that name their runs."""
    held = _held_back(wanted.serving)
    chosen = _all([*_of_claim(wanted), _together(wanted.serving), _due()])
    table = f"{_quoted(Step._meta.db_table)} step"
    text = f"WITH held_back (id) AS ({held.text}) SELECT DISTINCT step.run_id FROM {table} WHERE {chosen.text}"  # noqa: S608 - our own names
    with connections[database()].cursor() as cursor:
        cursor.execute(text, (*held.parameters, *chosen.parameters))
        return {uuid.UUID(str(run_id)) for (run_id,) in cursor.fetchall()}


def next_available(wanted: Wanted, within: timedelta) -> tuple[datetime, datetime] | None:
    """When the first step that `look` would take becomes due, and the moment now; None where none does so `within` that time: one statement.

    It may have become due `JUST_NOW`, after that look. One that has been due for longer was looked at: somebody holds it.
    """
    first, last = StatementNow() - JUST_NOW, StatementNow() + within
    bounds = [("available_at", ">", first), ("available_at", "<=", last), ("claim_order", ">=", first - LEAD), ("claim_order", "<=", last + LEAD)]
    soon = _first(wanted, ["id"], _all([_is(*bound) for bound in bounds]), order="available_at", limit=1)
    if soon is None:
        return None
    steps = Step.objects.using(database()).filter(pk__in=RawSQL(f"SELECT id FROM ({soon.text}) soon", soon.parameters))  # noqa: S608, S611 - our own text
    found = steps.annotate(now=Now()).order_by("available_at").only("available_at").first()
    return None if found is None or found.available_at is None else (found.available_at, read_at(found))


def _due() -> _Sql:
    now = StatementNow()
    return _all([_is("claim_order", "<=", now + LEAD), _is("available_at", "<=", now)])


def _first(wanted: Wanted, columns: Sequence[str], which: _Sql, *, order: str, limit: int) -> _Sql | None:
    """The first steps of each branch; None where nothing is asked for."""
    branches = _branches(wanted)
    if not branches:
        return None
    chosen = _all([*_of_claim(wanted), which])
    names, table = _columns("step", columns), f"{_quoted(Step._meta.db_table)} step"
    each = [f"SELECT {names} FROM {table} WHERE {branch.text} AND {chosen.text} ORDER BY {order} LIMIT {limit}" for branch in branches]  # noqa: S608 - our own names
    union = " UNION ALL ".join(f"SELECT * FROM ({text}) branch_{place}" for place, text in enumerate(each))  # noqa: S608 - our own text
    held = _held_back(wanted.serving)
    parameters = [value for branch in branches for value in (*branch.parameters, *chosen.parameters)]
    return _Sql(f"WITH held_back (id) AS ({held.text}) {union}", (*held.parameters, *parameters))


def _branches(wanted: Wanted) -> list[_Sql]:
    serving = wanted.serving
    each = [_branch(revision_id, name) for revision_id, names in serving.items() for name in ([None] if names is None else sorted(names))]
    return each if len(each) <= MOST else [_together(serving)]


def _branch(revision_id: int, name: str | None) -> _Sql:
    """Not reading one row of what is held back: that is a condition of the branch, and of no row."""
    of_revision = _Sql("step.revision_id = %s AND NOT EXISTS (SELECT 1 FROM held_back WHERE held_back.id = %s)", (revision_id, revision_id))
    return of_revision if name is None else _all([of_revision, _Sql("step.name = %s", (name,))])


def _together(serving: Mapping[int, frozenset[str] | None]) -> _Sql:
    whole = _in("step.revision_id", [revision_id for revision_id, names in serving.items() if names is None])
    some = [_all([_Sql("step.revision_id = %s", (revision_id,)), _in("step.name", sorted(names))]) for revision_id, names in serving.items() if names]
    of_any = " OR ".join(f"({each.text})" for each in (whole, *some))
    free = "step.revision_id NOT IN (SELECT held_back.id FROM held_back)"
    served = _all([_in("step.revision_id", list(serving)), _Sql(f"({of_any})", tuple(value for each in (whole, *some) for value in each.parameters))])
    return _all([served, _Sql(free)])


def _of_claim(wanted: Wanted) -> Iterable[_Sql]:
    if wanted.banned:
        refused = _in("step.definition_id", sorted(wanted.banned))
        yield _Sql(f"NOT ({refused.text})", refused.parameters)
    if wanted.run_ids is not None:
        field = Step._meta.get_field("run")
        yield _in("step.run_id", [field.get_db_prep_value(run_id, connections[database()]) for run_id in sorted(wanted.run_ids)])


def _held_back(revision_ids: Iterable[int]) -> _Sql:
    """Those of the revisions whose app or workflow somebody has paused."""
    paused = WorkflowPause.objects.using(database()).filter(app=OuterRef("app"), workflow=OuterRef("workflow"))
    held = Revision.objects.using(database()).filter(Q(app__paused_at__isnull=False) | Exists(paused), pk__in=list(revision_ids))
    return _Sql(*held.values("id").query.get_compiler(using=database()).as_sql())


def _is(column: str, relation: str, moment: Any) -> _Sql:
    compiler = Step.objects.using(database()).all().query.get_compiler(using=database())
    text, parameters = compiler.compile(moment.resolve_expression(compiler.query))
    return _Sql(f"step.{column} {relation} {text}", tuple(parameters))


def _in(column: str, values: Sequence[Any]) -> _Sql:
    return _Sql(f"{column} IN ({', '.join(['%s'] * len(values))})", tuple(values)) if values else _Sql("1 = 0")


def _all(pieces: Iterable[_Sql]) -> _Sql:
    pieces = list(pieces)
    return _Sql(" AND ".join(piece.text for piece in pieces), tuple(value for piece in pieces for value in piece.parameters))


def _columns(of: str, names: Iterable[str]) -> str:
    return ", ".join(f"{of}.{_quoted(name)}" for name in names)


def _quoted(name: str) -> str:
    return connections[database()].ops.quote_name(name)
