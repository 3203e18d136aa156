"""Stopping: what was just given goes back, what runs gets its grace, what is left is handed back."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ezgh_workflows_django.errors import Unavailable
from ezgh_workflows_django.testing.scripted import ScriptedTransport, lease_of
from ezgh_workflows_django.worker import shift

from .bench import Ear, Running, one_step, told

Start = Callable[..., Running]


def test_an_idle_worker_stops_at_once_with_code_0_and_a_goodbye(work: Start) -> None:
    server = ScriptedTransport()
    running = work(server, one_step(lambda: 1), grace=60)
    server.wait_until(lambda: bool(server.named("claim")))
    assert running.stop() == 0
    assert server.named("leave") == ["w1"]


def test_a_running_body_finishes_within_its_grace(work: Start) -> None:
    gate = threading.Event()
    job, begun = told(lambda _: gate.wait(5))
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    running = work(server, job, grace=10)
    assert begun.wait(5)
    running.worker.stop()
    server.wait_until(lambda: server._is_interrupted)
    claims = len(server.named("claim"))
    gate.set()
    assert running.join() == 0
    assert (server.outcomes[lease.id][0].output, len(server.named("claim"))) == (True, claims)


def test_what_was_given_while_stopping_goes_back_untouched(work: Start) -> None:
    ran: list[int] = []
    job = one_step(lambda: ran.append(1))
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    gate = server.block("claim")
    running = work(server, job, grace=10)
    server.wait_until(lambda: bool(server.named("claim")))
    running.worker.stop()
    server.wait_until(lambda: server._is_interrupted)
    gate.set()
    assert running.join() == 0
    assert (ran, [outcome.class_ for outcome in server.outcomes[lease.id]], server.named("started")) == ([], ["returned"], [])


def test_what_could_not_be_started_yet_goes_back(work: Start) -> None:
    ran: list[int] = []
    job = one_step(lambda: ran.append(1))
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    server.fail("started", *(Unavailable("down") for _ in range(100)))
    running = work(server, job, grace=10)
    server.wait_until(lambda: bool(server.named("started")))
    assert running.stop() == 0
    assert (ran, [outcome.class_ for outcome in server.outcomes[lease.id]]) == ([], ["returned"])


def test_a_body_that_stops_after_its_grace_is_handed_back_ended(work: Start) -> None:
    job, begun = told(lambda ctx: ctx.cancelled.wait(5))
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    running = work(server, job, grace=0)
    assert begun.wait(5)
    assert running.stop() == 0
    assert [(outcome.class_, outcome.body_ended) for outcome in server.outcomes[lease.id]] == [("returned", True)]


def test_a_body_that_will_not_stop_is_handed_back_unended(work: Start) -> None:
    gate = threading.Event()
    job, begun = told(lambda _: gate.wait(10))
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    running = work(server, job, grace=0)
    assert begun.wait(5)
    assert running.stop() == 0
    assert [(outcome.class_, outcome.body_ended) for outcome in server.outcomes[lease.id]] == [("returned", False)]
    gate.set()


def test_an_outcome_is_still_sent_when_the_server_comes_back_while_stopping(work: Start) -> None:
    job = one_step(lambda: 1)
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    server.fail("report", Unavailable("down"), Unavailable("down"))
    running = work(server, job)
    server.wait_until(lambda: bool(server.named("report")))
    assert running.stop() == 0
    assert server.outcomes[lease.id][0].output == 1


def test_outcomes_that_cannot_be_sent_make_the_end_unclean(work: Start, ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shift, "SEND_PATIENCE", 0.0)
    job = one_step(lambda: 1)
    server = ScriptedTransport(lease_of(job, "only"))
    server.fail("report", *(Unavailable("down") for _ in range(1_000)))
    running = work(server, job, grace=0)
    server.wait_until(lambda: bool(server.named("report")))
    assert running.stop() == 1
    assert "could not be sent" in ear.errors[0]


def test_stopping_twice_is_stopping_once(work: Start) -> None:
    server = ScriptedTransport()
    running = work(server, one_step(lambda: 1))
    server.wait_until(lambda: bool(server.named("claim")))
    running.worker.stop()
    assert running.stop() == 0


def test_a_goodbye_that_fails_is_only_a_warning(work: Start, ear: Ear) -> None:
    server = ScriptedTransport()
    server.fail("leave", Unavailable("down"))
    running = work(server, one_step(lambda: 1))
    server.wait_until(lambda: bool(server.named("claim")))
    assert running.stop() == 0
    assert "goodbye" in ear.warnings[0]
