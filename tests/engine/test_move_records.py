"""Every move is logged, once, after its commit, from one place, with facts and without what people put in."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable
from io import StringIO
from typing import Any, Final

import pytest
from django.core.management.base import OutputWrapper
from django.db import transaction

from ezgh_workflows_django import Retry, Step, Wait, Workflow
from ezgh_workflows_django.engine import moves
from ezgh_workflows_django.management.printing import Printer, moves_printed
from ezgh_workflows_django.models import JournalEntry
from tests.conftest import ROOT
from tests.engine.conftest import Desk
from tests.engine.graphs import body, chain, job, undone

SECRET: Final = "s3cr3t"
LOGGER: Final = "ezgh_workflows.moves"


def story(desk: Desk) -> Any:
    """A run with a failure, a lost worker, a refusal, a signal, a pause and a cancel, all of them with something that is to stay private."""
    steps = [Step("work", run=body, retry=Retry(max_attempts=3, initial=10, factor=1, jitter=0)), Step("paid", wait=Wait("paid"), after=["work"])]
    workflow = Workflow("order", steps=steps)
    hand = desk.worker(workflow)
    run: Any = workflow.start({"card": SECRET}, labels={"card": SECRET})
    hand.fail(hand.take(), "declined", SECRET)
    desk.advance(12)
    lost = hand.take()
    hand.beat(lost, {"card": SECRET})
    desk.advance(31)
    desk.advance(31)
    hand.complete(lost, SECRET)
    hand.complete(hand.take(), SECRET, state={"card": SECRET})
    run.signal("other", SECRET)
    run.pause(SECRET)
    run.resume()
    run.cancel(SECRET)
    return run


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The moves that were logged, in order."""
    return [moves.facts_of(record)["move"] for record in caplog.records if record.name == LOGGER]


def test_every_move_is_logged_once_and_in_the_journals_order(transactional_db: None, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, LOGGER):
        run = story(desk)
    logged = told(caplog)
    assert [kind for kind in logged if kind != moves.OFFERED] == desk.kinds(run)
    assert Counter(logged)[moves.OFFERED] == 3
    assert {"run.created", "step.started", "step.retry_scheduled", "lease.reclaimed", "lease.refused", "step.succeeded", "run.cancelled"} <= set(logged)
    rows = JournalEntry.objects.filter(run=run.id).order_by("seq").values_list("seq", "step", "attempt", "worker")
    facts = [moves.facts_of(record) for record in caplog.records if record.name == LOGGER]
    assert [(each["seq"], each.get("step", ""), each.get("attempt"), each.get("worker", "")) for each in facts if each["move"] != moves.OFFERED] == list(rows)
    assert {(each["run_id"], each["workflow"]) for each in facts} == {(run.id, "order")}
    assert {each["trace_id"] for each in facts if each["move"] != moves.OFFERED} == {desk.run(run).trace_id}
    assert [each["failure_class"] for each in facts if each["move"] == "step.retry_scheduled"] == ["declined"]
    assert [each["refusal"] for each in facts if each["move"] == "lease.refused"] == ["fenced"]


def test_nothing_that_people_put_in_is_logged(transactional_db: None, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, LOGGER):
        run = story(desk)
    texts = [f"{record.getMessage()} {vars(record)}" for record in caplog.records if record.name == LOGGER]
    assert [text for text in texts if SECRET in text] == []
    assert SECRET in "".join(JournalEntry.objects.filter(run=run.id).values_list("data", flat=True))


def test_what_is_rolled_back_is_not_logged_and_what_is_open_is_not_yet(transactional_db: None, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    hand = desk.worker(job())
    with caplog.at_level(logging.DEBUG, LOGGER):
        undone(lambda: job().start(1))
        undone(hand.claim)
        assert told(caplog) == []
        with transaction.atomic():
            job().start(1)
            assert told(caplog) == []
        assert told(caplog) == ["run.created", "run.started"]


def test_by_default_runs_and_troubles_are_info_and_the_rest_is_debug(transactional_db: None, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    workflow = chain("a", "b")
    hand = desk.worker(workflow)
    with caplog.at_level(logging.INFO, LOGGER):
        workflow.start(1)
        hand.complete(hand.take())
        hand.fail(hand.take(), "permanent")
    assert told(caplog) == ["run.created", "run.started", "step.failed", "run.failed"]


def test_a_move_nobody_wants_to_know_of_is_not_even_made(transactional_db: None, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Callable[..., Any]] = []
    monkeypatch.setattr(moves, "of_journal", made.append)
    monkeypatch.setattr(moves, "of_offer", made.append)
    hand = desk.worker(job())
    job().start(1)
    hand.complete(hand.take())
    assert made == []


def test_a_printer_prints_moves_as_its_own_events_for_as_long_as_it_is_told_to(transactional_db: None, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    out = StringIO()
    with caplog.at_level(logging.INFO, LOGGER), moves_printed(Printer(OutputWrapper(out), OutputWrapper(out), as_json=True)):
        run = job().start(1)
    job().start(1)
    head = f'{{"at": "2024-01-01T09:00:00+00:00", "event": "run.created", "run_id": "{run.id}", "workflow": "job", '
    assert out.getvalue().startswith(head)
    assert len(out.getvalue().splitlines()) == 2


def test_the_page_of_docs_has_each_field_and_no_other() -> None:
    text = (ROOT / "docs" / "logging.md").read_text()
    assert tuple(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == moves.NAMES
