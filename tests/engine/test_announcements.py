"""Announcements as the outside sees them, for how long they count, and the trail: what is told once, and how it is read."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from ezgh_workflows_django import Workflow
from ezgh_workflows_django.definitions.starts import Start
from ezgh_workflows_django.engine import announcing, catalog, events, starts, trail, workers
from ezgh_workflows_django.errors import InvalidArgument, UnknownDefinition, UnknownWorker, WorkflowNotAnnounced
from ezgh_workflows_django.models import Announcement, Definition, Trail, Worker
from ezgh_workflows_django.protocol.messages import Registration
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import job
from tests.engine.test_apps import default, told
from tests.engine.test_keys import BOSS, elsewhere, home
from tests.engine.threads import PATIENCE, begin, together


def name_of(workflow: Workflow) -> str:
    """How a definition is announced by name."""
    return f"{workflow.name}@{workflow.version}"


def announce(hand: Hand, *texts: str) -> None:
    """A session announces stored definitions."""
    announcing.announce(uuid.UUID(hand.session.worker_id), texts)


# --- what a start from outside pins


def test_the_newest_stored_version_among_those_announced_is_pinned(desk: Desk) -> None:
    old, new, unserved = job(timeout=1), job(timeout=2), job(timeout=3)
    desk.worker(old)
    desk.worker(new, name="w2")
    desk.worker(old, name="w3")
    catalog.store(default(), unserved.to_spec(), desk.now)
    pinned = announcing.newest(default(), "job")
    run = starts.start(pinned, Start(payload=1))
    assert (pinned.version, run.version, run.app_id) == (new.version, new.version, default().pk)


@pytest.mark.parametrize("workflow", ["job", "absent", "", "a\0", "\ud800"], ids=ascii)
def test_what_is_stored_but_not_announced_cannot_be_started_from_outside(desk: Desk, workflow: str) -> None:
    catalog.store(default(), job().to_spec(), desk.now)
    with pytest.raises(WorkflowNotAnnounced, match="in the last 10m: start one that serves it") as refused:
        announcing.newest(default(), workflow)
    assert refused.value.code == "workflow_not_announced"


def test_an_announcement_lasts_ten_minutes_from_when_its_session_was_last_heard_of(desk: Desk) -> None:
    hand = desk.worker(job())
    desk.now += timedelta(minutes=9)
    hand.claim()
    desk.now += timedelta(minutes=10, microseconds=-1)
    assert announcing.newest(default(), "job").workflow == "job"
    desk.now += timedelta(microseconds=1)
    with pytest.raises(WorkflowNotAnnounced):
        announcing.newest(default(), "job")


@pytest.mark.parametrize("call", ["claim", "start", "beat"])
def test_each_call_of_a_session_renews_what_it_announced_at_most_once_a_minute(desk: Desk, call: str) -> None:
    hand = desk.worker(job())
    job().start()
    [lease] = hand.claim()
    calls: dict[str, Any] = {"claim": hand.claim, "start": lambda: hand.start(lease), "beat": lambda: hand.beat(lease)}
    seen = Worker.objects.get().seen_at
    desk.now += timedelta(seconds=5)
    calls[call]()
    assert Worker.objects.get().seen_at == seen
    hand.start(lease)
    for _ in range(4):
        desk.now += timedelta(seconds=14)
        hand.beat(lease)
    calls[call]()
    assert desk.now - Worker.objects.get().seen_at < timedelta(seconds=60)


def test_an_announcement_counts_in_its_own_app_only(desk: Desk) -> None:
    desk.worker(job(), app="dev-ann")
    with pytest.raises(WorkflowNotAnnounced):
        announcing.newest(default(), "job")


def test_starts_in_this_process_need_no_announcement(desk: Desk) -> None:
    assert job().start().phase == "queued"


def test_what_is_announced_is_listed_with_versions_timeouts_and_workers(desk: Desk) -> None:
    first, second = job("a", timeout=7), job("a", timeout=9)
    desk.worker(first, job("b"))
    desk.worker(second, first, name="w2")
    workers.leave(desk.worker(job("c"), name="w3").session.worker_id)
    app = default()
    with CaptureQueriesContext(connection) as captured:
        found = announcing.announced(app)
    assert [(each.workflow, each.version, each.longest_timeout_ms, each.workers) for each in found] == [
        ("a", second.version, 9000, 1),
        ("a", first.version, 7000, 2),
        ("b", job("b").version, None, 1),
    ]
    assert len(captured) == 2


# --- announcing by name


def test_a_session_announces_stored_definitions_by_name(desk: Desk) -> None:
    desk.worker(job("a"), job("b", timeout=3600))
    poor = Hand((), "w2")
    announce(poor, name_of(job("a")), name_of(job("b", timeout=3600)), name_of(job("a")))
    assert sorted(Announcement.objects.filter(worker__name="w2").values_list("definition__workflow", flat=True)) == ["a", "b"]
    assert default().invocation_ms == 3_600_000


def test_announcing_the_same_again_writes_nothing(desk: Desk) -> None:
    hand = desk.worker(job("a"))
    with CaptureQueriesContext(connection) as captured:
        announce(hand, name_of(job("a")))
    statements = [query["sql"] for query in captured.captured_queries if query["sql"].startswith(("SELECT", "INSERT", "UPDATE"))]
    assert [text[:6] for text in statements] == ["SELECT"] * 3


@pytest.mark.parametrize("text", ["a", "a@", "@1", "", "a\0@b", "\ud800@1"], ids=ascii)
def test_what_names_no_version_is_refused(desk: Desk, text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^announce"):
        announce(desk.worker(job("a")), text)


def test_a_definition_that_is_not_stored_in_its_app_is_unknown(desk: Desk) -> None:
    desk.worker(job("a"), app="dev-ann")
    with pytest.raises(UnknownDefinition, match="register again"):
        announce(desk.worker(job("b")), name_of(job("b")), name_of(job("a")))


def test_a_session_that_left_announces_nothing(desk: Desk) -> None:
    hand = desk.worker(job("a"))
    workers.leave(hand.session.worker_id)
    with pytest.raises(UnknownWorker, match="register again"):
        announce(hand, name_of(job("a")))


@pytest.mark.long
def test_a_session_serves_a_thousand_workflows_and_no_more(desk: Desk) -> None:
    specs = tuple(job(f"w{number}").to_spec() for number in range(1000))
    session = workers.register(Registration(worker="w1", app="default", definitions=specs))
    assert len(announcing.announced(default())) == 1000
    desk.worker(job("one-more"), name="w2")
    for texts in ([name_of(job("one-more"))], ["a@1"] * 1001):
        with pytest.raises(InvalidArgument, match="at most 1000 workflows"):
            announcing.announce(uuid.UUID(session.worker_id), texts)
    assert Announcement.objects.filter(worker__name="w1").count() == 1000


def test_names_that_come_at_one_moment_are_told_once(transactional_db: None, desk: Desk) -> None:
    together([partial(desk.worker, job("a"), name=f"w{number}") for number in range(4)])
    assert told("AnnounceWorkflows") == ['{"workflows":["a"]}']


def test_a_name_that_comes_back_after_its_time_is_told_again(desk: Desk) -> None:
    desk.worker(job("a"))
    desk.now += timedelta(minutes=10)
    desk.worker(job("a"), name="w2")
    assert told("AnnounceWorkflows") == ['{"workflows":["a"]}'] * 2


# --- the trail: once an hour


Named = tuple[str, str]


def note(desk: Desk, action: str = "ReadRun", actor: Named = ("key", "k1"), target: Named = ("run", "r1"), project: int | None = None) -> bool:
    """Tell the trail, once an hour."""
    return trail.record_once_an_hour(project or home().pk, desk.now, action, actor=actor, target=target, why="it was asked")


def test_the_same_is_told_once_in_an_hour(desk: Desk) -> None:
    desk.now = desk.now.replace(minute=59, second=59)
    assert [note(desk), note(desk)] == [True, False]
    desk.now += timedelta(seconds=1)
    assert note(desk)
    assert Trail.objects.filter(action="ReadRun").count() == 2


def test_another_action_actor_target_or_project_is_told_on_its_own(desk: Desk) -> None:
    others: list[dict[str, Any]] = [
        {},
        {"action": "RefusePoll"},
        {"actor": ("user", "k1")},
        {"actor": ("key", "k2")},
        {"target": ("run", "r2")},
        {"target": ("code", "r1")},
        {"actor": ("key", "k1 run"), "target": ("", "r1")},
        {"project": elsewhere().pk},
    ]
    assert all(note(desk, **other) for other in others)
    assert Trail.objects.count() == len(others)


def test_what_many_tell_at_one_moment_is_there_once(transactional_db: None, desk: Desk) -> None:
    together([partial(note, desk)] * 6)
    assert Trail.objects.filter(action="ReadRun").count() == 1


# --- what is not committed yet keeps nobody waiting


@pytest.mark.skipif("__import__('django.db').db.connection.vendor == 'sqlite'", reason="a writer of SQLite holds the whole file")
@pytest.mark.parametrize("written", [lambda: job().start(1), lambda: events.emit("paid", payload=1, only_there=True)], ids=["start", "emit"])
@pytest.mark.usefixtures("transactional_db")
def test_what_is_written_in_a_long_transaction_keeps_no_session_from_coming_or_going(desk: Desk, written: Callable[[], Any]) -> None:
    """On MariaDB a foreign key would lock the app's and the definition's rows until it ends."""
    hand, lost = desk.worker(job()), desk.worker(job(), name="w2")
    Worker.objects.filter(pk=lost.session.worker_id).update(seen_at=desk.now - timedelta(hours=1))
    definition = announcing.newest(default(), "job")

    def come_and_go() -> list[Any]:
        desk.worker(job("other", timeout=3600), name="w3")
        workers.leave(hand.session.worker_id)
        return [Definition.objects.filter(pk=definition.pk).update(due_at=None), workers.forget_lost(desk.now, 100)]

    with transaction.atomic():
        written()
        assert begin(come_and_go).result(PATIENCE) == [1, 1]


def test_the_longest_invocation_is_written_only_where_it_changes(desk: Desk) -> None:
    """Who holds the app's row keeps no session from going that changes nothing there."""
    desk.worker(job(timeout=3600))
    hand = desk.worker(job(timeout=1), name="w2")
    with CaptureQueriesContext(connection) as seen:
        workers.leave(hand.session.worker_id)
    assert not [query for query in seen.captured_queries if query["sql"].startswith("UPDATE") and "invocation_ms" in query["sql"]]
    assert default().invocation_ms == 3600 * 1000


# --- the trail: reading it


@pytest.fixture
def rows(desk: Desk) -> list[str]:
    """Twelve entries, three at each moment."""
    for number in range(12):
        trail.record(
            home().pk, desk.now + timedelta(seconds=number // 3), "A" if number % 2 else "B", actor=("user", f"u{number % 3}"), target=("run", f"r{number}")
        )
    trail.record(elsewhere().pk, desk.now, "A", actor=("user", "u1"), target=("run", "theirs"))
    return [f"r{number}" for number in reversed(range(12))]


def targets(page: trail.Page) -> list[str]:
    """What the entries are about."""
    return [entry.target for entry in page.entries]


@pytest.mark.parametrize("size", [1, 2, 5, 11, 12, 13])
def test_pages_follow_on_each_other_without_gap_or_double(desk: Desk, rows: list[str], size: int) -> None:
    found: list[str] = []
    cursor: str | None = None
    while cursor is not None or not found:
        page = trail.page(home().pk, cursor=cursor, limit=size)
        trail.record(home().pk, desk.now + timedelta(minutes=1), "Later", actor=BOSS, target=("run", "later"))
        found, cursor = found + targets(page), page.cursor
    assert found == rows


def test_entries_are_found_by_action_actor_target_and_time(desk: Desk, rows: list[str]) -> None:
    def found(**wanted: Any) -> list[str]:
        return targets(trail.page(home().pk, **wanted))

    assert found(action="A", actor="u1") == ["r7", "r1"]
    assert found(target="r4") == ["r4"]
    assert found(since=desk.now + timedelta(seconds=3)) == rows[:3]
    assert found(until=desk.now + timedelta(seconds=1)) == rows[-3:]
    assert found(target="theirs") == []


@pytest.mark.parametrize("cursor", ["", "x", "1", "1-", "-1-1", "1-1x", "9" * 18 + "-1", "1" * 40 + "-1", "١-1", "1-1\n"], ids=ascii)
def test_a_cursor_that_no_page_gave_is_refused(desk: Desk, cursor: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^cursor"):
        trail.page(home().pk, cursor=cursor)


@pytest.mark.parametrize("wanted", [{"limit": 0}, {"limit": 201}, {"actor": "a\0"}, {"action": "\ud800"}, {"target": "t" * 256}], ids=ascii)
def test_what_cannot_be_asked_for_is_refused_by_name(desk: Desk, wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=f"^{next(iter(wanted))}"):
        trail.page(home().pk, **wanted)
