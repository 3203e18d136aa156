"""The app of a project's own definitions is the one that DEFAULT_APP names: what `migrate` does there, and where it was before.

A flush empties the tables and provisions again: what a first `migrate` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import override_settings

from ezgh_workflows_django import Cron, Step, Workflow
from ezgh_workflows_django.conf import DICT
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.engine import home, schedules
from ezgh_workflows_django.engine.provision import provision
from ezgh_workflows_django.engine.trail import SYSTEM
from ezgh_workflows_django.errors import InvalidArgument
from ezgh_workflows_django.management.startup import startup
from ezgh_workflows_django.models import App, Definition, Organization, Project, Run, Schedule, Timetable, Trail
from ezgh_workflows_django.worker import Worker
from tests.engine.conftest import Desk
from tests.engine.graphs import body, job

SHOP = override_settings(**{DICT: {"DEFAULT_APP": "shop"}})
DEVELOPER = override_settings(**{DICT: {"DEFAULT_APP": "dev-ann"}})

report = Workflow("report", steps=[Step("write", run=body)], cron=Cron("*/10 * * * *", overlap="allow"))


@pytest.fixture(autouse=True)
def held(desk: Desk) -> None:
    """This project's code: one workflow with a cron. The desk puts the registry back."""
    registry.add(report)


def first_migrate() -> None:
    """Empty tables, and what `migrate` makes in them."""
    call_command("flush", interactive=False, verbosity=0)


def firing() -> dict[str, bool]:
    """The apps that have the schedule, and whether it fires there."""
    return {each.app.name: each.next_at is not None for each in Schedule.objects.select_related("app")}


def fired(desk: Desk) -> list[str]:
    """The apps in which the schedule started a run within the next ten minutes."""
    since = desk.now
    desk.advance(minutes=10)
    return sorted(Run.objects.filter(created_at__gt=since).values_list("app__name", flat=True))


# --- before the first migrate


@pytest.mark.django_db(transaction=True)
def test_the_first_migrate_makes_the_app_that_is_named_and_stores_there(desk: Desk) -> None:
    with SHOP:
        first_migrate()
        assert {(app.project.slug, app.name, app.queue) for app in App.objects.select_related("project")} == {
            ("default", "default", "default"),
            ("default", "shop", "default"),
        }
        assert set(Definition.objects.values_list("app__name", "workflow")) == {("shop", "report")}
        assert firing() == {"shop": True}
        assert report.start().run.app.name == "shop"
        assert fired(desk) == ["shop"]


@pytest.mark.django_db(transaction=True)
def test_one_that_names_the_default_makes_no_other(desk: Desk) -> None:
    first_migrate()
    assert (App.objects.get().name, firing(), Trail.objects.count()) == ("default", {"default": True}, 0)


@pytest.mark.django_db
@override_settings(**{DICT: {"DEFAULT_APP": "a/b"}})
def test_a_name_that_no_app_can_have_is_refused(desk: Desk) -> None:
    with pytest.raises(InvalidArgument, match=r"^DEFAULT_APP: 1 to 63 letters"):
        provision("default")
    assert App.objects.get().name == "default"


@pytest.mark.django_db
@SHOP
def test_an_app_of_that_name_in_a_tenants_project_is_not_meant(desk: Desk) -> None:
    theirs = Project.objects.create(organization=Organization.objects.get(), slug="theirs", name="theirs", created_at=desk.now)
    App.objects.create(project=theirs, name="shop", created_at=desk.now)
    provision("default")
    assert set(App.objects.values_list("project__slug", "name")) == {("default", "default"), ("default", "shop"), ("theirs", "shop")}
    assert report.start().run.app.project.slug == "default"


# --- after it


@pytest.fixture
def moved(desk: Desk) -> Iterator[None]:
    """The schedule fired in `default`; then the setting became `shop`, and `migrate` ran."""
    provision("default")
    assert fired(desk) == ["default"]
    with SHOP:
        provision("default")
        yield


@pytest.mark.django_db
def test_a_changed_setting_takes_the_schedules_along(desk: Desk, moved: None) -> None:
    assert firing() == {"default": False, "shop": True}
    assert fired(desk) == ["shop"]


@pytest.mark.django_db
def test_what_stays_behind_is_paused_and_says_why(desk: Desk, moved: None) -> None:
    left = Schedule.objects.get(app__name="default")
    assert left.paused_reason == home.REASON
    told = StringIO()
    call_command("workflows_schedules", "list", "--app", "default", stdout=told)
    assert home.REASON in told.getvalue()
    assert [(each.action, each.actor, each.target, each.data) for each in Trail.objects.order_by("pk")] == [
        ("PauseSchedule", "engine", str(left.pk), f'{{"app":"default","workflow":"report","cron":"*/10 * * * *","reason":"{home.REASON}"}}'),
        ("ChangeDefaultApp", "engine", "shop", '{"was":"default"}'),
    ]


@pytest.mark.django_db
def test_what_somebody_resumes_there_goes_on_through_later_migrates(desk: Desk, moved: None) -> None:
    schedules.resume(Schedule.objects.get(app__name="default").pk, by=SYSTEM)
    provision("default")
    assert firing() == {"default": True, "shop": True}


@pytest.mark.django_db
def test_a_setting_that_is_changed_back_brings_them_back(desk: Desk, moved: None) -> None:
    with override_settings(**{DICT: {}}):
        provision("default")
        assert firing() == {"default": True, "shop": False}
        assert fired(desk) == ["default"]
    provision("default")
    assert firing() == {"default": False, "shop": True}


@pytest.mark.django_db
def test_a_pause_that_somebody_made_is_never_ended_by_it(desk: Desk) -> None:
    provision("default")
    schedules.pause(Schedule.objects.get().pk, by=SYSTEM, reason="the report server is down")
    with SHOP:
        provision("default")
    provision("default")
    assert firing() == {"default": False, "shop": False}
    assert Schedule.objects.get(app__name="default").paused_reason == "the report server is down"


@pytest.mark.django_db
def test_what_this_project_does_not_hold_is_left_alone_there(desk: Desk) -> None:
    """What a worker elsewhere stored in that app is its own affair."""
    theirs = Workflow("theirs", steps=job().steps, cron=Cron("*/10 * * * *"))
    desk.worker(theirs)
    desk.tick()
    with SHOP:
        provision("default")
    assert firing() == {"default": True, "shop": True}
    assert Schedule.objects.get(app__name="default").workflow == "theirs"


@pytest.mark.django_db
def test_runs_in_flight_stay_where_they_are(desk: Desk) -> None:
    run = report.start()
    with SHOP:
        provision("default")
        assert run.run.app.name == "default"


@pytest.mark.django_db
def test_a_developers_own_app_takes_nothing_along(desk: Desk) -> None:
    """Who migrates a database that others share, with an app of his own in his settings, stops nobody's schedules."""
    provision("default")
    with DEVELOPER:
        provision("default")
        assert firing() == {"default": True, "dev-ann": False}
        assert App.objects.get(name="dev-ann").queue == "dev-ann"
        assert Trail.objects.count() == 0
    with SHOP:
        provision("default")
    assert firing() == {"default": False, "dev-ann": False, "shop": True}


@pytest.mark.django_db
def test_until_migrate_has_run_a_worker_says_what_is_missing(desk: Desk) -> None:
    provision("default")
    with SHOP:
        desk.worker(report, app="dev-x")
        App.objects.create(project=Project.objects.get(), name="shop", created_at=desk.now)
        worker = Worker(app="shop", workflows=[report], transport=None, base_url="http://x", api_key="k")
        [told] = startup([worker], tends=True).missing
        assert told == '`migrate`: DEFAULT_APP is "shop" now, and this project\'s schedules still fire in the app "default" as well'
        provision("default")
        assert startup([worker], tends=True).missing == ()


@pytest.mark.django_db
def test_provisioning_again_changes_nothing(desk: Desk, moved: None) -> None:
    before = (list(Schedule.objects.values()), list(Timetable.objects.values()), Trail.objects.count())
    provision("default")
    assert (list(Schedule.objects.values()), list(Timetable.objects.values()), Trail.objects.count()) == before
