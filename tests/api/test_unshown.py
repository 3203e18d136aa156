"""What no answer about a run shows: the id of a lease, which is all that its calls ask for (spec: protocol.md)."""

from __future__ import annotations

from typing import Any

import pytest

from ezgh_workflows_django.models import Lease, SpanRecord
from tests.api.conftest import Caller
from tests.api.matrix import GUARDED
from tests.engine.graphs import job

SPAN: dict[str, Any] = {"id": "a" * 16, "name": "call", "start": "2026-01-31T09:00:00Z", "end": "2026-01-31T09:00:01Z"}
OF_RUNS = sorted({call.route for call in GUARDED if call.method == "GET" and call.route.startswith("api/runs/<str:run_id>")})


@pytest.mark.parametrize("route", OF_RUNS)
def test_no_answer_about_a_run_shows_the_id_of_a_lease(api: Caller, route: str) -> None:
    session = api.register(job())
    run, lost = job().start(), job().start()
    lease = session.take()
    told = {"progress": 1}
    assert session.on(lease, "heartbeat", told).status == 200
    usage = [{"unit": "tokens", "amount": "3"}]
    done = session.on(lease, "complete", {"output": 1, "usage": usage, "spans": [{**SPAN, "usage": usage, "attributes": {"a": 1}}]})
    assert (done.status, SpanRecord.objects.count()) == (200, 1)
    other = session.take()
    assert session.on(lease, "complete", {"output": 2}).why == (409, "already_applied")
    shown = [api.get(route.replace("<str:run_id>", each)) for each in (run.id, lost.id)]
    assert [reply.status for reply in shown] == [200, 200]
    ids = {str(pk) for pk in Lease.objects.values_list("pk", flat=True)}
    assert ids == {lease["id"], other["id"]}
    assert [each for each in ids for reply in shown if each in str(reply.body) or each.replace("-", "") in str(reply.body)] == []
