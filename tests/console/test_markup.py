"""B92: markup in anything a user, a worker or the world outside wrote is text on every page."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from ezgh_workflows_django import Step, Wait, Workflow, emit
from ezgh_workflows_django.engine import runs
from ezgh_workflows_django.models import App, Definition, Event, JournalEntry, Run, SpanRecord, Trail, UsageRecord, Worker
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.protocol.notes import Usage
from tests.console.conftest import body, list_of, page_of, text
from tests.engine.conftest import Desk

IMAGE = "<img src=x onerror=alert(1)>"
END = "</script><script>alert(2)</script>"
EVIL = f"{IMAGE}{END}"


@pytest.fixture
def evil(desk: Desk, django_capture_on_commit_callbacks: Any, settings: Any) -> Run:
    """A run with markup in its payload, labels, key, output, error, traceback, progress, worker's name, event, signal, state, reason, actor."""
    settings.EZGH_WORKFLOWS = {"KEEP_TRACEBACKS": True}
    workflow = Workflow(
        "evil",
        steps=[
            Step("talk", run=body),
            Step("wait", after=["talk"], wait=Wait(EVIL, key_expr="payload.key")),
            Step("hold", after=["talk"], wait=Wait(EVIL, key_expr="payload.other")),
            Step("fall", after=["wait"], run=body),
        ],
    )
    hand = desk.worker(workflow, name=EVIL)
    handle = workflow.start(
        {"key": EVIL, "other": "other", EVIL: [EVIL]}, labels={"label": EVIL[:128]}, idempotency_key=EVIL, correlation_id=EVIL, app="default"
    )
    lease = hand.take()
    hand.beat(lease, progress={EVIL: EVIL})
    hand.complete(lease, {EVIL: EVIL}, state={EVIL: EVIL})
    with django_capture_on_commit_callbacks(execute=True):
        emit(EVIL, key=EVIL, payload={EVIL: EVIL}, event_id=EVIL)
    handle.signal(f"s{EVIL}", {EVIL: EVIL})
    span = {"id": "1" * 16, "name": EVIL, "start": "2024-01-01T09:00:00Z", "end": "2024-01-01T09:00:00Z", "attributes": {EVIL: EVIL}}
    usage = (Usage(unit=IMAGE, amount="1", model=EVIL[:128]),)
    hand.fail(hand.take(), "permanent", EVIL, type=EVIL, traceback=EVIL, usage=usage, spans=({**span, "usage": [{"unit": IMAGE, "amount": "1"}]},))
    second = workflow.start({"key": "k", "other": EVIL}, labels={"label": EVIL[:128]})
    runs.cancel(second.id, EVIL, actor=("user", EVIL))
    third = workflow.start({"key": EVIL, "other": EVIL})
    hand.complete(hand.take())
    runs.pause(third.id, EVIL, actor=("user", EVIL))
    return desk.run(handle)


def raw_in(shown: str) -> list[str]:
    """The markup that got through."""
    return [markup for markup in ("<img src=x", "onerror=alert(1)>", "</script><script>alert") if markup in shown]


def test_markup_is_text_in_every_list(evil: Run, root: Client, subtests: pytest.Subtests) -> None:
    for model in ("app", "definition", "run", "step", "lease", "journalentry", "event", "worker", "trail", "usagerecord", "spanrecord"):
        with subtests.test(model):
            assert raw_in(text(root, list_of(model))) == []


def test_markup_is_text_on_every_page(evil: Run, root: Client, subtests: pytest.Subtests) -> None:
    for model in (App, Definition, Run, StepRow, JournalEntry, Event, Worker, Trail, UsageRecord, SpanRecord):
        with subtests.test(model.__name__):
            shown = [raw_in(text(root, page_of(row))) for row in model.objects.all()]
            assert shown
            assert not any(shown)


def test_the_markup_is_there_as_text(evil: Run, root: Client, subtests: pytest.Subtests) -> None:
    """Else the other tests would look at pages that show nothing of it."""
    for model in (Run, StepRow, JournalEntry, Event, Worker, Trail, UsageRecord, SpanRecord):
        with subtests.test(model.__name__):
            assert "&lt;img src=x" in "".join(text(root, page_of(row)) for row in model.objects.all())


def test_the_markup_is_there_as_text_in_lists(evil: Run, root: Client, subtests: pytest.Subtests) -> None:
    for model in ("run", "lease", "journalentry", "event", "worker", "trail", "usagerecord", "spanrecord"):
        with subtests.test(model):
            assert "&lt;img src=x" in text(root, list_of(model))


def test_markup_in_a_search_and_a_filter_is_text(evil: Run, root: Client) -> None:
    assert raw_in(text(root, list_of("run"), q=EVIL)) == []
    assert raw_in(text(root, list_of("step"), run=EVIL)) == []
    assert raw_in(text(root, list_of("trail"), actor=EVIL)) == []


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_markup_is_text_where_a_verb_asks_and_is_refused(evil: Run, root: Client, verb: str) -> None:
    asked = text(root, f"{page_of(evil).removesuffix('change/')}{verb}/")
    answer = root.post(f"{page_of(evil).removesuffix('change/')}{verb}/", {"reason": EVIL, "from_step": EVIL[:60]}, follow=True)
    assert raw_in(asked) + raw_in(answer.content.decode()) == []
