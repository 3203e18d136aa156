"""A hundred thousand bodies asleep cost the awake nothing: the same statements, the same plan, the same pages read."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django.engine import maintenance
from ezgh_workflows_django.models import Checkpoint, Lease, Run
from ezgh_workflows_django.models import Step as StepRow
from tests.engine.conftest import Desk
from tests.engine.graphs import event, job, sleep
from tests.engine.test_statements import counted

MANY = 100_000
FEW = 2_000


def copies(handle: Any, count: int) -> None:
    """So many runs more that are as this one is, a statement for each table; their journals and leases are left out."""
    run, step = Run.objects.get(pk=handle.id), StepRow.objects.get(run=handle.id)
    numbers = f"numbers.n + {Run.objects.count() * MANY}"  # those of no other copies
    own = ID_OF_NUMBER[connection.vendor].format(f"({numbers})")
    _insert(Run, run.pk, count, id=own, journal_seq="0")
    _insert(StepRow, step.pk, count, id=None, run_id=own, token="0", attempts="0")
    for checkpoint in Checkpoint.objects.filter(run=handle.id):
        steps = StepRow._meta.db_table
        _insert(Checkpoint, checkpoint.pk, count, id=None, run_id=own, step_id=f"(SELECT copied.id FROM {steps} copied WHERE copied.run_id = {own})")


ID_OF_NUMBER = {
    "postgresql": "lpad(to_hex({}), 32, '0')::uuid",
    "mysql": "lpad(lower(hex({})), 32, '0')",
    "sqlite": "printf('%%032x', {})",
}
"""A run's id that holds a number."""


def _insert(model: Any, pk: Any, count: int, **fields: str | None) -> None:
    """Insert that row so many times, each with a number `n`; `fields` are what is another in each, as SQL, or None for what the database gives."""
    quote, meta = connection.ops.quote_name, model._meta
    columns = [field.column for field in meta.concrete_fields if fields.get(field.column, "") is not None]
    values = [fields.get(column) or f"copied_row.{quote(column)}" for column in columns]
    digits = f"({' UNION ALL '.join(f'SELECT {digit} AS d' for digit in range(10))})"
    places = len(str(count - 1))
    number = " + ".join(f"d{place}.d * {10**place}" for place in range(places))
    tables = " CROSS JOIN ".join(f"{digits} d{place}" for place in range(places))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {quote(meta.db_table)} ({', '.join(map(quote, columns))}) SELECT {', '.join(values)} "
            f"FROM {quote(meta.db_table)} copied_row CROSS JOIN (SELECT {number} AS n FROM {tables}) numbers "
            f"WHERE copied_row.{quote(meta.pk.column)} = %s AND numbers.n < %s",
            [meta.pk.get_db_prep_value(pk, connection), count],
        )


def _copy(row: Any, **fields: Any) -> Any:
    kept = {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
    named = {f"{name}_id" if hasattr(value, "pk") else name: getattr(value, "pk", value) for name, value in fields.items()}
    return type(row)(**{**kept, **named})


def plan_of_the_look(claim: Callable[[], Any]) -> tuple[list[Any], int]:
    """How the database finds claimable steps, and how many pages it reads for that (0 where it does not say)."""
    with CaptureQueriesContext(connection) as captured:
        claim()
    [look] = [query["sql"] for query in captured.captured_queries if "ORDER BY" in query["sql"] and "claim_order" in query["sql"].split("ORDER BY")[-1]]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {look}")
            [(found,)] = cursor.fetchall()
            top = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
            return _nodes(top), top["Shared Hit Blocks"] + top["Shared Read Blocks"]
        cursor.execute(f"{'EXPLAIN QUERY PLAN' if connection.vendor == 'sqlite' else 'EXPLAIN'} {look}")
        named = [dict(zip([column[0] for column in cursor.description], row, strict=True)) for row in cursor.fetchall()]
    return [row.get("detail") or (row["table"], row["type"], row["key"]) for row in named], 0


def _nodes(plan: Any) -> list[Any]:
    """How the steps are read; in which order the three small tables beside them are looked up is the planner's affair."""
    below = [node for each in plan.get("Plans", []) for node in _nodes(each)]
    is_of_steps = plan.get("Relation Name") == StepRow._meta.db_table
    return [(plan["Node Type"], plan.get("Index Name"), plan.get("Rows Removed by Filter", 0)), *below] if is_of_steps else below


def in_new_files() -> None:
    """Begin with every table as if new, where the database says how many pages it reads: what other tests deleted left holes in them."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"VACUUM FULL {', '.join(map(connection.ops.quote_name, connection.introspection.table_names()))}")


def analyzed() -> None:
    """Let the planner know how much there is, as it does by itself in time."""
    tables = ", ".join(connection.ops.quote_name(model._meta.db_table) for model in (Run, StepRow, Lease))
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("ANALYZE")
        elif connection.vendor == "postgresql":
            cursor.execute(f"VACUUM ANALYZE {tables}" if not connection.in_atomic_block else f"ANALYZE {tables}")
        else:
            cursor.execute(f"ANALYZE TABLE {tables}")
            cursor.fetchall()


@pytest.mark.long
@pytest.mark.plants_faults  # the copies have no journals and no leases
def test_the_look_of_a_claim_is_the_same_behind_a_hundred_thousand_parked_runs(transactional_db: None, desk: Desk) -> None:
    in_new_files()
    hand = desk.worker(job())
    done, waits, naps = job().start(), job().start(), job().start()
    offered = {lease.run_id: lease for lease in hand.claim()}
    hand.complete(offered[done.id])
    hand.park(offered[waits.id], event("never", timeout_ms=1_000))
    desk.advance(seconds=1)
    hand.complete(hand.claim()[0])
    hand.park(offered[naps.id], sleep("month", 30 * 24 * 3600))
    copies(done, FEW)
    job().start_many(range(3))
    analyzed()
    before, pages_before = plan_of_the_look(lambda: hand.claim(1, serves=hand.serves))
    cost_before = counted(lambda: hand.claim(1))

    copies(naps, MANY)
    analyzed()
    after, pages_after = plan_of_the_look(lambda: hand.claim(1, serves=hand.serves))
    assert after == before != []
    assert pages_after <= pages_before + 3
    job().start()
    assert counted(lambda: hand.claim(1)) == cost_before
    assert StepRow.objects.filter(status="sleeping").count() == MANY + 1
    assert Lease.objects.filter(live_step__isnull=False, run=naps.id).count() == 0

    desk.tick()
    assert counted(maintenance.tick) == 1
    assert maintenance.tick().handled == 0
    desk.now += timedelta(seconds=2)
    assert counted(maintenance.tick) == 1
