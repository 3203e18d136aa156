"""What an operator reads: how a run stands, which leases expired or were reclaimed, what a search and a filter find."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from ezgh_workflows_django import Concurrency, Retry, Step, Wait, Workflow, emit
from ezgh_workflows_django.engine import events, runs
from ezgh_workflows_django.models import App, Run
from tests.console.conftest import Shop, body, list_of, page_of, text
from tests.engine.conftest import Desk


def standing(client: Client, run: Run) -> list[str]:
    """The sentences that say how a run stands."""
    section = re.search(r'<section class="ezw-standing".*?</section>', text(client, page_of(run)), re.DOTALL)
    assert section is not None
    return re.findall(r"<li>(.*?)</li>", section.group())


def phase(client: Client, run: Run) -> str:
    """The run's phase as its page shows it."""
    shown = re.search(r'<section class="ezw-standing".*?<span[^>]*>(.*?)</span>', text(client, page_of(run)), re.DOTALL)
    assert shown is not None
    return shown.group(1)


def listed(client: Client, model: str, **choices: Any) -> str:
    """The table of a list."""
    table = re.search(r'<table id="result_list">.*?</table>', text(client, list_of(model), **choices), re.DOTALL)
    return "" if table is None else table.group()


def badges(shown: str) -> list[str]:
    """The states a table shows."""
    return re.findall(r'<span class="ezw-badge[^>]*>(.*?)</span>', shown)


def test_a_waiting_run_says_what_for_until_when(shop: Shop, viewer: Client) -> None:
    run = shop.waiting("A-1")
    assert phase(viewer, run) == "waiting"
    assert standing(viewer, run) == ["pay waits for the event payment, key A-1, until 2024-01-02 09:00:00"]


def test_a_sleeping_run_says_until_when(shop: Shop, viewer: Client, django_capture_on_commit_callbacks: Any) -> None:
    run = shop.waiting("A-1")
    with django_capture_on_commit_callbacks(execute=True):
        emit("payment", key="A-1")
    assert (phase(viewer, run), standing(viewer, run)) == ("sleeping", ["cool sleeps until 2024-01-01 10:00:00"])


def test_a_running_run_says_who_has_it(shop: Shop, viewer: Client) -> None:
    run = shop.started()
    assert (phase(viewer, run), standing(viewer, run)) == ("running", ["reserve: attempt 1 is with worker w1"])


def test_a_queued_run_says_since_when_it_waits_for_a_worker(shop: Shop, viewer: Client) -> None:
    run = shop.start()
    assert (phase(viewer, run), standing(viewer, run)) == ("queued", ["reserve waits for a worker since 2024-01-01 09:00:00"])


def test_a_run_for_later_says_when(shop: Shop, viewer: Client) -> None:
    run = shop.start(delay=timedelta(hours=2))
    assert "It starts at 2024-01-01 11:00:00." in standing(viewer, run)


def test_a_run_in_line_says_what_it_waits_for(shop: Shop, viewer: Client, desk: Desk) -> None:
    one: Any = Workflow("one", [Step("work", run=body)], concurrency=Concurrency(1, key_expr="payload"))
    _, second = one.start_many(["a", "a"])
    desk.tick()
    assert standing(viewer, desk.run(second)) == ["It waits for the slot of one, key a."]
    assert phase(viewer, desk.run(second)) == "queued"


def test_a_retrying_run_says_when_it_is_tried_again(desk: Desk, viewer: Client) -> None:
    workflow = Workflow("flaky", steps=[Step("a", run=body, retry=Retry(max_attempts=3, initial=timedelta(minutes=5), jitter=0))])
    hand = desk.worker(workflow)
    run = desk.run(workflow.start({}))
    hand.fail(hand.take())
    assert (phase(viewer, run), standing(viewer, run)) == ("retrying", ["a is tried again at 2024-01-01 09:05:00"])


def test_a_paused_run_says_why(shop: Shop, viewer: Client) -> None:
    run = shop.waiting()
    runs.pause(run.pk, "stocktaking")
    assert (phase(viewer, run), standing(viewer, run)[0]) == ("paused", "It is paused: stocktaking")


def test_a_run_that_needs_attention_is_found_and_says_so(desk: Desk, viewer: Client) -> None:
    workflow = Workflow("careful", steps=[Step("a", run=body, retry=Retry(exhausted="pause"))])
    hand = desk.worker(workflow)
    run = desk.run(workflow.start({}))
    hand.fail(hand.take(), "permanent", "look at me")
    assert "needs attention" in standing(viewer, run)[0]
    assert str(run.pk) in listed(viewer, "run", status="attention")


def test_a_run_that_somebody_paused_and_that_needs_attention_says_both(desk: Desk, viewer: Client) -> None:
    needy: Any = Workflow("needy", [Step("work", run=body, retry=Retry(1, exhausted="pause"))])
    hand = desk.worker(needy)
    run = needy.start(1)
    lease = hand.take()
    run.pause("stocktaking")
    hand.fail(lease)
    said = standing(viewer, run.run)
    assert ("needs attention" in said[0], said[1]) == (True, "It is paused: stocktaking")


def test_a_failed_run_says_why_and_a_succeeded_one_what_it_came_to(desk: Desk, shop: Shop, viewer: Client) -> None:
    assert "permanent: no such card" in text(viewer, page_of(shop.failed("no such card")))
    workflow = Workflow("short", steps=[Step("a", run=body)])
    handle = workflow.start({"came": "to this"})
    desk.worker(workflow, name="w2").work_off()
    assert "to this" in text(viewer, page_of(desk.run(handle)))


def test_what_is_unsaid_about_a_long_run_is_counted(desk: Desk, viewer: Client) -> None:
    workflow = Workflow("wide", steps=[Step(f"w{number}", wait=Wait("e", key_expr="'k'")) for number in range(14)])
    desk.worker(workflow)
    run = desk.run(workflow.start({}))
    assert (len(standing(viewer, run)), standing(viewer, run)[-1]) == (11, "and 4 more")


def test_a_lease_is_shown_as_expired_before_anybody_has_reclaimed_it(shop: Shop, viewer: Client) -> None:
    """B32."""
    run = shop.started()
    shop.desk.now += timedelta(seconds=31)  # no tick
    assert "has expired at 2024-01-01 09:00:30" in standing(viewer, run)[0]
    assert badges(listed(viewer, "lease"))[0] == "expired"
    assert badges(listed(viewer, "step"))[-1] == "expired"
    assert "expired" in badges(text(viewer, page_of(run.steps.get(name="reserve"))))
    assert str(run.pk) in listed(viewer, "lease", status="expired")


def test_a_live_lease_is_not_shown_as_expired(shop: Shop, viewer: Client) -> None:
    run = shop.started()
    shop.desk.now += timedelta(seconds=29)
    assert badges(listed(viewer, "lease"))[0] == "started"
    assert str(run.pk) not in listed(viewer, "lease", status="expired")
    assert str(run.pk) in listed(viewer, "lease", status="live")


def test_an_orphaned_lease_says_that_its_worker_is_silent(shop: Shop, viewer: Client) -> None:
    run = shop.started()
    shop.desk.advance(seconds=31)
    assert "reserve: worker w1 has gone silent in attempt 1" in standing(viewer, run)[0]


def test_reclaimed_leases_are_a_list_of_when_from_whom_and_how_late(shop: Shop, viewer: Client) -> None:
    run = shop.started()
    shop.desk.advance(seconds=31)
    shop.desk.advance(seconds=31)
    other = shop.started("A-2")
    shown = listed(viewer, "lease", status="reclaimed")
    assert "2024-01-01 09:01:02" in shown
    assert '<td class="field-worker_name">w1</td>' in shown
    assert '<td class="field-lateness">32s</td>' in shown
    assert (str(run.pk) in shown, str(other.pk) in shown) == (True, False)


def test_a_late_worker_that_was_refused_is_told_of(shop: Shop, viewer: Client) -> None:
    run = shop.start()
    lease = shop.hand.take()
    shop.desk.advance(seconds=31)
    shop.desk.advance(seconds=31)
    shop.hand.complete(lease)
    assert "Its worker came back late and was refused: fenced." in listed(viewer, "lease", status="reclaimed")
    assert "Its worker came back late and was refused: fenced." in text(viewer, page_of(run))


@pytest.mark.parametrize("status", ["queued", "running", "failed", "cancelled"])
def test_runs_are_found_by_status(shop: Shop, viewer: Client, status: str) -> None:
    found = {"running": shop.waiting("A-1"), "failed": shop.failed(), "queued": shop.start("A-2", delay=60), "cancelled": shop.start("A-3")}
    runs.cancel(found["cancelled"].pk)
    shown = listed(viewer, "run", status=status)
    assert [name for name, run in found.items() if str(run.pk) in shown] == [status]


def test_runs_are_found_by_workflow_and_by_app(desk: Desk, shop: Shop, viewer: Client) -> None:
    order = shop.start()
    other = Workflow("other", steps=[Step("a", run=body)])
    desk.worker(other, app="dev-ann")
    there = desk.run(other.start({}, app="dev-ann"))
    assert (str(order.pk) in listed(viewer, "run", workflow="order"), str(there.pk) in listed(viewer, "run", workflow="order")) == (True, False)
    app = App.objects.get(name="dev-ann")
    assert (str(order.pk) in listed(viewer, "run", app=app.pk), str(there.pk) in listed(viewer, "run", app=app.pk)) == (False, True)


@pytest.mark.parametrize("term", ["team=blue", "team=a=b", "key-1", "corr-1", "k=1"])
def test_runs_are_found_by_label_key_and_correlation(shop: Shop, viewer: Client, term: str) -> None:
    found = {
        "team=blue": shop.start(labels={"team": "blue"}),
        "team=a=b": shop.start(labels={"team": "a=b"}),
        "key-1": shop.start(idempotency_key="key-1"),
        "corr-1": shop.start(correlation_id="corr-1"),
        "k=1": shop.start(idempotency_key="k=1"),
    }
    shown = listed(viewer, "run", q=f" {term} ")
    assert [name for name, run in found.items() if str(run.pk) in shown] == [term]


def test_a_run_is_found_by_its_id_or_by_an_id_as_correlation(shop: Shop, viewer: Client) -> None:
    first, third = shop.start(), shop.start()
    second = shop.start(correlation_id=str(first.pk))
    shown = listed(viewer, "run", q=str(first.pk))
    assert [str(run.pk) in shown for run in (first, second, third)] == [True, True, False]


@pytest.mark.parametrize("model", ["step", "lease", "journalentry"])
def test_rows_of_one_run_are_found_by_link_and_by_search(shop: Shop, viewer: Client, model: str) -> None:
    first, second = shop.started("A-1"), shop.started("A-2")
    for shown in (listed(viewer, model, run=first.pk), listed(viewer, model, q=first.pk)):
        assert (str(first.pk) in shown, str(second.pk) in shown) == (True, False)


@pytest.mark.parametrize("model", ["run", "step", "lease", "journalentry", "event", "worker", "trail", "app", "definition"])
def test_a_search_for_nonsense_finds_nothing(shop: Shop, viewer: Client, model: str) -> None:
    shop.started()
    assert listed(viewer, model, q="no such thing") == ""


@pytest.mark.parametrize("model", ["step", "lease", "journalentry", "event"])
def test_a_run_that_is_no_id_finds_nothing(shop: Shop, viewer: Client, model: str) -> None:
    shop.started()
    assert listed(viewer, model, run="nonsense") == ""


def test_steps_are_found_by_status(shop: Shop, viewer: Client) -> None:
    shop.waiting()
    assert badges(listed(viewer, "step", status="waiting")) == ["waiting"]


def test_events_are_found_by_name_and_signals_by_run(shop: Shop, viewer: Client) -> None:
    run = shop.waiting("A-1")
    emit("payment", key="A-7")
    emit("refund", key="A-8")
    events.signal(run.pk, "hurry")
    shown = listed(viewer, "event", q="payment")
    assert ("A-7" in shown, "A-8" in shown) == (True, False)
    assert "hurry" in listed(viewer, "event", run=run.pk)


def test_leases_are_found_by_worker(shop: Shop, viewer: Client) -> None:
    run = shop.started()
    assert str(run.pk) in listed(viewer, "lease", q="w1")
    assert listed(viewer, "lease", q="w2") == ""


def test_the_trail_is_found_by_action_actor_and_target(shop: Shop, viewer: Client) -> None:
    first, second = shop.start("A-1"), shop.start("A-2")
    runs.cancel(first.pk, actor=("user", "ann"))
    runs.pause(second.pk, actor=("user", "bob"))
    for shown in (listed(viewer, "trail", action="CancelRun"), listed(viewer, "trail", actor="ann"), listed(viewer, "trail", q=first.pk)):
        assert (str(first.pk) in shown, str(second.pk) in shown) == (True, False)


def test_a_worker_is_here_then_silent_then_gone(shop: Shop, viewer: Client) -> None:
    assert badges(listed(viewer, "worker")) == ["here"]
    shop.desk.now += timedelta(minutes=10)
    assert badges(listed(viewer, "worker")) == ["silent"]


def test_a_list_over_its_bound_says_that_there_is_more(shop: Shop, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ezgh_workflows_django.console.paging.MAX_COUNTED", 2)
    [shop.start(f"A-{number}") for number in range(4)]
    assert "the newest 2 of more" in text(viewer, list_of("run"))


def test_the_run_page_shows_the_last_entries_of_a_long_journal(shop: Shop, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ezgh_workflows_django.console.run_page.MAX_ROWS", 2)
    run = shop.waiting()
    runs.pause(run.pk)
    shown = text(viewer, page_of(run))
    assert ("run.paused" in shown, "run.started" in shown) == (True, False)
    assert f"{list_of('journalentry')}?run={run.pk}" in shown


def test_an_input_that_a_neighbour_keeps_is_shown(shop: Shop, viewer: Client) -> None:
    run = shop.started("A-1")
    assert "A-1" in text(viewer, page_of(run.steps.get(name="reserve")))
