"""The direct transport: what an engine's errors become."""

from __future__ import annotations

from typing import Any

import pytest

from ezgh_workflows_django.engine import leases
from ezgh_workflows_django.engine.direct import DirectEngine
from ezgh_workflows_django.engine.transactions import LostRace
from ezgh_workflows_django.errors import InvalidWorkflow, Rejected, SessionLost, Unavailable, UnknownApp, UnknownDefinition, UnknownWorker
from ezgh_workflows_django.protocol.messages import ClaimRequest, Registration
from ezgh_workflows_django.worker.transports.direct import DirectTransport

CLAIM = ClaimRequest(worker_id="w", claim_id="c", max=1)


class DatabaseGone(Exception):
    """What a database says when it is gone."""


class Engine:
    """An engine that fails as it is told to."""

    unavailable_errors = (DatabaseGone,)
    recipe = None

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, verb: str) -> Any:
        def call(*arguments: Any) -> Any:
            raise self._error

        return call


@pytest.mark.parametrize(
    ("raised", "becomes"),
    [
        (DatabaseGone("connection refused"), Unavailable),
        (UnknownWorker("w"), SessionLost),
        (UnknownDefinition("job@1"), SessionLost),
        (UnknownApp("reports"), Rejected),
    ],
)
def test_an_engines_errors_become_those_of_a_transport(raised: Exception, becomes: type[Exception]) -> None:
    with pytest.raises(becomes):
        DirectTransport(Engine(raised)).claim(CLAIM)


def test_a_race_that_is_lost_every_time_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(request: ClaimRequest) -> None:
        raise LostRace("Step 1: no longer ready")

    monkeypatch.setattr(leases, "open_claim", lose)
    with pytest.raises(Unavailable, match="no longer ready"):
        DirectTransport(DirectEngine()).claim(CLAIM)


def test_a_bug_in_the_engine_stays_one() -> None:
    with pytest.raises(ZeroDivisionError):
        DirectTransport(Engine(ZeroDivisionError())).claim(CLAIM)


def test_a_registration_with_faults_is_rejected_with_all_of_them() -> None:
    with pytest.raises(Rejected, match=r"(?s)first.*second"):
        DirectTransport(Engine(InvalidWorkflow(["first", "second"]))).register(Registration(worker="w", app="default"))


def test_a_registration_without_a_database_is_tried_again() -> None:
    with pytest.raises(Unavailable):
        DirectTransport(Engine(DatabaseGone())).register(Registration(worker="w", app="default"))
