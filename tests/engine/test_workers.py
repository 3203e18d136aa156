"""Worker sessions: what they announce, for how long, and that a reused name is another session."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from ezgh_workflows_django import Step, Wait, Workflow
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.engine import workers
from ezgh_workflows_django.errors import InvalidArgument, InvalidWorkflow, UnknownApp, UnknownDefinition, UnknownWorker
from ezgh_workflows_django.models import Announcement, App, Definition, Revision, Trail, Worker
from ezgh_workflows_django.protocol.messages import Registration, Serve
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body, job, why
from tests.engine.threads import together


def announced() -> list[tuple[str, str]]:
    """Who announces what."""
    return sorted(Announcement.objects.values_list("worker__name", "definition__workflow"))


def told() -> list[str]:
    """The sets of names in the trail, in order."""
    return list(Trail.objects.filter(action="AnnounceWorkflows").order_by("pk").values_list("data", flat=True))


def test_a_registration_stores_and_announces_its_definitions(desk: Desk) -> None:
    hand = desk.worker(job("a"), job("b"))
    assert (announced(), hand.session.definitions) == ([("w1", "a"), ("w1", "b")], (("a", job("a").version), ("b", job("b").version)))


def test_a_registration_is_told_the_numbers_it_works_with(desk: Desk) -> None:
    session = desk.worker().session
    assert (session.lease_ttl_ms, session.recovery_ms, session.offer_ttl_ms, session.heartbeat_ms) == (30_000, 30_000, 10_000, 20_000)
    with override_settings(EZGH_WORKFLOWS={**settings.EZGH_WORKFLOWS, "MAX_CLAIM": 3}):
        assert (session.max_claim, desk.worker().session.max_claim) == (100, 3)


def test_the_same_definition_is_stored_once(desk: Desk) -> None:
    for name in ("w1", "w2", "w1"):
        desk.worker(job(), name=name)
    assert (Definition.objects.filter(workflow="job").count(), Announcement.objects.count()) == (1, 3)


def test_registrations_at_one_moment_all_succeed(transactional_db: None, desk: Desk) -> None:
    together([partial(desk.worker, job("a"), job("b"), name=name) for name in ("w1", "w2", "w3", "w4")])
    assert (len(announced()), Definition.objects.filter(workflow__in=["a", "b"]).count()) == (8, 2)


def test_all_faults_of_all_definitions_are_told_and_nothing_is_stored(desk: Desk) -> None:
    good = job("good").to_spec()
    bad = {**job("bad").to_spec(), "steps": []}
    worse = {**job("worse").to_spec(), "revision": ""}
    before = Definition.objects.count()
    with pytest.raises(InvalidWorkflow) as refused:
        workers.register(Registration(worker="w1", app="default", definitions=(good, bad, worse)))
    assert len([fault for fault in refused.value.faults if "bad" in fault or "worse" in fault]) >= 2
    assert (Definition.objects.count(), Worker.objects.count()) == (before, 0)


def test_a_callable_key_needs_code_on_the_server(desk: Desk) -> None:
    workflow: Any = Workflow("order", steps=[Step("await_payment", wait=Wait("paid", key=lambda run: run.id))])
    with pytest.raises(InvalidWorkflow, match="workflow order, step await_payment: a callable key stays on the server; use key_expr"):
        desk.worker(workflow)
    registry.add(workflow)
    assert desk.worker(workflow).session.definitions == (("order", workflow.version),)


@pytest.mark.parametrize("name", ["", "w" * 256, "a\0", "\ud800"], ids=ascii)
def test_a_bad_name_is_refused(desk: Desk, name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^worker"):
        desk.worker(name=name)
    assert Worker.objects.count() == 0


def test_too_many_definitions_are_refused(desk: Desk) -> None:
    with pytest.raises(InvalidArgument, match="at most 1000 workflows, not 1001"):
        workers.register(Registration(worker="w1", app="default", definitions=({},) * 1001))


def test_an_unknown_app_is_refused(desk: Desk) -> None:
    with pytest.raises(UnknownApp, match='"absent"'):
        desk.worker(app="absent")


def test_a_developers_app_is_made_by_its_first_worker(desk: Desk) -> None:
    desk.worker(job(), app="dev-ann")
    assert App.objects.get(name="dev-ann").is_dev


# The trail


def test_an_announcement_that_changes_the_set_of_names_is_in_the_trail(desk: Desk) -> None:
    desk.worker(job("a"))
    desk.worker(job("a"), name="w2")
    desk.worker(job("a", timeout=7), name="w3")
    desk.worker(job("b"), name="w4")
    assert told() == ['{"workflows":["a"]}', '{"workflows":["a","b"]}']
    assert Trail.objects.filter(action="AnnounceWorkflows").first().actor == "w1"  # type: ignore[union-attr]  # there is one


def test_the_trail_of_announcements_is_each_apps_own(desk: Desk) -> None:
    desk.worker(job("a"))
    desk.worker(job("a"), app="dev-ann")
    assert list(Trail.objects.order_by("pk").values_list("target_kind", "target")) == [("app", "default"), ("app", "dev-ann")]


# Leaving, and being forgotten


def test_a_worker_that_leaves_announces_nothing_any_more(desk: Desk) -> None:
    hand = desk.worker(job())
    workers.leave(hand.session.worker_id)
    assert (announced(), Worker.objects.get().left_at) == ([], desk.now)
    with pytest.raises(UnknownWorker, match="register again"):
        hand.claim()


def test_leaving_twice_changes_nothing(desk: Desk) -> None:
    hand = desk.worker(job())
    workers.leave(hand.session.worker_id)
    left_at = desk.now
    desk.now += timedelta(minutes=1)
    workers.leave(hand.session.worker_id)
    assert Worker.objects.get().left_at == left_at


@pytest.mark.parametrize("worker_id", ["00000000-0000-4000-8000-000000000000", "no id", ""])
def test_a_session_that_never_was_is_unknown(desk: Desk, worker_id: str) -> None:
    with pytest.raises(UnknownWorker, match="register again"):
        workers.session(worker_id, "c")


def test_leaving_takes_no_lease_away(desk: Desk) -> None:
    hand = desk.worker(job())
    run = job().start(1)
    lease = hand.take()
    workers.leave(hand.session.worker_id)
    assert (hand.beat(lease).refused, hand.complete(lease).refused, run.phase) == (None, None, "succeeded")


def test_a_session_unheard_of_is_forgotten(desk: Desk) -> None:
    hand = desk.worker(job())
    desk.now += timedelta(minutes=10)
    workers.forget_lost(desk.now, 10)
    assert (announced(), Worker.objects.get().left_at) == ([], desk.now)
    with pytest.raises(UnknownWorker):
        hand.claim()


def test_a_session_is_not_forgotten_before_its_time(desk: Desk) -> None:
    hand = desk.worker(job())
    desk.now += timedelta(minutes=10, microseconds=-1)
    workers.forget_lost(desk.now, 10)
    assert (len(announced()), hand.claim()) == (1, ())


@pytest.mark.parametrize("call", ["claim", "start", "beat", "complete", "fail"])
def test_every_call_of_a_session_renews_what_it_announced(desk: Desk, call: str) -> None:
    hand = desk.worker(job())
    job().start(1)
    [lease] = hand.claim()
    desk.now += timedelta(minutes=9)
    {"claim": hand.claim}.get(call, lambda: getattr(hand, call)(lease))()
    desk.now += timedelta(minutes=9)
    workers.forget_lost(desk.now, 10)
    assert len(announced()) == 1


def test_hearing_of_a_session_is_written_at_most_once_a_minute(desk: Desk) -> None:
    hand = desk.worker(job())
    registered = desk.now
    desk.now += timedelta(seconds=59)
    hand.claim()
    assert Worker.objects.get().seen_at == registered
    desk.now += timedelta(seconds=1)
    hand.claim()
    assert Worker.objects.get().seen_at == desk.now


# Names


def test_a_reused_name_neither_revives_nor_hides_the_leases_of_the_session_before(desk: Desk) -> None:
    """B26."""
    old = desk.worker(job(), name="pod-1")
    run = job().start(1)
    lease = old.take()
    new = desk.worker(job(), name="pod-1")
    for _ in range(5):
        desk.advance(10)
        new.claim()
    assert desk.lease(lease).status == "orphaned"
    desk.advance(10)
    again = new.take()
    assert (again.run_id, again.attempt, again.token) == (run.id, 2, 2)
    assert (why(old.complete(lease)), new.complete(again).refused) == ("fenced", None)


def test_two_sessions_of_one_name_do_not_get_each_others_claims(desk: Desk) -> None:
    """B26: the old process still drains while the new one is there."""
    old, new = desk.worker(job(), name="pod-1"), desk.worker(job(), name="pod-1")
    job().start_many([1, 2])
    first, second = old.claim(1, claim_id="c-1"), new.claim(1, claim_id="c-1")
    assert len({lease.run_id for lease in (*first, *second)}) == 2
    assert (old.claim(1, claim_id="c-1")[0].id, new.claim(1, claim_id="c-1")[0].id) == (first[0].id, second[0].id)


def test_leaving_ends_only_its_own_session_of_a_name(desk: Desk) -> None:
    old, new = desk.worker(job(), name="pod-1"), desk.worker(job(), name="pod-1")
    workers.leave(old.session.worker_id)
    assert (announced(), new.claim()) == ([("pod-1", "job")], ())


def test_a_session_claims_only_from_its_own_app(desk: Desk) -> None:
    here, there = desk.worker(job()), desk.worker(job(), app="dev-ann")
    run = job().start(1)
    assert (there.claim(), [lease.run_id for lease in here.claim()]) == ((), [run.id])


def test_a_revision_that_was_never_stored_is_unknown(desk: Desk) -> None:
    hand = desk.worker(job())
    with pytest.raises(UnknownDefinition, match='app "default" has no job revision 7: register again'):
        hand.claim(serves=[Serve("job", "7")])


def test_a_worker_serves_as_many_workflows_as_it_may_register(desk: Desk) -> None:
    app = App.objects.get(name="default")
    for revision in ("1", "2"):
        Revision.objects.bulk_create(Revision(app=app, workflow=f"w{number}", revision=revision) for number in range(workers.MAX_DEFINITIONS))
    wanted = [Serve(f"w{number}", "12"[number % 2]) for number in range(workers.MAX_DEFINITIONS)]
    found = workers.serving(app, wanted)
    told = Revision.objects.filter(pk__in=found).values_list("workflow", "revision")
    assert sorted(told) == sorted((serve.name, serve.revision) for serve in wanted)


# How long a body without a timeout may take


def invocation() -> timedelta:
    """The default app's bound."""
    return timedelta(milliseconds=App.objects.get(name="default").invocation_ms)


@pytest.mark.parametrize(
    ("timeout", "bound"),
    [(60, timedelta(minutes=15)), (3600, timedelta(hours=1)), (86_400, timedelta(hours=24))],
)
def test_the_bound_is_the_longest_announced_timeout_within_limits(desk: Desk, timeout: float, bound: timedelta) -> None:
    desk.worker(Workflow("long", steps=[Step("work", run=body, timeout=timeout)]))
    assert invocation() == bound


def test_the_bound_shrinks_when_who_announced_the_longest_leaves(desk: Desk) -> None:
    hand: Hand = desk.worker(Workflow("long", steps=[Step("work", run=body, timeout=7200)]))
    desk.worker(Workflow("short", steps=[Step("work", run=body, timeout=3600)]), name="w2")
    workers.leave(hand.session.worker_id)
    assert invocation() == timedelta(hours=1)


def test_the_bound_is_fixed_on_the_lease_at_the_claim(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start(1)
    [lease] = hand.claim()
    desk.worker(Workflow("long", steps=[Step("work", run=body, timeout=7200)]), name="w2")
    assert (lease.timeout_ms, desk.lease(lease).timeout_ms) == (900_000, 900_000)
