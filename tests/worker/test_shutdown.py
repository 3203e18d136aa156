"""Stopping: what was just given goes back, what runs gets its grace, what is left is handed back."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import pytest

from ezgh_workflows_django.errors import Rejected, Unavailable
from ezgh_workflows_django.testing.scripted import ScriptedTransport, lease_of
from ezgh_workflows_django.worker import shift
from ezgh_workflows_django.worker.hands import Hands, Held
from ezgh_workflows_django.worker.serving import Serving
from ezgh_workflows_django.worker.starter import Starter
from tests.conftest import ROOT

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
    job, begun = told(lambda _: gate.wait(60))
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    running = work(server, job, grace=10)
    assert begun.wait(60)
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
    job, begun = told(lambda ctx: ctx.cancelled.wait(60))
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    running = work(server, job, grace=0)
    assert begun.wait(60)
    assert running.stop() == 0
    assert [(outcome.class_, outcome.body_ended) for outcome in server.outcomes[lease.id]] == [("returned", True)]


def test_a_body_that_will_not_stop_is_handed_back_unended(work: Start) -> None:
    gate = threading.Event()
    job, begun = told(lambda _: gate.wait(60))
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    running = work(server, job, grace=0)
    assert begun.wait(60)
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
    assert ear.errors == ["the outcomes of some bodies could not be sent; their leases will be reclaimed"]


def test_a_refused_key_is_the_reason_that_is_said_and_nothing_hides_it(work: Start, ear: Ear) -> None:
    gate = threading.Event()
    job, begun = told(lambda _: gate.wait(60))
    server = ScriptedTransport(lease_of(job, "only"))
    running = work(server, job, concurrency=2, grace=10)
    assert begun.wait(60)
    refused = [Rejected("401: the key was revoked") for _ in range(10)]
    for call in ("claim", "report", "leave"):
        server.fail(call, *refused)
    server.offer(lease_of(one_step(lambda: 1, "another"), "only"))
    server.wait_until(lambda: server._is_interrupted)
    gate.set()
    assert running.join() == 1
    assert ear.errors == [
        "the server refuses this worker: 401: the key was revoked",
        "the outcomes of some bodies could not be sent; their leases will be reclaimed",
    ]


@pytest.mark.parametrize("error", [Rejected("401: the key was revoked"), ZeroDivisionError("a bug")])
def test_leases_that_could_not_be_started_go_back_and_nobody_waits_for_them(work: Start, error: Exception) -> None:
    ran: list[int] = []
    job = one_step(lambda: ran.append(1))
    leases = [lease_of(job, "only") for _ in range(3)]
    server = ScriptedTransport(*leases)
    server.fail("started", error)
    assert work(server, job, grace=600).join() == 1
    assert [[outcome.class_ for outcome in server.outcomes[lease.id]] for lease in leases] == [["returned"]] * 3
    assert ran == []


def test_what_is_put_after_the_starter_has_failed_goes_back_too() -> None:
    job = one_step(lambda: 1)
    server, hands = ScriptedTransport(), Hands(2)
    told: list[Held] = []
    reporter = SimpleNamespace(tell=lambda held, outcome: told.append(held))
    ignore = lambda *_: None  # noqa: E731 - short
    parts: Any = (server, hands, None, reporter, Ear(), threading.Event())
    starter = Starter(*parts, on_begin=ignore, on_dropped=ignore, on_lost_session=ignore)
    held = [Held(lease_of(job, "only"), Serving([job]).find(lease_of(job, "only")), 0.0) for _ in range(2)]
    hands.take(held)
    server.fail("started", Rejected("401"))
    starter.put(held[:1])
    with pytest.raises(Rejected):
        starter.run()
    starter.put(held[1:])
    assert (told, hands.occupied) == (held, 0)


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


HOLDS: Final = """
import os, signal, sys
from ezgh_workflows_django.worker.shutdown import hold_signals
hold_signals()
os.kill(os.getpid(), signal.SIGTERM)
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""
HEARS: Final = """
import signal
from ezgh_workflows_django.worker.shutdown import Inbox, signals_to
with signals_to(inbox := Inbox()):
    print(inbox.get().cause.name, signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def test_a_signal_that_comes_before_the_program_that_replaces_this_one_listens_is_heard_there() -> None:
    done = subprocess.run([sys.executable, "-c", HOLDS, HEARS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "SIGNAL set()\n"), done.stderr
