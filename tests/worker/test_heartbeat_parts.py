"""The parts of the heartbeat process, without a process."""

from __future__ import annotations

from typing import Any

import pytest

from ezgh_workflows_django.errors import InvalidArgument, Rejected, Unavailable
from ezgh_workflows_django.testing.scripted import ScriptedTransport
from ezgh_workflows_django.worker import Worker
from ezgh_workflows_django.worker.heartbeat import SILENT_AFTER
from ezgh_workflows_django.worker.heartbeat_process import Beater, Charge

from .bench import one_step


def test_the_process_says_that_the_key_is_refused_and_lives_on() -> None:
    charge, server = Charge(20.0, 0.0), ScriptedTransport()
    charge.told({"hold": ["a"]}, 0.0)
    said: list[dict[str, Any]] = []
    server.fail("heartbeat", Rejected("401: the key was revoked"))
    assert Beater(server, charge, said.append, lambda: False).run_once(1.0) == 20.0
    assert said == [{"rejected": "401: the key was revoked"}]


def test_a_charge_forgets_what_it_is_told_to_let_go() -> None:
    charge = Charge(1.0, 0.0)
    charge.told({"hold": ["a", "b"]}, 0.0)
    charge.told({"let_go": ["a"]}, 0.0)
    assert [beat.lease_id for beat in charge.beats()] == ["b"]


def test_progress_of_a_lease_that_is_gone_holds_nothing() -> None:
    charge = Charge(1.0, 0.0)
    charge.told({"progress": ["a", 1]}, 0.0)
    assert charge.beats() == []


@pytest.mark.parametrize(("now", "is_stopped", "calls"), [(SILENT_AFTER, False, 1), (SILENT_AFTER + 1, False, 0), (1.0, True, 0)])
def test_the_process_is_silent_for_a_dead_or_stopped_worker(now: float, is_stopped: bool, calls: int) -> None:
    charge, server = Charge(1.0, 0.0), ScriptedTransport()
    charge.told({"hold": ["a"]}, 0.0)
    Beater(server, charge, lambda said: None, lambda: is_stopped).run_once(now)
    assert len(server.named("heartbeat")) == calls


def test_a_stamp_of_the_workers_loop_lets_it_go_on() -> None:
    charge = Charge(1.0, 0.0)
    charge.told({"stamp": True}, SILENT_AFTER)
    assert not charge.is_silent(2 * SILENT_AFTER)


def test_the_process_tries_again_within_five_seconds() -> None:
    charge, server = Charge(20.0, 0.0), ScriptedTransport()
    charge.told({"hold": ["a"]}, 0.0)
    said: list[dict[str, Any]] = []
    server.fail("heartbeat", *(Unavailable("down") for _ in range(20)))
    beater = Beater(server, charge, said.append, lambda: False)
    assert max(beater.run_once(1.0) for _ in range(20)) <= 5
    assert "down" in said[0]["trouble"]


def test_heartbeats_in_a_process_need_a_recipe() -> None:
    with pytest.raises(InvalidArgument, match="recipe"):
        Worker(ScriptedTransport(), workflows=[one_step(lambda: None)], heartbeat="process").run_sync()
