"""Cancel and retry from the admin: by permission, by POST, with a reason, in the user's name, every refusal told."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.test import Client

from ezgh_workflows_django import Step, Workflow
from ezgh_workflows_django.console import verbs
from ezgh_workflows_django.models import JournalEntry, Run, Trail
from ezgh_workflows_django.protocol import codec
from tests.console.conftest import VIEW, Shop, body, list_of, page_of, staff, text
from tests.engine.conftest import Desk


def verb_of(run: Run, verb: str) -> str:
    """The address of the page that asks before a verb."""
    return f"{page_of(run).removesuffix('change/')}{verb}/"


def select(client: Client, verb: str, *runs: Run, **rest: Any) -> Any:
    """Choose runs in the list and an action for them."""
    return client.post(list_of("run"), {"action": f"{verb}_selected", "_selected_action": [str(run.pk) for run in runs], "index": "0", **rest})


def confirm(client: Client, verb: str, *runs: Run, **rest: Any) -> Any:
    """Answer the page that asks."""
    chosen = [str(run.pk) for run in runs]
    return client.post(list_of("run"), {"action": f"{verb}_selected", "_selected_action": chosen, "confirmed": "yes", **rest})


def told(response: Any) -> list[str]:
    """The messages of a response."""
    return [str(message) for message in get_messages(response.wsgi_request)]


def status(run: Run) -> str:
    """The status in the database."""
    return Run.objects.get(pk=run.pk).status


def test_the_run_page_cancels_with_a_reason_in_the_users_name(shop: Shop, operator: Client) -> None:
    run = shop.waiting()
    response = operator.post(verb_of(run, "cancel"), {"reason": "customer left"})
    assert response.url == page_of(run)  # type: ignore[attr-defined]  # a redirect
    assert told(response) == ["1 run was cancelled."]
    assert Run.objects.get(pk=run.pk).reason == "customer left"
    entry = Trail.objects.get(action="CancelRun")
    assert (entry.actor_kind, entry.actor, entry.target, codec.loads(entry.data)) == ("user", "operator", str(run.pk), {"reason": "customer left"})
    assert codec.loads(JournalEntry.objects.get(run=run, kind="run.cancel_requested").data)["by"] == "operator"


def test_the_history_of_the_run_page_shows_who_did_it(shop: Shop, operator: Client) -> None:
    run = shop.waiting()
    operator.post(verb_of(run, "cancel"), {"reason": ""})
    assert LogEntry.objects.get(object_id=str(run.pk)).get_change_message() == "Cancel"
    assert "Cancel" in text(operator, f"{page_of(run).removesuffix('change/')}history/")


def test_the_run_page_retries_a_failed_run(shop: Shop, operator: Client) -> None:
    run = shop.failed()
    response = operator.post(verb_of(run, "retry"), {"from_step": ""})
    assert told(response) == ["1 run was begun again."]
    assert status(run) == "running"
    assert Trail.objects.get(action="RetryRun").actor == "operator"


def test_a_run_is_retried_from_a_chosen_step(shop: Shop, operator: Client) -> None:
    run = shop.waiting()
    operator.post(verb_of(run, "cancel"), {})
    operator.post(verb_of(run, "retry"), {"from_step": "reserve"})
    assert shop.hand.take().step == "reserve"


def test_an_unknown_step_is_refused_in_the_engines_words(shop: Shop, operator: Client) -> None:
    run = shop.failed()
    response = operator.post(verb_of(run, "retry"), {"from_step": "nope"})
    assert told(response) == [f'run {run.pk} has no step "nope"; its steps are reserve, pay, cool, ship']
    assert status(run) == "failed"


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_asking_does_nothing(shop: Shop, operator: Client, verb: str) -> None:
    run = shop.waiting()
    before = Run.objects.values().get(pk=run.pk)
    assert "Back, and do nothing" in text(operator, verb_of(run, verb))
    assert Run.objects.values().get(pk=run.pk) == before


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_a_post_without_the_csrf_token_is_refused(shop: Shop, operator: Client, verb: str) -> None:
    run = shop.waiting()
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    assert strict.post(verb_of(run, verb), {}).status_code == 403
    assert status(run) == "running"


@pytest.mark.parametrize(("verb", "others"), [("cancel", "retry_run"), ("retry", "cancel_run")])
@pytest.mark.parametrize("method", ["get", "post"])
def test_a_verb_takes_its_own_permission(shop: Shop, verb: str, others: str, method: str) -> None:
    run = shop.failed()
    stranger = staff("stranger", *VIEW, others)
    assert getattr(stranger, method)(verb_of(run, verb)).status_code == 403
    assert status(run) == "failed"


def test_a_verb_takes_the_view_permission_too(shop: Shop) -> None:
    run = shop.waiting()
    assert staff("blind", "cancel_run").post(verb_of(run, "cancel"), {}).status_code == 403
    assert status(run) == "running"


def test_an_unknown_run_is_not_found(operator: Client) -> None:
    assert operator.post("/admin/ezgh_workflows/run/0190a0c0-0000-7000-8000-000000000000/cancel/").status_code == 404


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_an_action_takes_its_permission(shop: Shop, viewer: Client, verb: str) -> None:
    run = shop.failed()
    assert f"{verb}_selected" not in text(viewer, list_of("run"))
    confirm(viewer, verb, run)
    assert status(run) == "failed"


def test_an_action_asks_before_it_does_anything(shop: Shop, operator: Client) -> None:
    run = shop.waiting()
    response = select(operator, "cancel", run)
    assert "Cancel these runs?" in response.content.decode()
    assert status(run) == "running"


def test_an_action_cancels_what_it_can_and_tells_each_refusal(shop: Shop, operator: Client) -> None:
    failed, first, second = shop.failed(), shop.waiting("A-2"), shop.waiting("A-3")
    response = confirm(operator, "cancel", failed, first, second, reason="sale is off")
    assert told(response) == ["2 runs were cancelled.", f"run {failed.pk} is failed: it is too late to cancel it"]
    assert [status(run) for run in (failed, first, second)] == ["failed", "cancelled", "cancelled"]
    assert Trail.objects.filter(action="CancelRun").count() == 2


def test_an_action_retries_what_it_can_and_tells_each_refusal(shop: Shop, operator: Client) -> None:
    failed, waiting = shop.failed(), shop.waiting("A-2")
    response = confirm(operator, "retry", failed, waiting)
    assert told(response) == ["1 run was begun again.", f"run {waiting.pk} is running: retry is for a run that is over or needs attention"]


def test_a_confirmed_action_goes_by_what_was_shown_not_by_the_filters(shop: Shop, operator: Client) -> None:
    run = shop.failed()
    address = f"{list_of('run')}?status=running"
    response = operator.post(address, {"action": "cancel_selected", "_selected_action": [str(run.pk)], "confirmed": "yes"})
    assert told(response) == [f"run {run.pk} is failed: it is too late to cancel it"]


def test_an_answer_that_is_too_long_is_asked_for_again(shop: Shop, operator: Client) -> None:
    run = shop.waiting()
    response = confirm(operator, "cancel", run, reason="x" * 501)
    assert "at most 500 characters" in response.content.decode()
    assert status(run) == "running"


def test_too_many_runs_are_refused_as_a_whole(shop: Shop, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ezgh_workflows_django.console.runs.MAX_RUNS", 1)
    first, second = shop.waiting(), shop.waiting("A-2")
    response = select(operator, "cancel", first, second)
    assert told(response)[0].startswith("At most")
    assert [status(first), status(second)] == ["running", "running"]


def test_many_refusals_are_told_in_short() -> None:
    shown = verbs.first_of(tuple(f"refusal {number}" for number in range(15)))
    assert (len(shown), shown[-1]) == (verbs.MAX_TOLD + 1, "The same goes for 5 more.")


def test_cancelling_a_failing_run_says_how_it_ended(desk: Desk, operator: Client) -> None:
    workflow = Workflow("undoing", steps=[Step("a", run=body)], on_failure=body)
    hand = desk.worker(workflow)
    handle = workflow.start({})
    hand.fail(hand.take(), "permanent")
    run = desk.run(handle)
    response = operator.post(verb_of(run, "cancel"), {})
    assert f"Run {run.pk} was failing already: its compensation was stopped and it has ended as failed." in told(response)


def test_the_run_page_offers_the_verbs_that_its_state_allows(shop: Shop, operator: Client) -> None:
    waiting, failed = shop.waiting(), shop.failed()
    assert (verb_of(waiting, "cancel") in text(operator, page_of(waiting)), verb_of(waiting, "retry") in text(operator, page_of(waiting))) == (True, False)
    assert (verb_of(failed, "cancel") in text(operator, page_of(failed)), verb_of(failed, "retry") in text(operator, page_of(failed))) == (False, True)


def test_the_run_page_offers_no_verb_to_a_viewer(shop: Shop, viewer: Client) -> None:
    run = shop.waiting()
    assert verb_of(run, "cancel") not in text(viewer, page_of(run))
