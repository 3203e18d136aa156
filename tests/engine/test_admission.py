"""Concurrency: who is let in when, and that nobody is let in beyond the limit (invariant I6; cases B20, B70, B71)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from ezgh_workflows_django import Concurrency, Cron, RateLimit, Retry, Start, Step, Wait, Workflow, start_run
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.engine import marks, slots
from ezgh_workflows_django.errors import ConcurrencyLimit, InvalidArgument, VerbRefused
from ezgh_workflows_django.models import Definition, JournalEntry, Occurrence, Run
from ezgh_workflows_django.testing import Lab
from tests.engine.bodies import Family
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body, job, undone
from tests.engine.test_faults import failing_at
from tests.invariant_guard import broken


def one(key_expr: str | None = None, **options: Any) -> Any:
    """One step, and one run at a time."""
    policy = {name: options.pop(name) for name in ("key", "on_limit") if name in options}
    return job(options.pop("name", "one"), concurrency=Concurrency(options.pop("limit", 1), key_expr=key_expr, **policy), **options)


def stand(runs: list[Any]) -> list[str]:
    """The status of each."""
    return [run.status for run in runs]


def marked() -> int:
    """How many runs somebody has yet to look at."""
    return Run.objects.filter(slot_at__isnull=False).count()


# Who is next


def test_runs_begin_in_the_order_they_were_started_in_as_slots_are_free(desk: Desk, commits: Callable[..., Any]) -> None:
    workflow = one(limit=2)
    hand = desk.worker(workflow)
    runs = commits(workflow.start_many, range(6))
    assert stand(runs) == ["running", "running", "queued", "queued", "queued", "queued"]
    for begun in (3, 4, 5, 6, 6, 6):
        commits(hand.complete, hand.claim(1)[0])
        assert [status != "queued" for status in stand(runs)] == [place < begun for place in range(6)]
        assert stand(runs).count("running") <= 2
    assert stand(runs) == ["succeeded"] * 6
    desk.tick()
    assert (marked(), broken()) == (0, [])


def test_those_who_matter_more_come_first_and_a_point_is_a_minute(desk: Desk) -> None:
    """B71: by the same key that orders claims, so old work always moves."""
    workflow = one()
    hand = desk.worker(workflow)
    workflow.start("first")
    desk.tick()
    old = workflow.start("old")
    desk.now += timedelta(minutes=3)
    for name, priority in (("two", 2), ("four", 4), ("five", 5)):
        workflow.start(name, priority=priority)
    begun = []
    while offered := hand.claim(1):
        begun.append(offered[0].input)
        hand.complete(offered[0])
        desk.tick()
    assert (begun, old.status) == (["first", "five", "four", "old", "two"], "succeeded")


@pytest.mark.parametrize(
    ("policy", "alike"),
    [
        ({}, True),
        ({"key": "all"}, True),
        ({"key": lambda run: f"{run.workflow}{run.payload['k']}{run.labels['k']}{bool(run.id)}"}, False),
        ({"key_expr": "payload.k"}, False),
        ({"key_expr": "labels.k"}, False),
        ({"key_expr": "run_id"}, False),
        ({"key_expr": "has(steps.work) || has(state.a) ? payload.k : 'none'"}, True),
    ],
)
def test_runs_are_counted_by_their_key(desk: Desk, policy: dict[str, Any], alike: bool) -> None:
    workflow = one(**policy)
    runs = [workflow.start({"k": k}, labels={"k": k}) for k in ("a", "b")]
    desk.tick()
    assert stand(runs) == ["running", "queued" if alike else "running"]
    assert runs[0].run.slot_key == runs[1].run.slot_key if alike else runs[0].run.slot_key != runs[1].run.slot_key


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ({"key_expr": "payload.absent"}, "could not be computed: expression `payload.absent`: there is no absent"),
        ({"key_expr": "payload.list"}, "could not be computed.* a key is a str, an int or a UUID, not list"),
        ({"key_expr": "payload.long"}, "could not be computed.* at most 255"),
        ({"key": lambda run: run.labels["absent"]}, "could not be computed: KeyError"),
        ({"key": lambda run: 1.5}, "could not be computed: ValueError: .* not float"),
    ],
)
def test_a_key_that_can_not_be_computed_refuses_the_start_by_name(desk: Desk, policy: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidArgument, match=f"key: workflow one, concurrency: the key {why}"):
        one(**policy).start({"list": [1], "long": "x" * 256})
    assert Run.objects.count() == 0


def test_a_callable_key_is_looked_up_in_the_servers_own_code(desk: Desk) -> None:
    registry.add(code := one(key=lambda run: run.payload))
    desk.worker(code)
    assert desk.run(start_run("one", "a")).slot_key == "a"
    registry.swap()
    with pytest.raises(InvalidArgument, match="workflow one, concurrency: a callable key stays on the server; use key_expr"):
        start_run("one", "a")


def test_a_run_says_what_it_waits_for(desk: Desk) -> None:
    workflow = one("payload", limit=2)
    runs = workflow.start_many(["a"] * 3)
    desk.tick()
    assert (runs[2].phase, [str(each) for each in runs[2].waiting_for]) == ("queued", ["waiting for one of 2 slots of one, key a"])
    assert runs[0].waiting_for == []


def test_workflows_without_limits_are_let_in_by_their_own_start(desk: Desk) -> None:
    run = job().start(1)
    assert (run.status, run.run.bucket, run.run.slot_key, run.run.line, run.run.queue_order, run.run.slot_at) == ("running", *[None] * 5)


# When a slot is free again


ENDS: dict[str, Callable[[Desk, Hand, Any], object]] = {
    "succeeded": lambda desk, hand, run: hand.complete(hand.take()),
    "failed": lambda desk, hand, run: hand.fail(hand.take(), "permanent"),
    "cancelled": lambda desk, hand, run: run.cancel(),
    "timed_out": lambda desk, hand, run: desk.advance(hours=1),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_next_begins_when_the_one_before_is_over_however_it_ends(desk: Desk, end: str) -> None:
    """B20: a slot is read from the run's row, and so can't be lost with a worker, nor given back twice."""
    workflow = one()
    hand = desk.worker(workflow)
    first = job("one", concurrency=Concurrency(1), deadline=3600).start(1)
    desk.tick()
    second, third = workflow.start_many(range(2))
    desk.tick()
    ENDS[end](desk, hand, first)
    desk.tick()
    assert stand([first, second, third]) == [end, "running", "queued"]


def test_a_reclaimed_lease_neither_frees_the_slot_nor_does_its_fenced_holder(desk: Desk) -> None:
    """B20 (b), over and over: the run goes on holding its slot while its worker is replaced."""
    workflow = one(retry=Retry(3))
    hands = [desk.worker(workflow, name=name) for name in ("w1", "w2")]
    first, second = workflow.start_many(range(2))
    desk.tick()
    for turn in range(5):
        old = hands[turn % 2].take()
        desk.advance(seconds=31)
        desk.advance(seconds=31)
        assert hands[turn % 2].complete(old).refused is not None
        assert stand([first, second]) == ["running", "queued"]
    hands[0].complete(hands[0].take())
    desk.tick()
    assert stand([first, second]) == ["succeeded", "running"]


def test_a_run_that_compensates_still_holds_its_slot(desk: Desk) -> None:
    workflow = one(on_failure=body)
    hand = desk.worker(workflow)
    first, second = workflow.start_many(range(2))
    desk.tick()
    hand.fail(hand.take(), "permanent")
    desk.tick()
    assert stand([first, second]) == ["failing", "queued"]
    hand.complete(hand.take())
    desk.tick()
    assert stand([first, second]) == ["failed", "running"]


def test_a_run_that_is_paused_in_flight_holds_its_slot_and_one_paused_in_line_holds_none(desk: Desk) -> None:
    workflow = one()
    hand = desk.worker(workflow)
    first, second, third = runs = workflow.start_many(range(3))
    desk.tick()
    first.pause()
    second.pause()
    desk.tick()
    assert stand(runs) == ["paused", "paused", "queued"]
    first.resume()
    hand.complete(hand.take())
    desk.tick()
    assert stand(runs) == ["succeeded", "paused", "running"]
    second.resume()
    desk.now += timedelta(seconds=1)
    fourth = workflow.start(4)
    desk.tick()
    assert stand([second, fourth]) == ["queued", "queued"]
    hand.complete(hand.take())
    desk.tick()
    assert stand([second, third, fourth]) == ["running", "succeeded", "queued"], "it has kept its place"


def test_a_run_that_needs_a_person_holds_its_slot_until_it_is_over(desk: Desk) -> None:
    workflow = one(retry=Retry(1, exhausted="pause"))
    hand = desk.worker(workflow)
    first, second = workflow.start_many(range(2))
    desk.tick()
    hand.fail(hand.take())
    desk.tick()
    assert stand([first, second]) == ["paused", "queued"]
    first.resume()
    assert first.status == "running"
    hand.complete(hand.take())
    desk.tick()
    assert stand([first, second]) == ["succeeded", "running"]


def test_a_run_for_later_joins_the_line_when_its_time_has_come(desk: Desk) -> None:
    workflow = one()
    hand = desk.worker(workflow)
    later = workflow.start("later", delay=60)
    first, second = workflow.start("first"), workflow.start("second")
    desk.tick()
    assert (stand([later, first, second]), later.run.queue_order, later.waiting_for) == (["queued", "running", "queued"], None, [])
    desk.advance(minutes=2)
    assert later.run.queue_order == later.run.start_at
    third = workflow.start("third")
    begun = []
    while offered := hand.claim(1):
        begun.append(offered[0].input)
        hand.complete(offered[0])
        desk.tick()
    assert (begun, third.status) == (["first", "second", "later", "third"], "succeeded")


def test_the_deadline_goes_on_in_line_and_what_has_not_begun_is_not_compensated(desk: Desk) -> None:
    """Its compensation would need a slot, too."""
    workflow = one(on_failure=body, deadline=60)
    _, second, paused = runs = [*job("one", concurrency=Concurrency(1)).start_many([1]), *workflow.start_many(range(2))]
    desk.tick()
    paused.pause()
    desk.advance(seconds=59)
    assert stand(runs) == ["running", "queued", "paused"]
    desk.advance(seconds=1)
    assert stand(runs) == ["running", "timed_out", "timed_out"]
    assert (second.failure.timed_out, [step.status for step in second.steps]) == (True, ["cancelled"])
    assert desk.kinds(second) == ["run.created", "run.timed_out"]


def test_a_slot_that_is_free_at_the_deadline_comes_too_late(desk: Desk) -> None:
    workflow = one(deadline=60)
    first, second = workflow.start_many(range(2))
    desk.tick()
    desk.now += timedelta(seconds=60)
    first.cancel()
    desk.tick()
    assert stand([first, second]) == ["cancelled", "timed_out"]


IN_LINE: dict[str, tuple[Callable[[Any], object], str]] = {
    "cancel": (lambda run: run.cancel(), "cancelled"),
    "pause": (lambda run: run.pause(), "paused"),
    "resume": (lambda run: run.resume(), "queued"),
    "retry": (lambda run: run.retry(), "VerbRefused"),
    "resolve": (lambda run: run.resolve("work", 1, "by hand"), "VerbRefused"),
    "signal": (lambda run: run.signal("go"), "queued"),
    "migrate": (lambda run: run.migrate(Definition.objects.latest("pk").version), "queued"),
}


@pytest.mark.parametrize("verb", IN_LINE)
def test_what_a_verb_does_to_a_run_in_line(desk: Desk, verb: str) -> None:
    """And its slot's holder goes on, whatever it is."""
    workflow = one()
    first, second = workflow.start_many(range(2))
    desk.worker(one(retry=Retry(2)))
    desk.tick()
    do, outcome = IN_LINE[verb]
    try:
        do(second)
        assert second.status == outcome
    except VerbRefused:
        assert (outcome, second.status) == ("VerbRefused", "queued")
    desk.tick()
    assert first.status == "running"
    first.cancel()
    desk.tick()
    assert second.status == (outcome if outcome in ("cancelled", "paused") else "running")


# New episodes


def test_a_retried_run_takes_a_slot_again_at_the_end_of_the_line(desk: Desk) -> None:
    workflow = one()
    hand = desk.worker(workflow)
    runs = workflow.start_many(range(3))
    first = runs[0]
    desk.tick()
    hand.fail(hand.take(), "permanent")
    desk.now += timedelta(seconds=1)
    first.retry()
    assert (first.status, hand.claim(), first.run.episode) == ("queued", (), 2)
    for expected in (["queued", "running", "queued"], ["queued", "succeeded", "running"], ["running", "succeeded", "succeeded"]):
        desk.tick()
        assert stand(runs) == expected
        hand.complete(hand.take())
    assert stand(runs) == ["succeeded"] * 3


def test_a_step_resolved_in_a_run_that_was_over_lets_it_go_on_once_it_has_a_slot(desk: Desk) -> None:
    workflow: Any = Workflow("one", [Step("a", run=body), Step("b", after=["a"], run=body)], concurrency=Concurrency(1))
    hand = desk.worker(workflow)
    first, second = workflow.start_many(range(2))
    desk.tick()
    hand.fail(hand.take(), "permanent")
    desk.tick()
    first.resolve("a", "by hand", "it was done by telephone")
    assert (first.status, [step.status for step in first.steps]) == ("queued", ["succeeded", "blocked"])
    second.cancel()
    desk.tick()
    assert (first.status, hand.take().input) == ("running", "by hand")


def test_a_run_whose_last_step_is_resolved_needs_no_slot_for_that(desk: Desk) -> None:
    workflow = one()
    hand = desk.worker(workflow)
    first, second, third = workflow.start_many(range(3))
    desk.tick()
    hand.fail(hand.take(), "permanent")
    first.resolve("work", "by hand", "it was done by telephone")
    desk.tick()
    assert stand([first, second, third]) == ["succeeded", "running", "queued"]


def test_a_slot_is_given_on_though_its_run_was_retried_and_paused_before_anybody_looked(desk: Desk) -> None:
    """The mark of an end outlasts whatever becomes of the run."""
    workflow = one()
    hand = desk.worker(workflow)
    first, second = workflow.start_many(range(2))
    desk.tick()
    hand.fail(hand.take(), "permanent")
    first.retry()
    first.pause()
    desk.tick()
    assert stand([first, second]) == ["paused", "running"]


# Limits that change


def test_the_limit_is_the_newest_definitions_for_all_who_stand_in_line(desk: Desk) -> None:
    old, new = one(), one(limit=3)
    runs = old.start_many(range(5))
    desk.tick()
    assert stand(runs).count("running") == 1
    desk.worker(new)
    desk.tick()
    desk.tick()
    assert stand(runs).count("running") == 3
    desk.worker(one(limit=2))
    desk.tick()
    runs[0].cancel()
    desk.tick()
    assert stand(runs).count("running") == 2, "a limit that is lowered ends nobody, and lets nobody in until there are fewer"
    runs[1].cancel()
    desk.tick()
    assert stand(runs).count("running") == 2
    desk.worker(job("one"))
    desk.tick()
    desk.tick()
    assert stand(runs) == ["cancelled", "cancelled", "running", "running", "running"]
    assert broken() == []


# Marks


def test_a_start_that_is_rolled_back_stands_in_no_line(desk: Desk) -> None:
    workflow = one()
    undone(lambda: workflow.start(1))
    second = workflow.start(2)
    desk.tick()
    assert (Run.objects.count(), second.status) == (1, "running")


def test_a_run_that_can_not_be_let_in_is_set_aside_and_keeps_nobody_waiting(desk: Desk) -> None:
    workflow = one()
    bad, good = workflow.start_many(range(2))
    Run.objects.filter(pk=bad.id).update(version="0" * 16, definition=Definition.objects.create(**_unreadable(desk.run(bad))))
    desk.tick()
    desk.tick()
    assert stand([bad, good]) == ["queued", "running"]
    assert (bad.run.queue_order, bad.run.due_at) == (None, desk.now + timedelta(minutes=5))
    Run.objects.filter(pk=bad.id).update(version=good.run.version, definition=good.run.definition_id)
    Definition.objects.filter(version="0" * 16).delete()
    good.cancel()
    desk.advance(minutes=5)
    desk.tick()
    assert bad.status == "running"


def _unreadable(run: Run) -> dict[str, Any]:
    of = run.definition
    return {"app": of.app, "revision": of.revision, "workflow": "elsewhere", "version": "0" * 16, "spec": "{}", "created_at": of.created_at}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_look_that_fails_at_any_of_its_statements_forgets_nothing(desk: Desk, after: bool) -> None:
    """B19, B20: the mark outlives the process that looks."""
    workflow = one("payload")
    for statement in itertools.count(1):
        first, second = workflow.start_many([statement] * 2)
        settle(desk)
        first.cancel()
        with failing_at(statement, after=after) as fault:
            marks.run_once(desk.now, 100)
        settle(desk)
        assert (second.status, marked()) == ("running", 0)
        second.cancel()
        settle(desk)
        if not fault.hit:
            break
    assert statement > 10


def settle(desk: Desk) -> None:
    """Ticks, until nothing is left to look at."""
    for _ in range(3):
        desk.advance(seconds=1)


def test_a_tick_lets_in_more_than_one_batch(desk: Desk) -> None:
    workflow = one(limit=110)
    workflow.start_many(range(130))
    desk.tick()
    desk.tick()
    assert Run.objects.filter(status="running").count() == 110
    desk.tick()
    assert marked() == 0


def test_a_long_line_keeps_nobody_else_waiting(desk: Desk) -> None:
    """B70: another key's run is let in by the first tick, and a worker that asks sees only what it may have."""
    workflow = one("payload.tenant")
    hand = desk.worker(workflow)
    workflow.start_many([{"tenant": "a"}] * 300)
    desk.tick()
    other = workflow.start({"tenant": "b"})
    desk.tick()
    assert (other.status, sorted(lease.input["tenant"] for lease in hand.claim(100))) == ("running", ["a", "b"])


# Rejecting


def rejecting(limit: int = 1, **options: Any) -> Any:
    """It refuses what finds no slot."""
    return one("payload", on_limit="reject", limit=limit, **options)


def test_a_start_that_finds_no_slot_is_refused_by_name_and_leaves_nothing(desk: Desk) -> None:
    workflow = rejecting()
    hand = desk.worker(workflow)
    workflow.start("a")
    with pytest.raises(ConcurrencyLimit, match="workflow one, key a: all slots are taken, and it refuses what finds none: start it again once one is free"):
        workflow.start("a")
    assert Run.objects.count() == 1
    workflow.start("b")
    desk.tick()
    hand.complete(next(lease for lease in hand.claim() if lease.input == "a"))
    assert workflow.start("a").status == "queued"
    assert Run.objects.count() == 3


def test_many_starts_are_refused_whole(desk: Desk) -> None:
    workflow = rejecting(2)
    with pytest.raises(ConcurrencyLimit):
        workflow.start_many(["a", "a", "b", "a"])
    assert Run.objects.count() == 0
    assert len(workflow.start_many(["a", "a", "b"])) == 3


def test_starts_of_one_transaction_count_each_other(desk: Desk) -> None:
    workflow = rejecting()
    with transaction.atomic():
        workflow.start("a")
        with pytest.raises(ConcurrencyLimit):
            workflow.start("a")
    assert Run.objects.count() == 1


def test_a_key_that_is_known_gives_its_run_back_though_there_is_no_slot(desk: Desk) -> None:
    workflow = rejecting()
    first = workflow.start("a", idempotency_key="k")
    assert workflow.start("a", idempotency_key="k") == first
    assert workflow.start_many([Start(payload="a", idempotency_key="k"), Start(payload="b")])[0] == first


def test_a_run_for_later_and_a_retry_are_not_refused_but_wait(desk: Desk) -> None:
    workflow = rejecting()
    hand = desk.worker(workflow)
    first = workflow.start("a")
    desk.tick()
    later = workflow.start("a", delay=60)
    hand.fail(hand.take(), "permanent")
    desk.advance(minutes=1)
    first.retry()
    desk.tick()
    assert stand([first, later]) == ["queued", "running"]


def test_an_occurrence_that_finds_no_slot_is_skipped_and_says_why(db: None) -> None:
    hourly: Any = Workflow("hourly", [Step("wait", wait=Wait("go"))], concurrency=Concurrency(1, on_limit="reject"), cron=Cron("0 * * * *", overlap="allow"))
    with Lab(workflows=[hourly]) as lab:
        lab.advance(hours=2)
        assert list(Occurrence.objects.order_by("at").values_list("became", flat=True)) == ["started", "skipped"]
        assert "all slots are taken" in Occurrence.objects.get(became="skipped").reason


# Cancelling the oldest


def test_the_newest_is_let_in_once_the_oldest_is_cancelled(desk: Desk, commits: Callable[..., Any]) -> None:
    workflow = one("payload", on_limit="cancel_oldest", limit=2)
    hand = desk.worker(workflow)
    runs = []
    for _ in range(4):
        runs.append(commits(workflow.start, "a"))
        desk.now += timedelta(seconds=1)
    other = commits(workflow.start, "b")
    assert (stand(runs), other.status) == (["cancelled", "cancelled", "running", "running"], "running")
    assert runs[0].run.reason == "a newer run takes its slot"
    assert desk.kinds(runs[0]) == ["run.created", "run.started", "run.cancel_requested", "run.cancelled"]
    assert len(hand.claim()) == 3
    assert broken() == []


def test_many_at_once_leave_the_newest(desk: Desk) -> None:
    workflow = one(on_limit="cancel_oldest")
    runs = workflow.start_many([Start(payload=place, priority=-place % 100) for place in range(110)])
    for _ in range(4):
        desk.advance(seconds=1)
    assert stand(runs) == ["cancelled"] * 109 + ["running"]


def test_a_run_that_compensates_is_left_to_end(desk: Desk) -> None:
    workflow = one(on_limit="cancel_oldest", on_failure=body)
    hand = desk.worker(workflow)
    first = workflow.start(1)
    desk.tick()
    hand.fail(hand.take(), "permanent")
    desk.now += timedelta(seconds=1)
    second = workflow.start(2)
    desk.tick()
    assert stand([first, second]) == ["failing", "queued"]
    hand.complete(hand.take())
    desk.tick()
    assert stand([first, second]) == ["failed", "running"]


# Children


def limited_family(desk: Desk, **options: Any) -> Family:
    """A parent whose children are of its own workflow, which has one slot."""
    workflow = one(**options)
    hand = desk.worker(workflow)
    first = workflow.start({"n": 1})
    desk.tick()
    family = Family.__new__(Family)
    family.desk, family.workflow, family.child, family.hand, family.kids = desk, workflow, workflow, hand, hand
    family.run, family.lease = first, hand.take()
    return family


def test_a_child_shares_the_slot_that_a_run_above_it_holds(desk: Desk) -> None:
    """Else its parent would wait for it, and it for its parent."""
    family = limited_family(desk)
    outside = family.workflow.start("outside")
    family.start(3)
    desk.tick()
    assert ([child.status for child in family.children], [child.bucket for child in family.children]) == (["running"] * 3, [None] * 3)
    assert (outside.status, slots.held([family.run.run.bucket])) == ("queued", {family.run.run.bucket: 1})
    family.park()
    family.kids.work_off()
    desk.tick()
    family.hand.work_off()
    desk.tick()
    assert stand([family.run, outside]) == ["succeeded", "running"]
    assert broken() == []


def test_a_grandchild_shares_it_too_and_a_child_with_another_key_does_not(desk: Desk) -> None:
    limited, middle = one("payload.k"), job("middle")
    hand, between = desk.worker(limited), desk.worker(middle)
    top = limited.start({"k": "a"})
    other = limited.start({"k": "b"})
    desk.tick()
    lease = next(lease for lease in hand.claim() if lease.run_id == top.id)
    hand.start(lease)
    hand.child(lease, "m", middle, {})
    inner = between.take()
    between.children(inner, "all", limited, [{"k": "a"}, {"k": "b"}])
    desk.tick()
    assert [child.status for child in Run.objects.filter(depth=2).order_by("parent_index")] == ["running", "queued"]
    assert other.status == "running"


def test_a_child_that_is_refused_has_failed(desk: Desk) -> None:
    child = one(on_limit="reject", name="kid", on_failure=body)
    family = Family(desk, child)
    family.start(3)
    desk.tick()
    assert [kid.status for kid in family.children] == ["running", "failed", "failed"]
    family.park()
    family.kids.work_off()
    desk.tick()
    told = family.results()
    assert [each["status"] for each in told] == ["succeeded", "failed", "failed"]
    assert told[1]["error"]["message"] == "workflow kid has no slot left, and refuses what finds none"
    assert told[1]["error"]["class"] == "permanent"


def test_a_child_that_is_retried_takes_a_slot_of_its_own_once_its_parent_is_over(desk: Desk) -> None:
    family = limited_family(desk)
    [kid] = family.start(1)
    family.kids.fail(family.kids.take(), "permanent")
    retried = type(family.run)(kid)
    retried.retry()
    assert retried.status == "running", "it shares the slot of its parent, which is at work"
    retried.cancel()
    family.hand.complete(family.lease)
    outside = family.workflow.start("outside")
    desk.tick()
    retried.retry()
    desk.tick()
    assert stand([family.run, outside, retried]) == ["succeeded", "running", "queued"]
    outside.cancel()
    desk.tick()
    assert retried.status == "running"
    retried.cancel()


def test_a_batch_of_children_goes_through_a_limit_in_order(desk: Desk) -> None:
    family = Family(desk, one(name="kid", limit=3))
    family.start(20)
    family.park()
    while desk.tick().handled:
        assert family.children.filter(status="running").count() <= 3
        family.kids.work_off()
    assert [each["output"] for each in family.results()] == list(range(20))


def test_children_in_line_go_with_their_parent(desk: Desk) -> None:
    family = Family(desk, one(name="kid"))
    family.start(5)
    desk.tick()
    family.run.cancel()
    desk.tick()
    assert {kid.status for kid in family.children} == {"cancelled"}


# The kit


def test_a_lab_lets_runs_in_until_it_is_idle(db: None) -> None:
    waits: Any = Workflow("waits", [Step("wait", wait=Wait("go"))], concurrency=Concurrency(1), rate=RateLimit(1, per=60))
    with Lab(workflows=[waits]) as lab:
        runs = waits.start_many(range(3))
        lab.run_until_idle()
        assert [run.phase for run in runs] == ["waiting", "queued", "queued"]
        runs[0].signal("go")
        lab.run_until_idle()
        assert [run.phase for run in runs] == ["succeeded", "queued", "queued"], "its slot is free, its turn has not come"
        lab.advance(seconds=60)
        assert [run.phase for run in runs] == ["succeeded", "waiting", "queued"]
        lab.advance(seconds=600)
        assert (runs[2].phase, lab.invariants()) == ("queued", [])


def test_the_journal_says_what_a_run_is_counted_in(desk: Desk) -> None:
    run = one("payload").start("a")
    assert '"slot":"a"' in JournalEntry.objects.get(run=run.id, kind="run.created").data
