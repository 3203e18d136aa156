"""The newest stored definition of a name is the last one of its newest revision: an old revision that is edited while it drains stays old."""

from __future__ import annotations

from typing import Any

import pytest

from ezgh_workflows_django import Cron, RateLimit, start_run
from ezgh_workflows_django.definitions.registry import registry
from ezgh_workflows_django.engine import announcing, catalog, limits, provision, tenancy
from ezgh_workflows_django.models import App, Definition, Run, Schedule
from tests.engine.conftest import Desk
from tests.engine.graphs import job

OLD = job()
NEW = job(revision="2")
EDITED = job(timeout=7)


@pytest.fixture
def app(desk: Desk) -> App:
    return tenancy.app_now(None)[0]


def version(run: Any) -> str:
    return Run.objects.get(pk=run.id).version


@pytest.fixture
def edited(desk: Desk, app: App) -> App:
    """The new revision is there, and then the old one is edited."""
    desk.worker(OLD, NEW)
    desk.worker(EDITED, name="w2")
    return app


def test_a_start_by_name_is_of_the_newest_revision(edited: App) -> None:
    assert version(start_run("job", 1)) == NEW.version
    assert catalog.newest(edited, "job").version == NEW.version


def test_a_start_by_name_is_of_the_highest_revision_that_the_code_has(desk: Desk) -> None:
    """Where the old one is written below the new one."""
    registry.add(NEW)
    registry.add(OLD)
    assert version(start_run("job", 1)) == NEW.version


def test_a_start_over_http_is_of_the_newest_revision_that_is_announced(edited: App) -> None:
    assert announcing.newest(edited, "job").version == NEW.version
    assert [each.version for each in announcing.announced(edited)] == [NEW.version, EDITED.version, OLD.version]


def test_of_both_that_migrate_stores_the_higher_one_is_the_newest(desk: Desk, app: App) -> None:
    registry.add(NEW)
    registry.add(OLD)
    provision.provision("default")
    assert catalog.newest(app, "job").version == NEW.version


def test_limits_and_schedules_are_those_of_the_newest_revision(desk: Desk, app: App) -> None:
    old: Any = {"rate": RateLimit(1, per=60), "cron": Cron("0 10 * * *")}
    new: Any = {"rate": RateLimit(2, per=60), "cron": Cron("0 11 * * *"), "revision": "2"}
    desk.worker(job(**old), job(**new))
    desk.worker(job(**old, timeout=7), name="w2")
    desk.tick()
    assert limits.newest(app.pk, "job").turns == 2
    assert Schedule.objects.get().expression == "0 11 * * *"
    assert Definition.objects.filter(workflow="job").count() == 3
