"""Twenty thousand bodies asleep cost the awake nothing: the same statements, the same plan, the same pages read."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django.engine import ids, maintenance
from ezgh_workflows_django.models import Checkpoint, Lease, Run
from ezgh_workflows_django.models import Step as StepRow
from tests.engine.conftest import Desk
from tests.engine.graphs import event, job, sleep
from tests.engine.test_statements import counted

MANY = 20_000
FEW = 2_000


def copies(handle: Any, count: int) -> None:
    """So many runs more that are as this one is, row by row; their journals and leases are left out."""
    run, step = Run.objects.get(pk=handle.id), StepRow.objects.get(run=handle.id)
    checkpoints = list(Checkpoint.objects.filter(run=handle.id))
    runs = [_copy(run, id=ids.run_id(), journal_seq=0) for _ in range(count)]
    Run.objects.bulk_create(runs)
    StepRow.objects.bulk_create(_copy(step, id=None, run=each, token=0, attempts=0, position=step.position) for each in runs)
    steps = dict(StepRow.objects.filter(run__in=Run.objects.all()).values_list("run_id", "pk"))
    Checkpoint.objects.bulk_create(_copy(row, id=None, run=each, step_id=steps[each.pk]) for each in runs for row in checkpoints)


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
    return [(plan["Node Type"], plan["Index Name"], plan.get("Rows Removed by Filter", 0)), *below] if is_of_steps else below


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
def test_the_look_of_a_claim_is_the_same_behind_twenty_thousand_parked_runs(transactional_db: None, desk: Desk) -> None:
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
