"""Old and new workers at one queue while a new revision is rolled out (case B52)."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest

from ezgh_workflows_django import Context, Cron, Step, Workflow, workflow
from ezgh_workflows_django.engine import apps, tenancy
from ezgh_workflows_django.models import Lease
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.testing import Lab

from . import flows

pytestmark = pytest.mark.django_db

RUNS = 50


def graph(revision: str, *names: str, **options: Any) -> Workflow:
    """One step after the other."""
    steps = [Step(name, run=flows.give_back, after=list(names[at - 1 : at])) for at, name in enumerate(names)]
    return Workflow("deployed", steps, revision=revision, **options)


def function(revision: str, *names: str) -> Workflow:
    """A body with these inner steps."""

    @workflow("function", revision=revision)
    def body(ctx: Context) -> list[str]:
        return [ctx.step(name, lambda name=name: name) for name in names]

    return body


def test_runs_with_a_new_step_go_to_new_workers_alone_and_cost_no_attempt() -> None:
    old, new = graph("1", "a"), graph("2", "a", "n", cron=Cron("0 * * * *"))
    old_body, new_body = function("1", "a"), function("2", "a", "n")
    with Lab(workflows=[old, old_body]) as lab:  # whose own worker was here long before
        lab.worker("new", [new, new_body])
        runs = [*new.start_many(range(RUNS)), *new_body.start_many([None] * RUNS)]
        lab.advance(hours=1)
        assert {run.status for run in runs} == {"succeeded"}
        assert {tuple(run.result()) for run in runs[RUNS:]} == {("a", "n")}
        assert not Lease.objects.filter(worker_name="lab").exists()
        assert set(StepRow.objects.values_list("attempts", "failures", "reclaims")) == {(1, 0, 0)}
        assert StepRow.objects.filter(run__workflow="deployed", name="n", status="succeeded").count() == RUNS + 1  # and the schedule's
        assert lab.invariants() == []


def test_what_nobody_serves_is_never_dropped_shows_as_stranded_and_ends_at_its_deadline() -> None:
    gone = graph("1", "a", deadline=timedelta(hours=2))
    with Lab(workflows=[gone]) as lab:
        lab.workers.clear()
        last = lab.worker("last", [gone])
        lab.run_until_idle()
        run = gone.start(1)
        lab.kill(last)
        lab.worker("other", [graph("2", "b")])
        lab.advance(hours=1)
        app, _ = tenancy.app_now(None)
        assert run.phase == "queued"
        assert [each.pk for each in apps.stranded(app)] == [uuid.UUID(run.id)]
        lab.advance(hours=1)
        assert run.failure.class_ == "deadline"
        assert not Lease.objects.exists()
