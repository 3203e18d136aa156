"""Moving a run to another version of its workflow: what is over stays, the rest is the new version's; what does not fit is refused whole."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ezgh_workflows_django import Context, Sleep, Step, Wait, Workflow, workflow
from ezgh_workflows_django.engine import catalog, tenancy
from ezgh_workflows_django.engine.invariants import violations
from ezgh_workflows_django.errors import UnknownWorkflow, VerbRefused
from ezgh_workflows_django.testing import Lab
from tests.engine.conftest import Desk
from tests.engine.graphs import body


def flow(*steps: Step, revision: str = "2", **options: Any) -> Workflow:
    """A version of `flow`."""
    return Workflow("flow", list(steps), revision=revision, **options)


def before() -> Workflow:
    """a → nap → b."""
    return flow(Step("a", run=body), Step("nap", sleep=Sleep(60), after=["a"]), Step("b", run=body, after=["nap"]), revision="1")


def stored(workflow: Workflow) -> str:
    """Its version, once it is stored."""
    app, now = tenancy.app_now(None)
    return catalog.store(app, workflow.to_spec(), now).version


@pytest.fixture
def asleep(desk: Desk) -> Any:
    """A run of `before` in its nap."""
    hand = desk.worker(before())
    run = before().start({"n": 1})
    hand.complete(hand.take(), "A")
    return run


def test_what_has_not_begun_comes_from_the_new_version(desk: Desk, asleep: Any) -> None:
    after = flow(
        Step("a", run=body),
        Step("nap", sleep=Sleep(60), after=["a"]),
        Step("check", run=body, after=["a"]),
        Step("c", run=body, after=["nap", "check"]),
        Step("wait", wait=Wait("go", key="k"), after=["a"]),
    )
    version = stored(after)
    judged = asleep.migrate(version, dry_run=True)
    assert (judged.is_possible, judged.added, judged.removed) == (True, ("check", "c", "wait"), ("b",))
    assert asleep.run.version == before().version
    assert asleep.migrate(version).after == version
    assert {step.name: step.status for step in asleep.steps} == {"a": "succeeded", "nap": "sleeping", "check": "ready", "c": "blocked", "wait": "waiting"}
    assert violations() == []
    old, new = desk.worker(before(), name="old"), desk.worker(after, name="new")
    assert old.claim() == ()
    new.complete(new.take(), "checked")
    asleep_output = desk.step(asleep, "a").output
    assert asleep_output == '"A"'
    desk.advance(seconds=60)
    new.work_off()
    asleep.resolve("wait", {"by": "hand"}, "told by telephone")
    assert asleep.status == "succeeded"
    assert "run.migrated" in desk.kinds(asleep)
    assert violations() == []


REFUSED = {
    "a step that has begun is gone": (flow(Step("a", run=body), Step("b", run=body, after=["a"])), "step nap has begun (sleeping)"),
    "a step that has begun is of another kind": (flow(Step("a", run=body), Step("nap", run=body, after=["a"])), "has begun as a sleep, and is a run there"),
    "a new parent of what has begun": (
        flow(Step("a", run=body), Step("new", run=body), Step("nap", sleep=Sleep(60), after=["a", "new"])),
        "step nap has begun, and there would come after new",
    ),
}


@pytest.mark.parametrize(("after", "told"), REFUSED.values(), ids=REFUSED)
def test_a_version_that_does_not_fit_is_refused_and_nothing_changes(desk: Desk, asleep: Any, after: Workflow, told: str) -> None:
    version = stored(after)
    rows = list(asleep.run.steps.order_by("pk").values())
    assert told in asleep.migrate(version, dry_run=True).faults[0]
    with pytest.raises(VerbRefused, match="can't be moved"):
        asleep.migrate(version)
    assert list(asleep.run.steps.order_by("pk").values()) == rows
    assert asleep.run.version == before().version


def test_a_lease_at_work_and_a_run_that_is_over_are_not_moved(desk: Desk) -> None:
    hand = desk.worker(before())
    run = before().start()
    lease = hand.take()
    version = stored(flow(Step("a", run=body)))
    assert "in a worker's hands" in run.migrate(version, dry_run=True).faults[0]
    hand.complete(lease)
    run.cancel()
    assert "only a run that is not over" in run.migrate(version, dry_run=True).faults[0]
    with pytest.raises(UnknownWorkflow, match="no stored version"):
        run.migrate("0" * 16)


def test_the_last_open_step_dropped_ends_the_run(desk: Desk) -> None:
    one = flow(Step("a", run=body), Step("b", run=body, after=["a"]), revision="1")
    hand = desk.worker(one)
    run = one.start()
    hand.complete(hand.take(), 1)
    run.migrate(stored(flow(Step("a", run=body))))
    assert (run.status, run.result()) == ("succeeded", 1)
    assert violations() == []
    assert hand.claim() == ()


@pytest.mark.django_db
def test_a_durable_function_moves_after_its_journal_was_replayed() -> None:
    def made(revision: str, *names: str) -> Workflow:
        @workflow("mover", revision=revision)
        def mover(ctx: Context) -> list[str]:
            first = [ctx.step(name, lambda name=name: name) for name in names]
            ctx.sleep("nap", timedelta(hours=1))
            return [*first, *([ctx.step("more", lambda: "more")] if revision == "2" else [])]

        return mover

    old, new, other = made("1", "a", "b"), made("2", "a", "b"), made("3", "b", "a")
    with Lab(workflows=[old, new, other]) as lab:
        run = old.start()
        lab.run_until_idle()
        judged = run.migrate(other.version, dry_run=True)
        assert "expected step `a` at 1, the code asks for `b`" in judged.faults[0]
        with pytest.raises(VerbRefused, match="expected step `a` at 1"):
            run.migrate(other.version)
        assert run.migrate(new.version, dry_run=True).is_possible
        run.migrate(new.version)
        lab.advance(hours=1)
        assert run.result() == ["a", "b", "more"]
        assert lab.invariants() == []
