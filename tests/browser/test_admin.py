"""The admin in Chromium: an operator finds what is stuck, reads why, presses the button. No script of ours, none of anybody else's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from ezgh_workflows_django import Retry, Sleep, Step, Wait, Workflow, emit
from ezgh_workflows_django.models import Run
from ezgh_workflows_django.protocol.messages import Lease
from tests.browser.conftest import Screen
from tests.engine.conftest import Desk, Hand

pytestmark = pytest.mark.browser

IMAGE = "<img src=x onerror=alert(1)>"
END = "</script><script>alert(2)</script>"


def body(value: Any) -> Any:
    """A body that the test's hands never call."""
    return value


def take(hand: Hand, run: Any) -> Lease:
    """One lease of this run, started."""
    [lease] = hand.claim(1, run=run.id)
    hand.start(lease)
    return lease


@pytest.fixture
def shop(desk: Desk, screen: Screen) -> dict[str, Run]:
    """Runs in the states an operator looks for, and an operator who has logged in."""
    patient = Retry(max_attempts=3, initial=timedelta(minutes=2), jitter=0)
    order = Workflow(
        "order",
        steps=[
            Step("reserve", run=body, retry=patient),
            Step("price", run=body, retry=patient),
            Step("pay", after=["reserve"], wait=Wait("payment.succeeded", key_expr="payload.order", timeout=timedelta(days=1))),
            Step("cool", after=["pay"], sleep=Sleep(timedelta(hours=1))),
            Step("ship", after=["cool", "price"], run=body),
        ],
    )
    hand, lost = desk.worker(order, name="mill-1"), desk.worker(order, name="mill-2")
    reclaimed = order.start({"order": "A-0", "card": {"token": "tok_secret", "last4": "4242"}}, labels={"customer": "acme", "channel": "web"})
    lost.take()
    desk.advance(seconds=31)
    desk.advance(seconds=31)
    hand.work_off()
    waiting = order.start({"order": "A-1"}, labels={"customer": "globex"}, correlation_id="basket-77")
    hand.work_off()
    failed = order.start({"order": "A-2"}, labels={"customer": "initech"})
    hand.fail(take(hand, failed), "permanent", f"card refused {IMAGE}{END}", type="shop.CardRefused")
    retrying = order.start({"order": "A-3"})
    hand.fail(take(hand, retrying), "retryable", "bank is closed")
    expired = order.start({"order": f"{IMAGE}{END}"}, labels={"customer": IMAGE})
    take(desk.worker(order, name=f"mill{IMAGE}"), expired)
    emit("refund", key="A-9", payload={"amount": 12, "note": IMAGE})
    desk.now += timedelta(seconds=35)
    get_user_model().objects.create_superuser("ann", password="ann")
    screen.open("/admin/")
    screen.page.fill("#id_username", "ann")
    screen.page.fill("#id_password", "ann")
    screen.page.click("input[type=submit]")
    handles = {"reclaimed": reclaimed, "waiting": waiting, "failed": failed, "retrying": retrying, "expired": expired}
    return {name: desk.run(handle) for name, handle in handles.items()}


def test_every_list_is_quiet_under_a_strict_policy(shop: dict[str, Run], screen: Screen) -> None:
    lists = ("app", "definition", "run", "step", "lease", "journalentry", "event", "worker", "trail")
    assert screen.tour({f"list-{model}": f"/admin/ezgh_workflows/{model}/" for model in lists}) == []


def test_every_run_page_is_quiet_under_a_strict_policy(shop: dict[str, Run], screen: Screen) -> None:
    assert screen.tour({f"run-{name}": f"/admin/ezgh_workflows/run/{run.pk}/change/" for name, run in shop.items()}) == []


def test_markup_is_read_as_text(shop: dict[str, Run], screen: Screen) -> None:
    screen.open(f"/admin/ezgh_workflows/run/{shop['failed'].pk}/change/")
    assert f"card refused {IMAGE}{END}" in screen.text()


def test_a_secret_is_masked(shop: dict[str, Run], screen: Screen) -> None:
    screen.open(f"/admin/ezgh_workflows/run/{shop['reclaimed'].pk}/change/")
    assert ("tok_secret" in screen.text(), "4242" in screen.text()) == (False, True)


def test_an_operator_cancels_a_waiting_run(shop: dict[str, Run], screen: Screen) -> None:
    run = shop["waiting"]
    screen.open("/admin/ezgh_workflows/run/")
    screen.page.fill("#searchbar", "basket-77")
    screen.page.press("#searchbar", "Enter")
    screen.page.click("#result_list tbody .field-short_id a")
    screen.shows("pay waits for the event payment.succeeded, key A-1, until")
    screen.page.click(".object-tools >> text=Cancel")
    screen.shows("Cancel these runs?")
    screen.picture("ask-cancel")
    screen.page.fill("#id_reason", "customer left")
    screen.page.click("input[type=submit]")
    screen.shows("1 run was cancelled.")
    screen.picture("run-cancelled")
    assert (Run.objects.get(pk=run.pk).status, screen.complaints) == ("cancelled", [])


def test_an_operator_retries_chosen_runs(shop: dict[str, Run], screen: Screen) -> None:
    screen.open("/admin/ezgh_workflows/run/?status=failed")
    screen.page.check("#action-toggle")
    screen.page.select_option("select[name=action]", "retry_selected")
    screen.page.click("button[name=index]")
    screen.shows("Begin these runs again?")
    screen.picture("ask-retry")
    screen.page.click("input[type=submit]")
    screen.shows("1 run was begun again.")
    assert (Run.objects.get(pk=shop["failed"].pk).status, screen.complaints) == ("running", [])


def test_reclaimed_leases_are_one_click_away(shop: dict[str, Run], screen: Screen) -> None:
    screen.open("/admin/ezgh_workflows/lease/")
    screen.page.click("#changelist-filter >> text=reclaimed")
    screen.shows("Clear all filters")
    screen.picture("list-lease-reclaimed")
    assert "mill-2" in screen.page.inner_text("#result_list")
    assert screen.page.locator("#result_list tbody tr").count() == 1


def test_a_run_page_fits_a_phone(shop: dict[str, Run], screen: Screen) -> None:
    screen.page.set_viewport_size({"width": 390, "height": 800})
    screen.open(f"/admin/ezgh_workflows/run/{shop['failed'].pk}/change/")
    screen.picture("phone-run")
    assert screen.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
