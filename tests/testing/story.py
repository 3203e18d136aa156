"""One story that every kind of test can tell of a lab, whatever transaction it is in."""

from __future__ import annotations

from datetime import UTC, datetime

from django.contrib.auth.models import Group
from django.db import transaction

from ezgh_workflows_django import emit
from ezgh_workflows_django.testing import Lab

from . import flows


def tell() -> None:
    """Waits, sleeps, retries, timeouts and ORM writes, from Monday 09:00 on."""
    flows.MARKS.clear()
    with Lab(now="2024-01-01T09:00Z", workflows=flows.ALL) as lab:
        with transaction.atomic():
            run = flows.pay.start({"order": "A-1"})
        lab.run_until_idle()
        assert (run.phase, run.waiting_for[0].key) == ("waiting", "A-1")
        with transaction.atomic():
            emit("payment", key="A-1", payload={"paid": 40})
        lab.run_until_idle()
        assert run.phase == "sleeping"
        slow, retried = flows.export.start(), flows.retried.start()
        groups = [flows.group.start("sync"), flows.group_later.start("async")]
        lab.run_until_blocked()
        assert [each.result() for each in groups] == ["sync", "async!"]
        assert sorted(Group.objects.values_list("name", flat=True)) == ["async!", "sync"]
        lab.advance(hours=24)
        assert (run.result(), slow.failure.timed_out, retried.result()) == ({"paid": 40}, True, 3)
        assert flows.MARKS == ["told to stop: timeout", "ship"]
        assert lab.now == datetime(2024, 1, 2, 9, 0, tzinfo=UTC)
        assert not lab.invariants()
