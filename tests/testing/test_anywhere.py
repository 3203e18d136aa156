"""The lab tells the same story in every kind of test, on every database."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.db import connections, transaction
from django.test import TestCase, TransactionTestCase

from ezgh_workflows_django.models import Run
from ezgh_workflows_django.testing import Lab
from ezgh_workflows_django.testing.pytest_plugin import workflows_lab  # noqa: F401 - the fixture, where the plugin is not installed

from . import flows, story


class InATestCase(TestCase):
    def test_bodies_work_inside_the_tests_transaction(self) -> None:
        story.tell()

    def test_nothing_of_another_test_is_there(self) -> None:
        story.tell()

    def test_the_callers_connection_and_transaction_outlive_bodies_that_run_within(self) -> None:
        """B77."""
        connection = connections["default"]
        connection.ensure_connection()
        used = connection.connection
        with transaction.atomic():
            get_user_model().objects.create(username="ann")
            story.tell()
            assert connection.connection is used
            assert get_user_model().objects.filter(username="ann").exists()
            transaction.set_rollback(True)
        assert connection.connection is used
        assert not get_user_model().objects.exists()
        assert not Run.objects.exists()


class InATransactionTestCase(TransactionTestCase):
    def test_bodies_work_on_committed_rows(self) -> None:
        story.tell()


@pytest.mark.django_db
def test_in_a_pytest_transaction() -> None:
    story.tell()


@pytest.mark.django_db(transaction=True)
def test_on_a_committed_pytest_database() -> None:
    story.tell()


def test_the_fixture_is_an_open_lab(workflows_lab: Lab) -> None:  # noqa: F811 - pytest's way
    workflows_lab.worker("more", [flows.job])
    run = flows.job.start("x")
    workflows_lab.run_until_idle()
    assert (run.result(), f"{workflows_lab.now:%a %H:%M}") == ("x", "Mon 09:00")
