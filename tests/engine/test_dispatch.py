"""Django's signals about runs: what each carries, and that it comes after the commit and never of what was rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from django.db import connection, transaction
from django.dispatch import Signal

from ezgh_workflows_django import Retry, Step, Workflow, dispatch
from ezgh_workflows_django.models import Run
from tests.engine.conftest import Desk
from tests.engine.graphs import body, job

pytestmark = pytest.mark.django_db(transaction=True)

Heard = list[dict[str, Any]]
SIGNALS = ("starting", "run_started", "run_finished", "step_failed", "lease_reclaimed")


class Ears:
    """Hears every signal, in order, each with its name and whether a transaction was open when it came."""

    def __init__(self) -> None:
        self.heard: Heard = []
        self._receivers = {name: self._receiver(name) for name in SIGNALS}
        for name, receiver in self._receivers.items():
            cast(Signal, getattr(dispatch, name)).connect(receiver)

    def of(self, name: str) -> Heard:
        """What came under that name."""
        return [each["facts"] for each in self.heard if each["name"] == name]

    def _receiver(self, name: str) -> Any:
        def hear(signal: Signal, sender: Any, **facts: Any) -> None:
            assert sender is Run
            self.heard.append({"name": name, "in_transaction": connection.in_atomic_block, "facts": facts})

        return hear

    def close(self) -> None:
        """Hear no more."""
        for name, receiver in self._receivers.items():
            cast(Signal, getattr(dispatch, name)).disconnect(receiver)


@pytest.fixture
def ears() -> Iterator[Ears]:
    """Ears for one test."""
    made = Ears()
    yield made
    made.close()


def test_a_run_is_told_when_it_is_admitted(desk: Desk, ears: Ears) -> None:
    run: Any = job().start(delay=60)
    assert [each["name"] for each in ears.heard] == ["starting"]
    desk.advance(60)
    assert ears.of("run_started") == [{"run_id": run.id, "workflow": "job"}]


def test_a_start_that_is_rolled_back_is_not_told_and_one_that_commits_only_after_it(desk: Desk, ears: Ears) -> None:
    with transaction.atomic():
        job().start()
        transaction.set_rollback(True)
    assert ears.heard == []
    with transaction.atomic():
        run: Any = job().start()
        assert ears.heard == []
    told = {"run_id": run.id, "workflow": "job"}
    assert ears.heard == [{"name": name, "in_transaction": False, "facts": told} for name in ("starting", "run_started")]


def test_a_step_that_fails_for_good_is_told_with_why_and_then_its_run(desk: Desk, ears: Ears) -> None:
    flow = Workflow("flow", steps=[Step("charge", run=body, retry=Retry(max_attempts=2))])
    hand = desk.worker(flow)
    run: Any = flow.start()
    hand.fail(hand.take(), "error", "once")
    assert ears.of("step_failed") == []
    desk.advance(10)
    hand.fail(hand.take(), "card_declined", "the card is gone")
    [told] = ears.of("step_failed")
    failure = told.pop("failure")
    assert told == {"run_id": run.id, "workflow": "flow", "step": "charge"}
    assert (failure.class_, failure.message) == ("card_declined", "the card is gone")
    assert ears.of("run_finished") == [{"run_id": run.id, "workflow": "flow", "status": "failed"}]
    assert not any(each["in_transaction"] for each in ears.heard)


def test_a_lease_that_is_taken_back_is_told_with_its_worker(desk: Desk, ears: Ears) -> None:
    hand = desk.worker(job(), name="w7")
    run: Any = job().start()
    hand.take()
    desk.advance(61)
    desk.advance(61)
    assert ears.of("lease_reclaimed") == [{"run_id": run.id, "workflow": "job", "step": "work", "attempt": 1, "worker": "w7"}]
    assert not any(each["in_transaction"] for each in ears.heard)


@pytest.mark.parametrize("name", SIGNALS)
def test_a_receiver_that_fails_keeps_nobody_from_anything(desk: Desk, ears: Ears, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """Best effort: the others hear it, the move stands, and the log says who failed."""

    def fall(**facts: Any) -> None:
        raise RuntimeError("deaf")

    signal = cast(Signal, getattr(dispatch, name))
    signal.connect(fall)
    try:
        hand = desk.worker(job())
        lost: Any = job().start()
        hand.take()
        desk.advance(61)
        desk.advance(61)
        hand.fail(hand.take())
    finally:
        signal.disconnect(fall)
    assert lost.status == "failed"
    assert len(ears.of(name)) == 1
    assert "of a workflow signal failed: deaf" in caplog.text
