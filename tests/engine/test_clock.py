"""Which clock decides: the database's, wherever there is one; a worker's and a server's own never do (case B21)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest
from django.db import connection

from ezgh_workflows_django import Step, Workflow
from ezgh_workflows_django.engine import clock, maintenance, tenancy
from ezgh_workflows_django.models import Lease
from tests.engine.conftest import Hand


def one() -> Workflow:
    """One step."""
    return Workflow("one", steps=[Step("only", run=lambda value: value)])


@pytest.mark.parametrize("skew", [timedelta(hours=1), timedelta(hours=-1), timedelta(days=400)], ids=str)
def test_a_server_whose_clock_is_off_reclaims_no_live_lease(db: None, skew: timedelta) -> None:
    workflow = one()
    hand = Hand([workflow], "w1")
    workflow.start()
    lease = hand.take()
    hour_off = mock.Mock(wraps=datetime, now=lambda tz=None: datetime.now(tz) + skew)
    with mock.patch.object(clock, "datetime", hour_off), mock.patch("django.utils.timezone.now", lambda: datetime.now(UTC) + skew):  # noqa: PT008 - it goes on
        maintenance.tick()
        maintenance.tick()
        assert hand.beat(lease).refused is None
    assert Lease.objects.get(pk=lease.id).status == "started"


@pytest.mark.parametrize("skew", [timedelta(hours=1), timedelta(hours=-1)], ids=str)
def test_the_moment_is_the_databases_own_and_on_sqlite_the_hosts(db: None, skew: timedelta) -> None:
    hour_off = mock.Mock(wraps=datetime, now=lambda tz=None: datetime.now(tz) + skew)
    with mock.patch.object(clock, "datetime", hour_off):
        _, now = tenancy.app_now(None)
    expected = skew if connection.vendor == "sqlite" else timedelta(0)
    assert abs(now - datetime.now(UTC) - expected) < timedelta(minutes=5)


def test_a_moment_is_taken_after_a_wait_for_a_lock_not_before(db: None) -> None:
    _, first = tenancy.app_now(None)
    _, second = tenancy.app_now(None)
    assert first < second or connection.vendor == "sqlite"
    assert second.tzinfo is not None


def test_the_database_and_this_host_agree_on_utc(db: None) -> None:
    """A session in another time zone, or a naive moment, would show as whole hours."""
    _, now = tenancy.app_now(None)
    assert abs(datetime.now(UTC) - now) < timedelta(minutes=5)
