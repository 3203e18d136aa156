"""Apps: what may be created and changed, what a pause holds back, and what there is to know of an app."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django import emit
from ezgh_workflows_django.definitions.starts import Start
from ezgh_workflows_django.engine import announcing, apps, catalog, events, leases, starts, tenancy, workers
from ezgh_workflows_django.engine.sql.looking import next_available
from ezgh_workflows_django.errors import AppExists, InvalidArgument, NotPermitted, PartitionsShrink, QueueFixed, UnknownApp, UnknownProject, UnknownWorkflow
from ezgh_workflows_django.models import App, Event, Organization, Run, Step, Trail, WorkflowPause
from ezgh_workflows_django.protocol.messages import ClaimRequest, Registration, Serve
from tests.engine.conftest import Desk
from tests.engine.graphs import job
from tests.engine.test_keys import BOSS, elsewhere, home, who
from tests.engine.threads import answer_of, together


def default() -> App:
    """The default app, as it is now."""
    return App.objects.get(project=home(), name="default")


def told(action: str) -> list[str]:
    """What the trail says of an action, in order."""
    return list(Trail.objects.filter(action=action).order_by("pk").values_list("data", flat=True))


# --- creating and growing


def test_an_app_is_created_and_is_in_the_trail(desk: Desk) -> None:
    app = apps.create(home(), "reports", by=BOSS, partitions=8)
    assert (app.queue, app.partitions, app.kind, app.created_at) == ("default", 8, "pull", desk.now)
    assert told("CreateApp") == ['{"kind":"pull","queue":"default","partitions":8}']


def test_a_name_is_taken_once_in_a_project(desk: Desk) -> None:
    with pytest.raises(AppExists, match='has an app "default" already') as refused:
        apps.create(home(), "default", by=BOSS, partitions=8)
    assert (refused.value.code, default().partitions, told("CreateApp")) == ("app_exists", 4, [])
    assert apps.create(elsewhere(), "default", by=BOSS).pk != default().pk


def test_of_several_at_one_moment_one_creates_the_app(transactional_db: None, desk: Desk) -> None:
    answers = together([answer_of(partial(apps.create, home(), "reports", by=BOSS))] * 4)
    assert sorted(type(answer).__name__ for answer in answers) == ["App"] + ["AppExists"] * 3
    assert len(told("CreateApp")) == 1


@pytest.mark.parametrize("queue", ["", "-a", "A", "a_b", "a" * 64, "é", "a\n", None], ids=ascii)
def test_a_queue_that_breaks_its_pattern_is_refused(desk: Desk, queue: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^queue"):
        apps.create(home(), "reports", by=BOSS, queue=queue)


def test_a_queue_may_have_63_characters(desk: Desk) -> None:
    assert apps.create(home(), "reports", by=BOSS, queue="0" + "a-" * 31).queue == "0" + "a-" * 31


@pytest.mark.parametrize("partitions", [0, 33, -1, True, 4.0, "4"])
def test_partitions_outside_1_to_32_are_refused(desk: Desk, partitions: Any) -> None:
    with pytest.raises(InvalidArgument, match="1 to 32"):
        apps.create(home(), "reports", by=BOSS, partitions=partitions)
    with pytest.raises(InvalidArgument, match="1 to 32"):
        apps.update(default(), by=BOSS, partitions=partitions)


@pytest.mark.parametrize(
    ("field", "value"), [("name", ""), ("name", "a/b"), ("name", "a" * 64), ("name", "a\0"), ("name", "12"), ("name", 7), ("kind", "push")], ids=ascii
)
def test_a_bad_name_or_kind_is_refused(desk: Desk, field: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"^{field}"):
        apps.create(home(), **{"name": "reports", "by": BOSS, field: value})


def test_partitions_grow_and_never_shrink(desk: Desk) -> None:
    assert apps.update(default(), by=BOSS, partitions=32).partitions == 32
    assert apps.update(default(), by=BOSS, partitions=32, queue="default").partitions == 32
    with pytest.raises(PartitionsShrink, match="has 32 partitions") as refused:
        apps.update(default(), by=BOSS, partitions=31)
    assert (refused.value.code, default().partitions, told("UpdateApp")) == ("partitions_shrink", 32, ['{"partitions":32,"was":4}'])


def test_of_two_growths_at_one_moment_none_undoes_the_other(transactional_db: None, desk: Desk) -> None:
    together([answer_of(partial(apps.update, default(), by=BOSS, partitions=count)) for count in (6, 9, 7, 8)])
    assert default().partitions == 9


def test_what_lies_in_the_old_partitions_is_still_offered_after_a_growth(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start_many(range(20))
    apps.update(default(), by=BOSS, partitions=32)
    job().start_many(range(20))
    assert len(hand.claim(100)) == 40
    assert Step.objects.filter(partition__gte=4).exists()


def test_the_queue_stays(desk: Desk) -> None:
    with pytest.raises(QueueFixed, match='keeps its queue "default"') as refused:
        apps.update(default(), by=BOSS, queue="other", partitions=8)
    assert (refused.value.code, default().queue, default().partitions) == ("queue_fixed", "default", 4)


# --- who may


@pytest.mark.parametrize("verb", ["update", "pause", "resume"])
def test_a_change_needs_its_permission_and_an_app_in_reach(desk: Desk, verb: str) -> None:
    second = apps.create(home(), "second", by=BOSS)
    theirs = apps.create(elsewhere(), "theirs", by=BOSS)
    change: Any = getattr(apps, verb)
    with pytest.raises(NotPermitted, match=rf"workflows\.apps\.{verb}"):
        change(default(), by=who("write", "read"))
    for app, by in ((theirs, who("admin")), (second, who("admin", app=default()))):
        with pytest.raises(UnknownApp):
            change(app, by=by)
    change(default(), by=who(f"workflows.apps.{verb}", app=default()))


def test_creating_needs_its_permission_and_a_key_of_the_project(desk: Desk) -> None:
    for by, project in ((who("write"), home()), (who("admin", app=default()), home()), (who("admin"), elsewhere())):
        with pytest.raises(NotPermitted, match=r"workflows\.apps\.create|can't create one"):
            apps.create(project, "reports", by=by)
    assert apps.create(home(), "reports", by=who("workflows.apps.create")).name == "reports"


# --- pauses


def test_a_paused_app_offers_nothing_and_all_else_goes_on(desk: Desk) -> None:
    hand = desk.worker(job())
    first = job().start(1)
    lease = hand.take()
    apps.pause(default(), by=BOSS, reason="the bank is down")
    second = job().start(2)
    assert hand.claim() == ()
    assert hand.complete(lease).refused is None
    assert (first.phase, second.phase) == ("succeeded", "queued")
    apps.resume(default(), by=BOSS)
    assert [lease.run_id for lease in hand.claim()] == [second.id]


def test_a_paused_workflow_holds_no_other_back_nor_that_of_another_app(desk: Desk) -> None:
    hand, other = desk.worker(job("a"), job("b")), desk.worker(job("a"), app="dev-ann")
    starts.start(job("a"), Start(), app="dev-ann")
    held, free = job("a").start(), job("b").start()
    apps.pause(default(), by=BOSS, workflow="a")
    assert ([lease.run_id for lease in hand.claim()], len(other.claim())) == ([free.id], 1)
    apps.resume(default(), by=BOSS, workflow="a")
    assert [lease.run_id for lease in hand.claim()] == [held.id]


def test_a_revision_that_comes_while_its_workflow_is_paused_is_held_back_too(desk: Desk) -> None:
    desk.worker(job("a"))
    apps.pause(default(), by=BOSS, workflow="a")
    hand = desk.worker(job("a", revision="2"), name="w2")
    job("a", revision="2").start()
    assert hand.claim() == ()


def test_a_held_claim_sleeps_on_while_what_there_is_is_paused(desk: Desk) -> None:
    hand = desk.worker(job())
    job().start()
    call = leases.open_claim(ClaimRequest(worker_id=hand.session.worker_id, claim_id="c", max=1, serves=hand.serves))
    apps.pause(default(), by=BOSS, workflow="job")
    assert (call.look()[1].leases, next_available(call.wanted, timedelta(seconds=5))) == ((), None)


def test_pausing_twice_keeps_the_first_reason_and_tells_the_trail_once(desk: Desk) -> None:
    desk.worker(job())
    for _ in range(2):
        apps.pause(default(), by=BOSS, reason="one")
        apps.pause(default(), by=BOSS, workflow="job", reason="two")
    apps.pause(default(), by=BOSS, reason="three")
    assert (default().paused_reason, WorkflowPause.objects.get().reason) == ("one", "two")
    assert told("PauseApp") == ['{"reason":"one"}', '{"workflow":"job","reason":"two"}']
    for _ in range(2):
        apps.resume(default(), by=BOSS)
        apps.resume(default(), by=BOSS, workflow="job")
    assert (default().paused_at, default().paused_reason, WorkflowPause.objects.count()) == (None, "", 0)
    assert told("ResumeApp") == ["{}", '{"workflow":"job"}']


@pytest.mark.parametrize("workflow", ["absent", "", "a\0", "\ud800"], ids=ascii)
def test_a_workflow_that_is_not_stored_can_be_neither_paused_nor_resumed(desk: Desk, workflow: str) -> None:
    with pytest.raises(UnknownWorkflow):
        apps.pause(default(), by=BOSS, workflow=workflow)
    with pytest.raises(UnknownWorkflow):
        apps.resume(default(), by=BOSS, workflow=workflow)


@pytest.mark.parametrize("reason", ["r" * 501, "a\0", "\ud800"], ids=ascii)
def test_a_reason_that_cannot_be_stored_is_refused(desk: Desk, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^reason"):
        apps.pause(default(), by=BOSS, reason=reason)


# --- what there is to know


def facts(app: App) -> apps.Facts:
    """What there is to know of one app."""
    [found] = apps.facts_of([app])
    return found


def test_the_depth_and_the_oldest_are_of_what_is_ready_now(desk: Desk) -> None:
    hand = desk.worker(job())
    first = desk.now
    job().start_many(range(3))
    hand.claim(1)
    desk.now += timedelta(minutes=1)
    job().start(delay=60)
    job().start()
    found = facts(default())
    assert (found.depth, found.oldest_ready_at) == (3, first)
    assert sum(each.ready for each in found.partitions.values()) == 3


def test_workers_count_while_they_are_heard_of_and_their_workflows_with_them(desk: Desk) -> None:
    desk.worker(job("a"), job("b"))
    gone = desk.worker(job("b"), job("c"), name="w2")
    workers.leave(gone.session.worker_id)
    assert (facts(default()).live_workers, facts(default()).workflows) == (1, ("a", "b"))
    desk.now += timedelta(minutes=10)
    assert (facts(default()).live_workers, facts(default()).workflows) == (0, ())


def test_open_runs_whose_revision_nobody_live_announces_are_stranded(desk: Desk) -> None:
    hand = desk.worker(job("a"))
    desk.worker(job("a", revision="2"), name="w2")
    done, open_ = job("a").start(), job("a").start()
    job("a", revision="2").start()
    lease = next(each for each in hand.claim() if each.run_id == done.id)
    hand.start(lease)
    hand.complete(lease)
    assert facts(default()).stranded == 0
    workers.leave(hand.session.worker_id)
    assert (facts(default()).stranded, [str(run.pk) for run in apps.stranded(default())]) == (1, [open_.id])


def test_many_apps_cost_as_many_statements_as_one_and_keep_their_order(desk: Desk) -> None:
    others = [apps.create(home(), f"app-{number}", by=BOSS) for number in range(5)]
    ours = default()
    for app in (ours, *others):
        desk.worker(job("a"), job("b"), name=f"w-{app.name}", app=app.name)
        starts.start_many(job("a"), [Start()] * 2, app=app.name)
        apps.pause(app, by=BOSS, workflow="b")
    with CaptureQueriesContext(connection) as one:
        apps.facts_of([ours])
    with CaptureQueriesContext(connection) as many:
        found = apps.facts_of([*others, ours])
    assert (len(one), len(many)) == (6, 6)
    assert [each.app.pk for each in found] == [*(app.pk for app in others), ours.pk]
    assert {(each.depth, each.live_workers, each.workflows, each.stranded, each.paused_workflows[0].workflow) for each in found} == {(2, 1, ("a", "b"), 0, "b")}


def test_nothing_to_know_of_no_apps(desk: Desk) -> None:
    assert apps.facts_of([]) == []


# --- tenants


def twin() -> App:
    """An app that is called as the default one, in another project, made first as far as its workflows go."""
    return apps.create(elsewhere(), "default", by=BOSS)


def test_code_in_this_process_means_the_oldest_project_by_an_apps_name(desk: Desk) -> None:
    theirs = twin()
    catalog.store(theirs, job().to_spec(), desk.now)
    run = job().start()
    events.emit("paid")
    assert Run.objects.get(pk=run.id).app_id == default().pk
    assert Event.objects.get().project_id == home().pk


def test_an_app_that_was_found_is_the_one_that_is_meant(desk: Desk) -> None:
    theirs = twin()
    session = workers.register(Registration(worker="w9", app="default", definitions=(job().to_spec(),)), app=theirs)
    run = starts.start(announcing.newest(theirs, "job"), Start())
    claim = ClaimRequest(worker_id=session.worker_id, claim_id="c", max=1, serves=(Serve("job", "1"),))
    assert (run.app_id, [lease.run_id for lease in leases.claim(claim).leases]) == (theirs.pk, [str(run.pk)])
    assert desk.worker(job()).claim() == ()


def test_projects_are_found_by_slug_or_id(desk: Desk) -> None:
    theirs = elsewhere()
    assert tenancy.find_project().pk == home().pk
    assert [tenancy.find_project(organization).pk for organization in ("theirs", str(theirs.organization_id))] == [theirs.pk] * 2
    assert tenancy.find_project(None, str(theirs.pk)).pk == theirs.pk
    for wanted in (("absent", None), (None, "absent"), ("default", str(theirs.pk)), ("9" * 40, None)):
        with pytest.raises(UnknownProject):
            tenancy.find_project(*wanted)
    Organization.objects.create(slug="empty", name="empty", created_at=desk.now)
    with pytest.raises(UnknownProject):
        tenancy.find_project("empty")


def test_apps_are_found_by_name_or_id(desk: Desk) -> None:
    assert [tenancy.find_app(home(), name).pk for name in ("default", str(default().pk))] == [default().pk] * 2
    for name in ("absent", str(twin().pk), "²", "9" * 40):
        with pytest.raises(UnknownApp):
            tenancy.find_app(home(), name)


def test_an_apps_name_means_one_of_the_sites_own_project_whoever_else_has_one(desk: Desk) -> None:
    """Else whoever may create an app could catch what the site starts where its own app is missing."""
    apps.create(elsewhere(), "late", by=BOSS)
    for call in (lambda: job().start(1, app="late"), lambda: emit("paid", app="late"), lambda: tenancy.app_now("late")):
        with pytest.raises(UnknownApp, match='no app "late"'):
            call()
    assert not Run.objects.exists()
