"""Notes of durable functions on the real engine: each is stored once, whatever dies and however often the body is called."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ezgh_workflows_django import Context, Retry, Workflow, workflow
from ezgh_workflows_django.models import Run
from ezgh_workflows_django.protocol.messages import Lease
from ezgh_workflows_django.protocol.outcomes import Outcome
from ezgh_workflows_django.protocol.states import LeaseStatus
from ezgh_workflows_django.testing import Lab
from tests.engine.graphs import job

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def used(run: Any) -> dict[str, str]:
    """What a run used, by unit."""
    return {pair["unit"]: pair["amount"] for pair in json.loads(Run.objects.get(pk=run.id).usage or "[]")}


def state(run: Any) -> Any:
    """The state of a run."""
    return json.loads(Run.objects.get(pk=run.id).state or "{}")


def killed_before_it_parks(lab: Lab, monkeypatch: pytest.MonkeyPatch, function: Workflow) -> Any:
    """A run whose first worker is killed when its body has asked for all it does, and before it could say that it parks."""
    first = lab.workers[0]
    report: Callable[[Lease, Outcome], None] = first._report
    monkeypatch.setattr(first, "_report", lambda lease, outcome: None if outcome.status is LeaseStatus.SUSPENDED else report(lease, outcome))
    run = function.start()
    lab.run_until_idle()
    lab.kill(first)
    lab.worker("second")
    lab.advance(minutes=2)
    return run


def test_what_was_noted_before_a_child_lands_though_the_worker_is_killed_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    @workflow("bills")
    def bills(ctx: Context) -> None:
        ctx.patch_state(stage="billing")
        ctx.set_usage(tokens=7)
        ctx.run_workflow("bill", "kid")
        ctx.sleep("rest", HOUR)

    with Lab(workflows=[bills, job("kid")]) as lab:
        run = killed_before_it_parks(lab, monkeypatch, bills)
        lab.advance(hours=2)
        assert run.status == "succeeded"
        assert (state(run), used(run)) == ({"stage": "billing"}, {"tokens": "7"})
        assert lab.invariants() == []


def test_what_was_noted_before_a_step_that_is_tried_again_lands_though_the_worker_is_killed_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [ValueError("once")]

    def charge() -> None:
        if errors:
            raise errors.pop()

    @workflow("charges")
    def charges(ctx: Context) -> None:
        ctx.patch_state(stage="charging")
        ctx.set_usage(tokens=7)
        ctx.step("charge", charge, retry=Retry(max_attempts=2))
        ctx.sleep("rest", HOUR)

    with Lab(workflows=[charges]) as lab:
        run = killed_before_it_parks(lab, monkeypatch, charges)
        lab.advance(hours=2)
        assert run.status == "succeeded"
        assert (state(run), used(run)) == ({"stage": "charging"}, {"tokens": "7"})


def test_what_a_member_of_a_gather_used_is_counted_once_and_its_patch_does_not_come_back() -> None:
    def note(ctx: Context) -> None:
        ctx.set_usage(tokens=5)
        ctx.patch_state(seen="member")

    @workflow("gathers")
    def gathers(ctx: Context) -> None:
        ctx.gather(lambda: ctx.sleep("a", HOUR), lambda: note(ctx))
        ctx.patch_state(seen="body")
        ctx.sleep("z", HOUR)

    with Lab(workflows=[gathers]) as lab:
        run = gathers.start()
        seen = []
        for _ in range(3):
            lab.run_until_idle()
            seen.append((state(run), used(run)))
            lab.advance(hours=1)
        assert seen == [({"seen": value}, {"tokens": "5"}) for value in ("member", "body", "body")]
        assert run.status == "succeeded"


def test_a_new_episode_notes_anew() -> None:
    fails = [True]

    @workflow("again")
    def again(ctx: Context) -> None:
        ctx.patch_state(episode="first" if fails else "second")
        ctx.sleep("a", HOUR)
        if fails:
            fails.clear()
            raise ValueError("boom")
        ctx.sleep("z", HOUR)

    with Lab(workflows=[again]) as lab:
        run = again.start()
        lab.advance(hours=1)
        assert (run.status, state(run)) == ("failed", {"episode": "first"})
        run.retry()
        lab.advance(hours=2)
        assert (run.status, state(run)) == ("succeeded", {"episode": "second"})
