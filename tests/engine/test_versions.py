"""Moving a run to another version of its workflow: what is over stays, the rest is the new version's; what does not fit is refused whole."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ezgh_workflows_django import Context, Retry, Sleep, Step, Wait, Workflow, workflow
from ezgh_workflows_django.engine import catalog, tenancy
from ezgh_workflows_django.engine.invariants import violations
from ezgh_workflows_django.errors import UnknownWorkflow, VerbRefused
from ezgh_workflows_django.models import Lease
from ezgh_workflows_django.testing import Lab
from tests.engine.conftest import Desk
from tests.engine.graphs import body, why


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


def keyed(wait: Wait, revision: str) -> Workflow:
    """A body, and a wait after it."""
    return flow(Step("a", run=body), Step("wait", wait=wait, after=["a"]), revision=revision)


KEYS: dict[str, tuple[Workflow, Workflow, str]] = {
    "another literal": (keyed(Wait("paid", key="old"), "1"), keyed(Wait("paid", key="new"), "2"), "new"),
    "an expression for a literal": (keyed(Wait("paid", key="old"), "1"), keyed(Wait("paid", key_expr="steps.a"), "2"), "A"),
    "a literal for an expression": (keyed(Wait("paid", key_expr="steps.a"), "1"), keyed(Wait("paid", key="new"), "2"), "new"),
    "none for a literal": (keyed(Wait("paid", key="old"), "1"), keyed(Wait("paid"), "2"), ""),
    "a wait for a body": (flow(Step("a", run=body), Step("wait", run=body, after=["a"]), revision="1"), keyed(Wait("paid", key="k"), "2"), "k"),
}


@pytest.mark.parametrize(("old", "new", "key"), KEYS.values(), ids=KEYS)
def test_a_wait_that_has_not_begun_is_for_the_key_of_the_new_version(desk: Desk, old: Workflow, new: Workflow, key: str) -> None:
    hands = [desk.worker(old, name="old"), desk.worker(new, name="new")]
    run = old.start({"n": 1})
    run.migrate(new.version)
    hands[1].complete(hands[1].take(), "A")
    assert [(each.event, each.key) for each in run.waiting_for] == [("paid", key)]
    assert desk.step(run, "wait").wait_key == key
    assert violations() == []


def test_a_wait_that_is_open_keeps_its_key_and_has_the_new_versions_when_it_begins_anew(desk: Desk) -> None:
    old, new = (keyed(Wait("paid", key=key, timeout=60), revision) for key, revision in (("old", "1"), ("new", "2")))
    hand = desk.worker(old)
    run = old.start({"n": 1})
    hand.complete(hand.take(), "A")
    run.migrate(stored(new))
    assert [each.key for each in run.waiting_for] == ["old"]
    desk.advance(60)
    assert run.phase == "failed"
    run.retry()
    assert [each.key for each in run.waiting_for] == ["new"]


def test_a_wait_that_becomes_a_body_keeps_no_key(desk: Desk) -> None:
    old, new = keyed(Wait("paid", key="old"), "1"), flow(Step("a", run=body), Step("wait", run=body, after=["a"]))
    desk.worker(old)
    run = old.start({"n": 1})
    run.migrate(stored(new))
    assert (desk.step(run, "wait").kind, desk.step(run, "wait").wait_key) == ("run", None)


# Runs that are failing


def test_a_failing_run_ends_with_the_steps_of_its_new_version_cancelled_and_a_retry_begins_them(desk: Desk) -> None:
    old, new = flow(Step("a", run=body), revision="1", on_failure=body), flow(Step("a", run=body), Step("b", run=body), on_failure=body)
    hand = desk.worker(old, new)
    run = old.start(1)
    hand.fail(hand.take())
    run.migrate(stored(new))
    assert ([(step.name, step.status, step.ended_at) for step in run.steps][1], run.run.open_steps) == (("b", "cancelled", desk.now), 1)
    hand.complete(hand.take())
    assert (run.status, violations()) == ("failed", [])
    run.retry()
    assert sorted(lease.step for lease in hand.claim()) == ["a", "b"]
    assert violations() == []


def test_a_failing_run_of_a_chain_is_moved_and_what_never_began_is_the_new_versions(desk: Desk) -> None:
    old = flow(Step("a", run=body), Step("b", run=body, after=["a"]), Step("c", run=body, after=["b"]), revision="1", on_failure=body)
    new = flow(Step("a", run=body), Step("b", wait=Wait("paid", key="k"), after=["a"]), on_failure=body)
    hand = desk.worker(old, new)
    run = old.start(1)
    hand.fail(hand.take())
    assert run.migrate(stored(new)).removed == ("c",)
    hand.complete(hand.take())
    assert (run.status, violations()) == ("failed", [])
    run.retry()
    hand.complete(hand.take())
    assert [(each.event, each.key) for each in run.waiting_for] == [("paid", "k")]


def test_a_failing_run_is_moved_with_a_step_that_had_begun_beside_the_one_that_failed(desk: Desk) -> None:
    old = flow(Step("a", run=body), Step("b", run=body), revision="1", on_failure=body)
    new = flow(Step("a", run=body), Step("b", run=body, after=["a"]), on_failure=body)
    hand = desk.worker(old, new)
    run = old.start(1)
    leases = {lease.step: lease for lease in hand.claim()}
    for lease in leases.values():
        hand.start(lease)
    hand.fail(leases["a"])
    without = stored(flow(Step("a", run=body), revision="3", on_failure=body))
    assert "step b has begun (cancelled), and that version has none" in run.migrate(without, dry_run=True).faults[0]
    run.migrate(stored(new))
    assert (why(hand.complete(leases["b"])), hand.take().step, violations()) == ("fenced", "on_failure", [])


def test_a_step_whose_body_was_cut_short_is_dropped_only_after_that_has_ended(desk: Desk) -> None:
    pausing = Step("b", run=body, retry=Retry(1, exhausted="pause"))
    old, new = flow(Step("a", run=body), pausing, Step("c", run=body, after=["a"]), revision="1"), flow(Step("a", run=body), pausing)
    hand = desk.worker(old, new)
    run = old.start(1)
    leases = {lease.step: lease for lease in hand.claim()}
    for lease in leases.values():
        hand.start(lease)
    hand.complete(leases["a"], 1)
    late = hand.take()
    hand.fail(leases["b"])
    run.retry("a")
    with pytest.raises(VerbRefused, match="a body of step c was cut short and may still be at work"):
        run.migrate(stored(new))
    assert (why(hand.complete(late)), Lease.objects.get(pk=late.id).acknowledged_at) == ("fenced", desk.now)
    assert run.migrate(new.version).removed == ("c",)
    assert violations() == []
