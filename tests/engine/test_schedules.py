"""Schedules fire each occurrence once: changed crons, pauses, downtime, and what of it is written down (spec: engine.md "Cron, concurrency")."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from ezgh_workflows_django import Cron, Step, Wait, Workflow
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.engine import catalog, firing, following, keys, maintenance, payloads, retention, schedules, tenancy, workers
from ezgh_workflows_django.engine.provision import provision
from ezgh_workflows_django.errors import InvalidArgument, NotPermitted, UnknownSchedule
from ezgh_workflows_django.models import Became, JournalEntry, Occurrence, Project, Run, Schedule, Timetable, Trail
from ezgh_workflows_django.protocol.messages import Registration
from tests.engine.conftest import Desk, Hand
from tests.engine.graphs import body
from tests.engine.test_faults import failing_at
from tests.engine.threads import PATIENCE, begin, together

BY = ("user", "eva")
ZONE = "Europe/Madrid"
NOON = datetime(2024, 1, 1, 12, 0, tzinfo=UTC)


def report(*crons: Cron | str, name: str = "report", step: Step | None = None, **rest: Any) -> Workflow:
    """A workflow with these crons."""
    made = [cron if isinstance(cron, Cron) else Cron(cron) for cron in crons]
    return Workflow(name, steps=[step or Step("work", run=body)], cron=made, **rest)


def put(desk: Desk, *workflows: Workflow, app: str = "default", at: datetime | None = None) -> Hand:
    """Store them, as a worker's start does; their schedules follow. `at`: at that moment."""
    if at is not None:
        desk.now = at
    hand = desk.worker(*workflows, app=app)
    desk.tick()
    return hand


def only() -> Schedule:
    """The one schedule there is."""
    return Schedule.objects.get(removed_at=None)


def became(schedule: Schedule | None = None) -> Counter[str]:
    """How many occurrences became what."""
    rows = Occurrence.objects.filter(schedule=schedule) if schedule else Occurrence.objects.all()
    return Counter(rows.values_list("became", flat=True))


def fired() -> list[datetime | None]:
    """The occurrences that were started, in order."""
    return list(Occurrence.objects.filter(became=Became.STARTED).order_by("pk").values_list("at", flat=True))


def at(text: str) -> datetime:
    """A moment of 2024 in UTC: `01-02 12:30`."""
    return datetime.strptime(f"2024-{text}", "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


# --- an occurrence becomes a run


def test_an_occurrence_becomes_a_run_that_says_where_it_comes_from(desk: Desk) -> None:
    hand = put(desk, report(Cron("30 12 * * *", timezone=ZONE, payload={"day": 1}, labels={"team": "blue"})))
    assert only().next_at == at("01-01 11:30")
    desk.advance(hours=2, minutes=29, seconds=59)
    assert Run.objects.count() == 0
    desk.advance(1)
    desk.tick()
    run, occurrence = Run.objects.get(), Occurrence.objects.get()
    assert (payloads.from_text(run.payload), payloads.from_text(run.labels)) == ({"day": 1}, {"team": "blue"})
    assert (run.status, run.correlation_id, run.occurrence) == ("running", "cron:report:0:2024-01-01T11:30:00Z", occurrence.pk)
    assert (occurrence.at, occurrence.became, occurrence.run_id, occurrence.reason) == (desk.now, "started", run.pk, "")
    created = JournalEntry.objects.get(run=run, kind="run.created")
    told = payloads.from_text(created.data)
    assert (told["schedule"], told["occurrence"]) == (only().pk, "2024-01-01T11:30:00Z")
    assert only().next_at == only().due_at == at("01-02 11:30")
    assert hand.work_off() == 1


def test_a_cron_without_payload_starts_one_without_and_null_is_a_payload(desk: Desk) -> None:
    put(desk, report("0 10 * * *", Cron("0 10 * * *", payload=None)))
    desk.advance(hours=1)
    assert sorted(Run.objects.values_list("payload", flat=True), key=str) == [None, "null"]


def test_it_needs_no_announcement_and_waits_for_a_worker(desk: Desk) -> None:
    hand = put(desk, report("0 10 * * *"))
    workers.leave(hand.session.worker_id)
    desk.advance(hours=1)
    assert Run.objects.get().status == "running"


def test_the_next_run_is_of_the_newest_stored_definition(desk: Desk) -> None:
    put(desk, report("0 * * * *"))
    newer = report("0 * * * *", step=Step("other", run=body))
    put(desk, newer)
    desk.advance(hours=1)
    assert Run.objects.get().version == newer.version


def test_schedules_are_there_after_migrate_without_a_tick(desk: Desk) -> None:
    registry.add(report("0 10 * * *"))
    provision("default")
    assert only().next_at == at("01-01 10:00")


# --- once, however many look


@pytest.mark.django_db(transaction=True)
def test_of_many_that_look_at_one_moment_one_fires(transactional_db: None, desk: Desk) -> None:
    put(desk, report(*[Cron(f"*/{minutes} * * * *", overlap="allow") for minutes in (1, 2, 3)]))
    ids = list(Schedule.objects.values_list("pk", flat=True))
    for _ in range(6):
        desk.now += timedelta(minutes=1)
        together([partial(firing.see_to, pk) for pk in ids for _ in range(3)])
    assert became() == {"started": 6 + 3 + 2}
    assert Run.objects.count() == 11


@pytest.mark.django_db(transaction=True)
def test_of_many_that_follow_a_definition_one_makes_its_schedules(transactional_db: None, desk: Desk) -> None:
    desk.worker(report("0 1 * * *", "0 2 * * *"))
    timetable = Timetable.objects.get()
    together([lambda: following.follow(timetable.pk)] * 4)
    assert sorted(Schedule.objects.values_list("number", flat=True)) == [0, 1]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_fault_at_any_statement_loses_no_occurrence_and_doubles_none(desk: Desk, after: bool) -> None:
    """B86: an occurrence and its run are one transaction."""
    put(desk, report(Cron("0 * * * *", overlap="queue")))
    for statement in itertools.count(1):
        desk.now += timedelta(hours=1)
        Run.objects.filter(ended_at=None).update(ended_at=desk.now, status="succeeded", due_at=None, open_steps=0)
        with failing_at(statement, after=after) as fault:
            firing.see_to(only().pk)
        desk.tick()
        if not fault.hit:
            break
    assert statement > 10
    assert became() == {"started": statement}
    assert Run.objects.count() == statement
    _forget_runs()


def _forget_runs() -> None:
    """The invariants would not like how these were ended."""
    Occurrence.objects.all().delete()
    for run in Run.objects.all():
        JournalEntry.objects.filter(run=run).delete()
        run.steps.all().delete()
        run.delete()


def test_deleting_old_runs_neither_fires_again_nor_stands_in_the_way(desk: Desk) -> None:
    """B86: the occurrence stays, whatever retention does."""
    hand = put(desk, report("0 10 * * *"))
    desk.advance(hours=1)
    hand.work_off()
    run = Run.objects.get()
    retention.delete([run.pk], desk.now + timedelta(days=40), timedelta(days=30))
    assert (Run.objects.count(), Occurrence.objects.get().run_id) == (0, run.pk)
    desk.tick()
    assert Run.objects.count() == 0
    desk.advance(days=1)
    assert fired() == [at("01-01 10:00"), at("01-02 10:00")]


def test_what_has_a_row_is_never_fired_again(desk: Desk) -> None:
    """Not even by a schedule that was led back: the row is the proof."""
    put(desk, report(Cron("0 10 * * *", catch_up="all", overlap="allow")))
    desk.advance(hours=1)
    Schedule.objects.update(next_at=at("01-01 10:00"), due_at=desk.now)
    desk.tick()
    assert (became(), only().next_at) == ({"started": 1}, at("01-02 10:00"))


def test_what_became_of_it_is_known_for_over_a_year(desk: Desk) -> None:
    put(desk, report(Cron("0 10 1 * *", catch_up="all")))
    desk.advance(hours=1)
    for _ in range(14):
        desk.advance(days=31)
    kept = list(Occurrence.objects.order_by("at").values_list("at", flat=True))
    assert kept[0] == at("03-01 10:00")
    assert kept[-1] == datetime(2025, 3, 1, 10, tzinfo=UTC)


# --- a changed cron


@pytest.mark.skipif("__import__('django.db').db.connection.vendor == 'sqlite'", reason="a writer of SQLite holds the whole file")
def test_a_schedule_that_somebody_holds_keeps_no_tick_waiting(transactional_db: None, desk: Desk) -> None:
    """The others of its timetable wait with it, so that all follow the same definition."""
    put(desk, report("0 10 * * *", "0 11 * * *"))
    first, second = Schedule.objects.order_by("number")
    desk.worker(report("0 12 * * *", "0 13 * * *"))
    with transaction.atomic():
        schedules.run(second.pk, by=BY)
        begin(desk.tick).result(PATIENCE)
        assert list(Schedule.objects.order_by("pk").values_list("expression", flat=True)) == ["0 10 * * *", "0 11 * * *"]
    desk.tick()
    assert list(Schedule.objects.order_by("pk").values_list("pk", "expression")) == [(first.pk, "0 12 * * *"), (second.pk, "0 13 * * *")]


def test_a_changed_cron_fires_only_after_the_change(desk: Desk) -> None:
    """B83: ran today at 13:30; at 12:20 the next day it is moved to 16:00."""
    put(desk, report("30 13 * * *"))
    desk.advance(hours=4, minutes=30)
    assert fired() == [at("01-01 13:30")]
    put(desk, report("0 16 * * *"), at=at("01-02 12:20"))
    assert (Run.objects.count(), only().next_at) == (1, at("01-02 16:00"))
    put(desk, report("0 12 * * *"), at=at("01-02 12:30"))
    assert (Run.objects.count(), only().next_at) == (1, at("01-03 12:00"))
    put(desk, report(Cron("0 12 * * *", timezone=ZONE)), at=at("01-02 12:40"))
    assert (Run.objects.count(), only().next_at) == (1, at("01-03 11:00"))
    assert Schedule.objects.count() == 1


def test_a_changed_time_counts_from_when_it_was_stored_however_late_that_is_seen(desk: Desk) -> None:
    """Nobody ran maintenance from the deploy on: what was due by the new cron is caught up with, what was due by the old one is missed."""
    put(desk, report("0 10 * * *"))
    desk.now = at("01-01 11:00")
    desk.worker(report("0 12 * * *"))
    desk.now = at("01-01 14:00")
    desk.tick()
    rows = Occurrence.objects.order_by("at").values_list("at", "became", "reason")
    assert list(rows) == [(at("01-01 10:00"), "missed", "the cron was changed before it could fire"), (at("01-01 12:00"), "started", "")]


def test_other_edits_do_not_move_it(desk: Desk) -> None:
    put(desk, report(Cron("0 16 * * *", payload=1)))
    before = Schedule.objects.get()
    desk.advance(hours=1)
    put(desk, report(Cron("0 16 * * *", payload=2, labels={"a": "b"}, overlap="queue", catch_up="none"), step=Step("other", run=body), revision="2"))
    after = Schedule.objects.get()
    assert (after.pk, after.next_at, after.due_at) == (before.pk, before.next_at, before.due_at)
    assert (after.payload, after.labels, after.overlap, after.catch_up) == ("2", '{"a":"b"}', "queue", "none")
    assert after.definition_id != before.definition_id


def test_a_cron_that_moves_in_its_list_stays_what_it_was(desk: Desk) -> None:
    put(desk, report("0 16 * * *", "0 17 * * *", "0 18 * * *"))
    first, second, third = Schedule.objects.order_by("number")
    schedules.pause(second.pk, by=BY)
    put(desk, report("0 18 * * *", "0 17 * * *", "0 19 * * *", "0 16 * * *"))
    numbers = dict(Schedule.objects.current().values_list("pk", "number"))
    assert (numbers[third.pk], numbers[second.pk], numbers[first.pk]) == (0, 1, 3)
    assert [pk for pk, number in numbers.items() if number == 2] not in ([first.pk], [second.pk], [third.pk])
    assert Schedule.objects.get(paused_at__isnull=False).pk == second.pk


def test_a_cron_that_is_taken_out_fires_no_more_keeps_its_occurrences_and_may_come_back(desk: Desk) -> None:
    put(desk, report("0 10 * * *"))
    desk.advance(hours=1)
    schedule = only()
    put(desk, report(revision="2"))
    desk.advance(days=2)
    schedule.refresh_from_db()
    assert (schedule.removed_at is None, schedule.next_at, became()) == (False, None, {"started": 1})
    put(desk, report("0 10 * * *", revision="3"))
    assert (only().pk, only().next_at, Run.objects.count()) == (schedule.pk, at("01-04 10:00"), 1)


def test_a_workflow_that_never_had_a_cron_has_no_timetable(desk: Desk) -> None:
    put(desk, report())
    assert Timetable.objects.count() == 0


def test_another_workflow_and_another_app_have_schedules_of_their_own(desk: Desk) -> None:
    tenancy.create_app("other")
    put(desk, report("0 10 * * *"), report("0 10 * * *", name="billing"))
    put(desk, report("0 11 * * *"), app="other")
    told = Schedule.objects.order_by("pk").values_list("app__name", "workflow", "expression")
    assert list(told) == [("default", "report", "0 10 * * *"), ("default", "billing", "0 10 * * *"), ("other", "report", "0 11 * * *")]


# --- pause, resume, run now


def test_a_paused_schedule_fires_nothing_and_catches_up_with_nothing(desk: Desk) -> None:
    """B83: disabled for three hours, then enabled."""
    put(desk, report(Cron("*/30 * * * *", catch_up="all", overlap="allow")))
    schedule = schedules.pause(only().pk, by=BY, reason="too loud")
    schedules.pause(schedule.pk, by=BY, reason="again")
    desk.advance(hours=3, minutes=10)
    assert (Occurrence.objects.count(), only().next_at, only().paused_reason) == (0, None, "too loud")
    resumed = schedules.resume(schedule.pk, by=BY)
    schedules.resume(schedule.pk, by=BY)
    desk.tick()
    assert (Run.objects.count(), resumed.next_at) == (0, at("01-01 12:30"))
    desk.advance(minutes=20)
    assert fired() == [at("01-01 12:30")]
    told = Trail.objects.order_by("pk").filter(target_kind="schedule").values_list("action", "actor")
    assert list(told) == [("PauseSchedule", "eva"), ("ResumeSchedule", "eva")]


def test_a_paused_schedule_stays_paused_when_its_definition_changes(desk: Desk) -> None:
    put(desk, report("*/30 * * * *"))
    schedules.pause(only().pk, by=BY)
    put(desk, report("*/20 * * * *"))
    desk.advance(hours=1)
    assert (Run.objects.count(), only().next_at) == (0, None)


def test_run_now_starts_what_it_starts_whatever_stands_in_the_way(desk: Desk) -> None:
    put(desk, report(Cron("0 10 * * *", payload=7)))
    schedules.pause(only().pk, by=BY)
    first, second = schedules.run(only().pk, by=BY), schedules.run(only().pk, by=BY)
    assert {first.pk, second.pk} == set(Run.objects.values_list("pk", flat=True))
    assert (first.payload, first.status, first.correlation_id) == ("7", "running", "cron:report:0:2024-01-01T09:00:00Z")
    assert list(Occurrence.objects.values_list("at", "became", "by")) == [(None, "started", "user:eva")] * 2
    told = payloads.from_text(JournalEntry.objects.get(run=first, kind="run.created").data)
    assert (told["schedule"], told["by"]) == (only().pk, "user:eva")
    assert payloads.from_text(Trail.objects.filter(action="RunSchedule").order_by("pk")[0].data)["run"] == str(first.pk)


def test_a_run_by_hand_at_the_very_moment_takes_no_occurrence_away(desk: Desk) -> None:
    put(desk, report(Cron("0 10 * * *", overlap="allow")))
    desk.now = at("01-01 10:00")
    schedules.run(only().pk, by=BY)
    desk.tick()
    assert became() == {"started": 2}


@pytest.mark.parametrize("verb", [schedules.pause, schedules.resume, schedules.run])
def test_a_schedule_that_is_gone_takes_no_verbs(desk: Desk, verb: Callable[..., Any]) -> None:
    with pytest.raises(UnknownSchedule, match="there is no schedule 404"):
        verb(404, by=BY)
    put(desk, report("0 10 * * *"))
    gone = only()
    put(desk, report(revision="2"))
    with pytest.raises(UnknownSchedule):
        verb(gone.pk, by=BY)


def test_a_reason_that_cannot_be_kept_is_refused(desk: Desk) -> None:
    put(desk, report("0 10 * * *"))
    with pytest.raises(InvalidArgument, match="reason"):
        schedules.pause(only().pk, by=BY, reason="x" * 501)
    assert not only().is_paused


def test_a_key_of_another_app_sees_no_schedule_and_one_without_the_right_changes_none(desk: Desk) -> None:
    put(desk, report("0 10 * * *"))
    project, other = Project.objects.get(), tenancy.create_app("other")

    def identity(grant: str, app: Any = None) -> keys.Identity:
        return keys.authenticate(keys.create("k", [grant], by=("system", "test"), project=project, app=app)[1])

    with pytest.raises(UnknownSchedule):
        schedules.pause(only().pk, by=identity("admin", other))
    with pytest.raises(NotPermitted):
        schedules.pause(only().pk, by=identity("write"))
    assert schedules.pause(only().pk, by=identity("workflows.schedules.update")).is_paused


# --- after downtime


def down(desk: Desk, until: datetime) -> None:
    """Nobody runs maintenance until then."""
    desk.now = until
    desk.tick()


@pytest.mark.parametrize(("catch_up", "started", "missed"), [("none", 0, 72), ("last", 1, 71), ("all", 72, 0)])
def test_six_hours_off_follow_the_policy(desk: Desk, catch_up: str, started: int, missed: int) -> None:
    """B82: every five minutes; the server comes back just before the next one."""
    put(desk, report(Cron("*/5 * * * *", catch_up=catch_up, overlap="allow")))
    down(desk, at("01-01 15:04"))
    assert became() == Counter({name: count for name, count in (("started", started), ("missed", missed)) if count})
    assert Run.objects.count() == started
    assert only().next_at == at("01-01 15:05")
    assert set(Occurrence.objects.filter(became="missed").values_list("reason", flat=True)) == ({firing._NOT_CAUGHT_UP[catch_up]} if missed else set())


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("none", []), ("last", [at("01-04 02:30")]), ("all", [at("01-02 02:30"), at("01-03 02:30"), at("01-04 02:30")])],
)
def test_three_days_off_follow_the_policy(desk: Desk, catch_up: str, expected: list[datetime]) -> None:
    """The runs of `all` come one after another, whatever else overlaps are."""
    hand = put(desk, report(Cron("30 2 * * *", catch_up=catch_up)))
    down(desk, at("01-04 09:00"))
    for _ in range(3):
        assert Run.objects.filter(ended_at=None).count() <= 1
        hand.work_off()
        desk.tick()
    assert fired() == expected
    assert became() == Counter({"started": len(expected), "missed": 3 - len(expected)}) - Counter()


def test_what_is_a_little_late_is_not_missed_whatever_the_policy(desk: Desk) -> None:
    """B82: due in the second of a deploy."""
    put(desk, report(Cron("0 10 * * *", catch_up="none")))
    down(desk, at("01-01 10:00") + timedelta(seconds=59))
    assert fired() == [at("01-01 10:00")]


@pytest.mark.parametrize("overlap", ["allow", "skip", "queue", "cancel_running"])
def test_all_are_a_hundred_at_most_the_last_ones(desk: Desk, overlap: str) -> None:
    put(desk, report(Cron("*/5 * * * *", catch_up="all", overlap=overlap)))
    down(desk, at("01-01 19:04"))
    started = {"allow": 100, "skip": 1, "queue": 1, "cancel_running": 1}[overlap]
    rest = {"allow": {}, "skip": {"waiting": 99}, "queue": {"waiting": 99}, "cancel_running": {"skipped": 99}}[overlap]
    assert became() == Counter({"started": started, "missed": 20, **rest})
    assert Occurrence.objects.filter(became="missed").latest("at").at == at("01-01 10:40")


def test_a_year_off_costs_no_more_than_a_day_and_says_where_it_stopped(desk: Desk) -> None:
    put(desk, report(Cron("* * * * *", overlap="allow")))
    down(desk, datetime(2025, 1, 1, 9, 0, 30, tzinfo=UTC))
    assert became() == {"started": 1, "missed": 999}
    first = Occurrence.objects.order_by("at")[0]
    assert (first.at, first.reason.endswith("those before this one have no rows")) == (datetime(2024, 12, 31, 16, 21, tzinfo=UTC), True)
    assert only().next_at == datetime(2025, 1, 1, 9, 1, tzinfo=UTC)


# --- what goes wrong


def test_a_start_that_is_refused_is_written_down_and_the_next_one_comes(desk: Desk) -> None:
    def broken(run: Any) -> str:
        raise RuntimeError("no such order")

    waits = Step("paid", wait=Wait("paid", key=broken))
    flow = Workflow("report", steps=[waits, Step("work", run=body)], cron=Cron("0 10 * * *"))
    registry.add(flow)
    put(desk, flow)
    desk.advance(hours=1)
    row = Occurrence.objects.get()
    assert (row.became, row.run_id, Run.objects.count()) == ("skipped", None, 0)
    assert "the start was refused: key: workflow report, step paid" in row.reason
    assert only().next_at == at("01-02 10:00")


def test_a_bad_schedule_stops_itself_only_and_loses_nothing(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    put(desk, report(Cron("0 10 * * *", catch_up="all"), "0 10 * * *"))
    bad, good = Schedule.objects.order_by("number")
    Schedule.objects.filter(pk=bad.pk).update(timezone="Mars/Olympus")
    with caplog.at_level(logging.ERROR):
        desk.advance(hours=1)
    assert f"maintenance could not deal with schedule {bad.pk}" in caplog.text
    assert (became(good), became(bad)) == ({"started": 1}, {})
    bad.refresh_from_db()
    assert (bad.next_at, bad.due_at) == (at("01-01 10:00"), at("01-01 10:05"))
    Schedule.objects.filter(pk=bad.pk).update(timezone="UTC")
    desk.advance(minutes=5)
    assert became(bad) == {"started": 1}


def test_a_timetable_that_cannot_be_read_stops_itself_only(desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.worker(report("0 10 * * *"), report("0 10 * * *", name="other"))

    def newest(app: Any, name: str) -> Any:
        if name == "report":
            raise ValueError("unreadable")
        return real(app, name)

    real = catalog.newest
    monkeypatch.setattr(catalog, "newest", newest)
    desk.tick()
    assert list(Schedule.objects.values_list("workflow", flat=True)) == ["other"]
    monkeypatch.undo()
    desk.advance(minutes=5)
    assert Schedule.objects.count() == 2


def test_how_late_a_schedule_was_is_in_the_ticks_lateness(desk: Desk) -> None:
    put(desk, report("0 10 * * *"))
    down(desk, at("01-01 10:00") + timedelta(seconds=7))
    tick = maintenance.status()
    assert tick is not None
    assert tick.lateness_ms == 7000


# --- a developer's app


def test_a_developers_app_fires_only_while_a_worker_there_wants_it(desk: Desk) -> None:
    flow = report(Cron("*/30 * * * *", catch_up="all", overlap="allow"))
    put(desk, flow, app="dev-eva")
    desk.advance(hours=1)
    assert (only().next_at, Occurrence.objects.count()) == (None, 0)
    session = workers.register(Registration(worker="w2", app="dev-eva", cron=True)).worker_id
    desk.tick()
    assert (only().next_at, Occurrence.objects.count()) == (at("01-01 10:30"), 0)
    desk.advance(minutes=30)
    assert became() == {"started": 1}
    schedules.pause(only().pk, by=BY)
    workers.leave(session)
    desk.tick()
    schedules.resume(only().pk, by=BY)
    desk.advance(hours=2)
    assert (only().next_at, became()) == (None, {"started": 1})


def test_a_developers_worker_that_is_lost_fires_no_more(desk: Desk) -> None:
    put(desk, report("0 * * * *"), app="dev-eva")
    workers.register(Registration(worker="w2", app="dev-eva", cron=True))
    desk.tick()
    desk.now += timedelta(minutes=11)
    workers.forget_lost(desk.now, 10)
    desk.tick()
    assert only().next_at is None


def test_a_worker_of_another_app_that_wants_crons_changes_nothing(desk: Desk) -> None:
    put(desk, report("0 * * * *"))
    before = only()
    workers.register(Registration(worker="w2", app="default", cron=True))
    assert Timetable.objects.get().due_at is None
    assert only().next_at == before.next_at


# --- what there is to know


def test_the_facts_are_the_next_times_and_what_became_of_the_last(desk: Desk, django_assert_num_queries: Any) -> None:
    put(desk, report("0 10 * * *", "30 10 * * *"))
    desk.advance(hours=1)
    app = only_app()
    with django_assert_num_queries(3):
        first, second = schedules.facts_of(schedules.of_apps([app]))
    assert first.ahead == tuple(at(f"01-0{day} 10:00") for day in range(2, 7))
    assert (first.last and first.last.at, second.last) == (at("01-01 10:00"), None)
    schedules.pause(second.schedule.pk, by=BY)
    assert schedules.facts_of(schedules.of_apps([app]))[1].ahead == ()


def only_app() -> Any:
    """The default app."""
    return Schedule.objects.select_related("app").first().app  # type: ignore[union-attr]  # there is one
