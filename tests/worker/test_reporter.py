"""How outcomes reach the server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ezgh_workflows_django.errors import SessionLost, Unavailable
from ezgh_workflows_django.protocol.outcomes import Answer, Report
from ezgh_workflows_django.testing.scripted import ScriptedTransport, lease_of

from .bench import Ear, Running, one_step

Start = Callable[..., Running]


def echo(input: Any) -> Any:
    return input


class Forgetful(ScriptedTransport):
    """A server that takes nothing of the first report, and answers for no lease of it."""

    def report(self, reports: Sequence[Report]) -> Sequence[Answer]:
        """Nothing at first."""
        if not self.named("report"):
            self._made("report", tuple(reports))
            return []
        return super().report(reports)


@pytest.mark.parametrize("error", [Unavailable("reset"), SessionLost("who?")])
def test_an_outcome_whose_reply_is_lost_is_posted_again_and_the_body_is_not_run_again(work: Start, error: Exception) -> None:
    ran: list[int] = []
    job = one_step(lambda: ran.append(1))
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    server.fail("report", error, lands=True)
    work(server, job, until_idle=True).join()
    assert (len(server.outcomes[lease.id]), ran) == (2, [1])


def test_an_outcome_that_a_server_leaves_out_of_its_answer_is_posted_again(work: Start, ear: Ear) -> None:
    ran: list[int] = []
    job = one_step(lambda: ran.append(1))
    lease = lease_of(job, "only")
    server = Forgetful(lease)
    assert work(server, job, until_idle=True).join() == 0
    assert (len(server.named("report")), len(server.outcomes[lease.id]), ran) == (2, 1, [1])
    assert ([step for step, _ in ear.done], "1 outcomes could not be sent" in ear.warnings[0]) == (["only"], True)


def test_already_applied_is_a_success(work: Start, ear: Ear) -> None:
    job = one_step(echo)
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    server.refuse("report", lease.id, "already_applied", outcome={"status": "completed"})
    work(server, job, until_idle=True).join()
    assert (len(server.named("report")), [step for step, _ in ear.done], ear.warnings) == (1, ["only"], [])


def test_already_applied_with_another_outcome_is_said(work: Start, ear: Ear) -> None:
    job = one_step(echo)
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    server.refuse("report", lease.id, "already_applied", outcome={"status": "failed"})
    work(server, job, until_idle=True).join()
    assert "another outcome" in ear.warnings[0]


@pytest.mark.parametrize("reason", ["fenced", "run_terminal", "unknown_lease"])
def test_an_outcome_that_is_refused_is_dropped(work: Start, ear: Ear, reason: str) -> None:
    job = one_step(echo)
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    server.refuse("report", lease.id, reason)
    assert work(server, job, until_idle=True).join() == 0
    assert (len(server.named("report")), ear.done, ear.errors) == (1, [], [])
    assert reason in ear.warnings[0]


def test_not_started_is_loud(work: Start, ear: Ear) -> None:
    job = one_step(echo)
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    server.refuse("report", lease.id, "not_started")
    work(server, job, until_idle=True).join()
    assert "bug in the worker" in ear.errors[0]


@pytest.mark.parametrize("reason", ["invalid", "too_large"])
def test_an_output_the_server_cannot_store_fails_the_step_permanently_with_its_text(work: Start, reason: str) -> None:
    job = one_step(echo)
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    server.refuse("report", lease.id, reason, "output: over 1 MiB")
    work(server, job, until_idle=True).join()
    first, second = server.outcomes[lease.id]
    assert (first.class_, second.class_, second.message) == (None, "permanent", "output: over 1 MiB")


def test_one_refused_outcome_does_not_touch_its_neighbours(work: Start, ear: Ear) -> None:
    job = one_step(echo)
    bad, good = lease_of(job, "only", "bad"), lease_of(job, "only", "good")
    server = ScriptedTransport(bad, good)
    server.refuse("report", bad.id, "fenced")
    work(server, job, until_idle=True).join()
    assert [outcome.output for _, outcome in ear.done] == ["good"]


def test_outcomes_of_bodies_that_finish_together_go_out_together(work: Start) -> None:
    together = threading.Barrier(10)
    job = one_step(lambda: together.wait() and None)
    server = ScriptedTransport(*(lease_of(job, "only") for _ in range(10)))
    gate = server.block("report")
    running = work(server, job)
    server.wait_until(lambda: bool(server.named("report")))
    assert running.wait_until_free()
    gate.set()
    server.wait_until(lambda: len(server.outcomes) == 10)
    assert len(server.named("report")) <= 2
