"""The loop: register, claim, started, body, report."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

import pytest

from ezgh_workflows_django.definitions.graph import Step, Workflow
from ezgh_workflows_django.errors import AlreadyStarted, InvalidArgument, InvalidWorkflow, Rejected, SessionLost, Unavailable
from ezgh_workflows_django.protocol.messages import Claimed, ClaimRequest, Serve
from ezgh_workflows_django.protocol.outcomes import Outcome
from ezgh_workflows_django.testing.scripted import SESSION, ScriptedTransport, lease_of
from ezgh_workflows_django.worker import Worker

from .bench import Ear, Running, one_step, told

Start = Callable[..., Running]


def echo(input: Any) -> Any:
    return input


def test_a_step_is_started_run_and_reported(work: Start) -> None:
    job = one_step(echo)
    lease = lease_of(job, "only", {"n": 1})
    server = ScriptedTransport(lease)
    work(server, job, until_idle=True).join()
    assert server.outcomes[lease.id] == [Outcome.completed({"n": 1})]
    assert [call.name for call in server.calls if call.name != "claim"] == ["register", "started", "report", "leave"]


def test_started_goes_before_the_body(work: Start) -> None:
    server = ScriptedTransport()
    seen: list[bool] = []
    job = one_step(lambda: seen.append(bool(server.named("started"))))
    server.offer(lease_of(job, "only"))
    work(server, job, until_idle=True).join()
    assert seen == [True]


def test_started_goes_out_once_for_the_whole_batch(work: Start) -> None:
    job = one_step(echo)
    leases = [lease_of(job, "only") for _ in range(10)]
    server = ScriptedTransport(*leases)
    work(server, job, until_idle=True).join()
    assert server.named("started") == [tuple(lease.id for lease in leases)]


def test_an_async_body_runs_beside_others_on_the_loop(work: Start) -> None:
    met = asyncio.Barrier(2)

    async def body() -> str:
        await met.wait()
        return threading.current_thread().name

    job = one_step(body)
    leases = [lease_of(job, "only"), lease_of(job, "only")]
    server = ScriptedTransport(*leases)
    work(server, job, until_idle=True).join()
    assert {server.outcomes[lease.id][0].output for lease in leases} == {"workflows-loop"}


def test_a_claim_asks_for_ten_at_most_and_says_what_is_served(work: Start) -> None:
    job = one_step(echo)
    server = ScriptedTransport()
    work(server, job, concurrency=50)
    server.wait_until(lambda: bool(server.named("claim")))
    request = server.named("claim")[0]
    assert (request.max, request.wait_ms, request.serves) == (10, 24_000, (Serve("job", "1", frozenset({"only"})),))


def test_a_claim_asks_for_no_more_than_the_server_allows(work: Start) -> None:
    server = ScriptedTransport(session=replace(SESSION, max_claim=1))
    work(server, one_step(echo))
    server.wait_until(lambda: bool(server.named("claim")))
    assert server.named("claim")[0].max == 1


@pytest.mark.parametrize(("allowed", "asked"), [(120_000, 55_000), (24_000, 24_000)])
def test_a_claim_asks_to_be_held_for_55_seconds_where_the_server_allows_it(work: Start, allowed: int, asked: int) -> None:
    server = ScriptedTransport(session=replace(SESSION, max_wait_ms=allowed))
    work(server, one_step(echo))
    server.wait_until(lambda: bool(server.named("claim")))
    assert server.named("claim")[0].wait_ms == asked


def test_a_worker_runs_ten_bodies_at_once_and_gives_them_thirty_seconds_at_a_stop() -> None:
    defaults = {name: parameter.default for name, parameter in signature(Worker).parameters.items()}
    assert (defaults["concurrency"], defaults["grace"]) == (10, 30)


def test_a_claim_never_asks_for_more_than_there_is_room_for(work: Start) -> None:
    gate = threading.Event()
    job = one_step(lambda: gate.wait(60))
    server = ScriptedTransport(lease_of(job, "only"))
    work(server, job, concurrency=3)
    server.wait_until(lambda: len(server.named("claim")) == 2)
    gate.set()
    assert [request.max for request in server.named("claim")] == [3, 2]


def test_a_claim_repeated_after_a_lost_reply_has_the_same_id_and_brings_the_same_lease(work: Start) -> None:
    job = one_step(echo)
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    server.fail("claim", Unavailable("reset"), lands=True)
    work(server, job, until_idle=True).join()
    first, second = server.named("claim")[:2]
    assert (first.claim_id, len(server.outcomes[lease.id])) == (second.claim_id, 1)


def test_a_server_that_asks_for_a_wait_is_asked_again_after_it(work: Start, ear: Ear) -> None:
    server = ScriptedTransport()
    server.fail("claim", Unavailable("busy", retry_after=0.01), Unavailable("busy"))
    running = work(server, one_step(echo), until_idle=True)
    assert running.join() == 0
    assert len([said for said in ear.warnings if "busy" in said]) == 2


def test_a_lost_session_is_registered_again(work: Start) -> None:
    server = ScriptedTransport()
    server.fail("claim", SessionLost("who?"))
    work(server, one_step(echo), until_idle=True).join()
    assert [request.worker_id for request in server.named("claim")] == ["w1", "w2"]
    assert len(server.named("register")) == 2


def test_a_registration_is_repeated_until_the_server_is_there(work: Start) -> None:
    server = ScriptedTransport()
    server.fail("register", Unavailable("starting"))
    assert work(server, one_step(echo), until_idle=True).join() == 0


@pytest.mark.parametrize("call", ["register", "claim"])
def test_a_worker_that_is_refused_for_good_stops_loudly(work: Start, ear: Ear, call: str) -> None:
    server = ScriptedTransport()
    server.fail(call, Rejected("401: the key was revoked, make another"))
    assert work(server, one_step(echo)).join() == 1
    assert "the key was revoked" in ear.errors[0]


@pytest.mark.parametrize("call", ["claim", "started", "report", "tend"])
def test_an_unexpected_error_in_the_workers_own_loop_ends_it(work: Start, ear: Ear, call: str) -> None:
    """B40: it never lives on deaf."""
    job = one_step(echo)
    server = ScriptedTransport(lease_of(job, "only"))
    server.fail(call, ZeroDivisionError("a bug"))
    assert work(server, job, maintenance=True).join(20) == 1
    assert "ZeroDivisionError" in ear.errors[0]


def test_a_listener_that_fails_ends_nothing() -> None:
    class Broken(Ear):
        def finished(self, *said: Any) -> None:
            raise ValueError("the terminal is gone")

    job = one_step(echo)
    server = ScriptedTransport(lease_of(job, "only"), lease_of(job, "only"))
    assert Running(Worker(server, workflows=[job], until_idle=True, listener=Broken())).join() == 0


def test_a_step_that_is_not_held_is_unservable_and_never_started(work: Start) -> None:
    job, other = one_step(echo), one_step(echo, "other")
    lease = lease_of(other, "only")
    server = ScriptedTransport(lease)
    work(server, job, until_idle=True).join()
    assert [outcome.class_ for outcome in server.outcomes[lease.id]] == ["unservable"]
    assert server.named("started") == []


@pytest.mark.parametrize("reason", ["fenced", "run_terminal", "unknown_lease", "already_applied"])
def test_a_body_whose_start_is_refused_does_not_run(work: Start, reason: str) -> None:
    ran: list[int] = []
    job = one_step(lambda: ran.append(1))
    lease = lease_of(job, "only", delivery="at_most_once")
    server = ScriptedTransport(lease)
    server.refuse("started", lease.id, reason)
    work(server, job, until_idle=True).join()
    assert (ran, server.named("report")) == ([], [])


def test_a_start_whose_answer_is_lost_is_said_again_and_the_body_runs_once(work: Start) -> None:
    ran: list[int] = []
    job = one_step(lambda: ran.append(1))
    server = ScriptedTransport(lease_of(job, "only", delivery="at_most_once"))
    server.fail("started", Unavailable("reset"), lands=True)
    work(server, job, until_idle=True).join()
    assert (ran, len(server.named("started"))) == ([1], 2)


def exits_or_echoes(input: str) -> str:
    """A body that may leave as scripts do."""
    if input == "exit":
        raise SystemExit(1)
    return input


async def exits_in_a_task_or_echoes(input: str) -> str:
    """A body whose task may leave; that would end the loop which all async bodies share."""

    async def exits() -> None:
        raise SystemExit(1)

    if input == "exit":
        await asyncio.create_task(exits())
    return input


@pytest.mark.parametrize("body", [exits_or_echoes, exits_in_a_task_or_echoes])
def test_a_body_that_calls_sys_exit_fails_and_the_next_one_runs(work: Start, body: Callable[[str], Any]) -> None:
    job = one_step(body)
    first, second = lease_of(job, "only", "exit"), lease_of(job, "only", "fine")
    server = ScriptedTransport(first, second)
    assert work(server, job, concurrency=1, until_idle=True).join() == 0
    assert (server.outcomes[first.id][0].class_, server.outcomes[second.id][0].output) == ("error", "fine")


def test_maintenance_gets_its_turn(work: Start) -> None:
    server = ScriptedTransport()
    work(server, one_step(echo), maintenance=True)
    server.wait_until(lambda: server.tended > 0)


def test_without_maintenance_it_gets_none(work: Start) -> None:
    server = ScriptedTransport()
    work(server, one_step(echo), until_idle=True).join()
    assert server.tended == 0


def test_until_idle_waits_for_what_a_body_makes_ready(work: Start) -> None:
    server = ScriptedTransport()

    def first() -> None:
        server.offer(follower)

    job = Workflow("job", steps=[Step("first", run=first), Step("second", run=lambda: 2, after=["first"])])
    follower = lease_of(job, "second")
    server.offer(lease_of(job, "first"))
    assert work(server, job, until_idle=True).join() == 0
    assert server.outcomes[follower.id] == [Outcome.completed(2)]


def test_only_and_except_narrow_what_is_served() -> None:
    job = Workflow("job", steps=[Step("a", run=echo), Step("b", run=echo)])
    other = one_step(echo, "other")
    worker = Worker(ScriptedTransport(), workflows=[job, other], only=["job"], except_=["job/b"])
    assert worker.serving.serves() == (Serve("job", "1", frozenset({"a"})),)


def test_only_what_is_not_held_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match="jobb"):
        Worker(ScriptedTransport(), workflows=[one_step(echo)], only=["jobb"]).run_sync()


@pytest.mark.parametrize("grace", [-1.0, float("nan"), float("inf"), 1e10])
def test_a_grace_that_no_clock_can_wait_for_is_refused_by_name(grace: float) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(f"grace: {grace} seconds can't be waited")):
        Worker(ScriptedTransport(), grace=grace)


def test_on_failure_is_served_as_a_step() -> None:
    job = Workflow("job", steps=[Step("a", run=echo)], on_failure=echo)
    assert Worker(ScriptedTransport(), workflows=[job]).serving.serves() == (Serve("job", "1", frozenset({"a", "on_failure"})),)


def test_two_workflows_of_one_name_and_revision_are_refused() -> None:
    with pytest.raises(InvalidWorkflow, match="job revision 1"):
        Worker(ScriptedTransport(), workflows=[one_step(echo), one_step(echo, timeout=5)])


def test_two_revisions_are_served_side_by_side() -> None:
    old, new = Workflow("job", steps=[Step("a", run=echo)]), Workflow("job", steps=[Step("b", run=echo)], revision="2")
    serves = Worker(ScriptedTransport(), workflows=[old, new]).serving.serves()
    assert serves == (Serve("job", "1", frozenset({"a"})), Serve("job", "2", frozenset({"b"})))


def test_a_workflow_registered_after_the_start_is_refused(work: Start) -> None:
    running = work(ScriptedTransport(), one_step(echo))
    running.stop()
    with pytest.raises(AlreadyStarted):
        running.worker.register(one_step(echo, "other"))


def test_a_server_that_gives_the_same_lease_twice_gets_one_body(work: Start) -> None:
    ran: list[int] = []
    job = one_step(lambda: ran.append(1))
    lease = lease_of(job, "only")

    class Doubling(ScriptedTransport):
        def claim(self, request: ClaimRequest) -> Claimed:
            claimed = super().claim(request)
            self._offers.extend(claimed.leases[:1] if len(self.named("claim")) == 1 else ())
            return claimed

    server = Doubling(lease)
    server.block("report")
    running = work(server, job)
    server.wait_until(lambda: len(server.named("claim")) >= 3)
    server.block("report").set()
    running.stop()
    assert ran == [1]


def test_each_thread_lets_go_of_its_connections_as_it_ends(work: Start) -> None:
    job = one_step(echo)
    server = ScriptedTransport(lease_of(job, "only"))
    work(server, job, until_idle=True).join()
    assert {"workflows-claims", "workflows-reporter", "workflows-starter", "workflows-heartbeat", "workflows-body-1"} <= server.released
    assert server.is_closed


def test_run_can_be_awaited_and_stopped_from_elsewhere() -> None:
    server = ScriptedTransport()
    worker = Worker(server, workflows=[one_step(echo)], maintenance=False, grace=0.1)

    async def main() -> int:
        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(server.wait_until, lambda: bool(server.named("claim")))
        worker.stop()
        return await running

    assert asyncio.run(main()) == 0


def test_cancelling_run_stops_the_worker_in_order() -> None:
    server = ScriptedTransport()
    worker = Worker(server, workflows=[one_step(echo)], maintenance=False, grace=0.1)

    async def main() -> None:
        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(server.wait_until, lambda: bool(server.named("claim")))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert server.named("leave") == ["w1"]


def test_cancelling_run_twice_ends_the_worker_now(ear: Ear) -> None:
    """As a second Ctrl-C does, whose KeyboardInterrupt cancels all tasks."""
    gate = threading.Event()
    job, begun = told(lambda _: gate.wait(60))
    server = ScriptedTransport(lease_of(job, "only"))
    worker = Worker(server, workflows=[job], maintenance=False, grace=600, listener=ear)

    async def main() -> None:
        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(begun.wait, 60)
        running.cancel()
        await asyncio.to_thread(server.wait_until, lambda: server._is_interrupted)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    gate.set()
    assert ear.warnings == ["a second signal: ending now; leases still in hand will be reclaimed"]


def test_an_event_loop_that_ends_stops_its_worker_in_order() -> None:
    """It cancels every task there is, once."""
    gate = threading.Event()
    job, begun = told(lambda ctx: gate.wait(60))
    lease = lease_of(job, "only")
    server = ScriptedTransport(lease)
    worker = Worker(server, workflows=[job], maintenance=False, grace=600)

    async def main() -> None:
        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(begun.wait, 60)
        letting.start()
        assert not running.done()

    def let() -> None:
        server.wait_until(lambda: server._is_interrupted)
        gate.set()

    letting = threading.Thread(target=let, daemon=True)
    asyncio.run(main())
    assert server.outcomes[lease.id][0].output is True


def test_the_loop_says_that_it_is_alive(work: Start, ear: Ear) -> None:
    work(ScriptedTransport(), one_step(echo), until_idle=True).join()
    assert ear.lives > 0
