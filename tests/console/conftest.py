"""Operators with and without permissions, and runs in every state to look at, made by the engine's own verbs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from ezgh_workflows_django import Cron, Sleep, Step, Wait, Workflow
from ezgh_workflows_django.models import Run
from tests.engine.conftest import Desk, Hand
from tests.engine.conftest import desk as desk

VIEW = (
    *("view_app", "view_definition", "view_run", "view_step", "view_lease", "view_journalentry", "view_event", "view_worker", "view_trail"),
    *("view_price", "view_usagerecord", "view_spanrecord", "view_schedule"),
)


def staff(name: str, *permissions: str) -> Client:
    """A logged-in client of a user of the admin who has these permissions of the package, and no other."""
    user = get_user_model().objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="ezgh_workflows", codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def viewer(db: None) -> Client:
    """May view everything and do nothing."""
    return staff("viewer", *VIEW)


@pytest.fixture
def root(db: None) -> Client:
    """May do whatever Django lets a superuser do."""
    client = Client()
    client.force_login(get_user_model().objects.create(username="root", is_staff=True, is_superuser=True))
    return client


@pytest.fixture
def operator(db: None) -> Client:
    """May view everything, cancel and retry."""
    return staff("operator", *VIEW, "cancel_run", "retry_run")


def body(value: Any) -> Any:
    """A body that the tests' hands never call."""
    return value


def order_workflow() -> Workflow:
    """One body, one wait, one sleep, one body."""
    return Workflow(
        "order",
        steps=[
            Step("reserve", run=body),
            Step("pay", after=["reserve"], wait=Wait("payment", key_expr="payload.order", timeout=timedelta(days=1))),
            Step("cool", after=["pay"], sleep=Sleep(timedelta(hours=1))),
            Step("ship", after=["cool"], run=body),
        ],
    )


class Shop:
    """The order workflow and one worker that serves it."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.order = order_workflow()
        self.hand: Hand = desk.worker(self.order)

    def start(self, key: str = "A-1", **rest: Any) -> Run:
        """A run."""
        return self.desk.run(self.order.start({"order": key}, **rest))

    def started(self, key: str = "A-1", **rest: Any) -> Run:
        """A run whose first step's body is at work."""
        run = self.start(key, **rest)
        self.hand.take()
        return run

    def waiting(self, key: str = "A-1") -> Run:
        """A run that waits for its payment."""
        run = self.start(key)
        self.hand.work_off()
        return run

    def scheduled(self, *crons: Cron) -> None:
        """A workflow with a schedule, which has fired."""
        self.desk.worker(Workflow("report", steps=[Step("write", run=body)], cron=crons or (Cron("*/10 * * * *", payload={"day": 1}),)), name="nightly")
        self.desk.tick()
        self.desk.advance(minutes=10)

    def failed(self, message: str = "boom", **notes: Any) -> Run:
        """A run whose first step failed for good."""
        run = self.start()
        self.hand.fail(self.hand.take(), "permanent", message, **notes)
        return run


@pytest.fixture
def shop(desk: Desk) -> Shop:
    """A shop with a worker and nothing to do."""
    return Shop(desk)


def page_of(row: Any) -> str:
    """The address of a row's page."""
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def list_of(model: str) -> str:
    """The address of a list."""
    return reverse(f"admin:ezgh_workflows_{model}_changelist")


def text(client: Client, address: str, **choices: Any) -> str:
    """A page that is there, as text."""
    response = client.get(address, choices)
    assert response.status_code == 200, (address, response.status_code)
    return response.content.decode()
