"""What only time shows: offers that nobody takes up, workers gone silent, leases that heartbeats keep, timeouts that nobody reports.

Each waits as long as the server's own durations say. A margin is added where the server is to have done something, never where it is not yet to.
"""

from __future__ import annotations

import time

from ..bench import Bench
from ..catalogue import check
from ..sessions import Lease, Session
from ..shapes import Durations
from ..workflows import AT_ONCE, step
from .refusals import CALLS

MARGIN = 8.0
"""Seconds that a server may be late with what is due, beside its recovery window."""

ENGINE_GRACE = 10.0
"""Seconds after a step's timeout until the engine reports it by itself."""

TIMEOUT = 1.0
PAUSE = 0.4


def _offer(durations: Durations) -> float:
    return durations.offer_ttl / 1000


def _silence(durations: Durations) -> float:
    """After how long a silent worker has lost its lease."""
    return (durations.lease_ttl + durations.recovery) / 1000


@check("engine.md", takes=_offer)
def offer_runs_out(bench: Bench) -> None:
    """A lease that is neither started nor sends heartbeats within `offer_ttl_ms` goes back: the same attempt, a greater token; the old one is fenced."""
    session, run = bench.a_run()
    old = session.lease(run)
    new = session.lease(run, _offer(bench.durations) + MARGIN)
    new.answer.expect((new["attempt"], new["token"] > old["token"]) == (1, True), f"`attempt` 1, and a token over {old['token']}")
    old.post("started").refused(409, "fenced")
    new.started().complete().ok()


@check("protocol.md", takes=_offer)
def offer_kept_by_heartbeats(bench: Bench) -> None:
    """Heartbeats keep a lease that was offered and is not yet started."""
    session, run = bench.a_run()
    lease = session.lease(run)
    _beat(session, run, lease, _offer(bench.durations) + 1)
    lease.started().complete().ok()


@check("engine.md", takes=_offer)
def offer_at_most_once(bench: Bench) -> None:
    """An `at_most_once` step that was only offered has not run: it is offered again."""
    session, run = bench.a_run(delivery="at_most_once")
    session.lease(run)
    lease = session.lease(run, _offer(bench.durations) + MARGIN)
    lease.answer.expect(lease["attempt"] == 1, "`attempt` 1")
    lease.started().complete().ok()


@check("engine.md", takes=_offer)
def offer_that_may_have_run(bench: Bench) -> None:
    """An `at_most_once` lease that was refused `not_started` may have run: when it is lost the step fails, and is not offered again."""
    session, run = bench.a_run(delivery="at_most_once", retry=AT_ONCE)
    session.lease(run).complete().refused(409, "not_started")
    session.ends(run, _offer(bench.durations) + MARGIN)


@check("engine.md", takes=_silence)
def silence_is_reclaimed(bench: Bench) -> None:
    """A started lease without heartbeats is reclaimed after its time and the recovery window: the next attempt; the old holder is fenced, on every call."""
    session, run = bench.a_run()
    old = session.take(run)
    new = session.lease(run, _silence(bench.durations) + MARGIN)
    new.answer.expect((new["attempt"], new["token"] > old["token"]) == (2, True), f"`attempt` 2, and a token over {old['token']}")
    for call, body in CALLS.items():
        old.post(call, body).refused(409, "fenced")
    new.started().complete("new").ok()


@check("engine.md", takes=_silence)
def silence_then_back(bench: Bench) -> None:
    """A worker that comes back within the recovery window keeps its lease."""
    session, run = bench.a_run()
    lease = session.take(run)
    _look_on(session, run, (bench.durations.lease_ttl + bench.durations.recovery * 0.4) / 1000)
    lease.post("heartbeat").ok()
    _beat(session, run, lease, _silence(bench.durations) / 2)
    lease.complete().ok()


@check("engine.md", takes=_silence)
def silence_at_most_once(bench: Bench) -> None:
    """An `at_most_once` step whose worker is lost fails, and is not offered again whatever its policy says."""
    session, run = bench.a_run(delivery="at_most_once", retry=AT_ONCE)
    lease = session.take(run)
    session.ends(run, _silence(bench.durations) + MARGIN)
    lease.complete().refused(409, "fenced")


@check("protocol.md", takes=_silence)
def heartbeats_keep_a_lease(bench: Bench) -> None:
    """A lease lives as long as its heartbeats come."""
    session, run = bench.a_run()
    lease = session.take(run)
    _beat(session, run, lease, _silence(bench.durations) + 1)
    lease.complete().ok()


@check("engine.md", takes=lambda durations: TIMEOUT + ENGINE_GRACE)
def timeout_is_enforced(bench: Bench) -> None:
    """A step over its timeout that its worker does not report is ended by the server ten seconds later, even if heartbeats go on."""
    job = bench.workflow("job", step("work", timeout_ms=round(TIMEOUT * 1000)))
    session = bench.session(job)
    run = bench.start(job)
    lease = session.take(run)
    until = time.monotonic() + TIMEOUT + ENGINE_GRACE + MARGIN
    while (answer := lease.post("heartbeat")).status == 200:
        answer.expect(time.monotonic() < until, "the end of the lease")
        time.sleep(PAUSE)
    answer.refused(409, "fenced")
    session.ends(run)


def _look_on(session: Session, run: str, seconds: float) -> None:
    """Let time pass while claims go on, as they do on a server that is in use, and bring nothing."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        session.gives_nothing(run=run)
        time.sleep(PAUSE)


def _beat(session: Session, run: str, lease: Lease, seconds: float) -> None:
    """Let time pass while a lease's heartbeats go on; nobody else is given its step."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        lease.post("heartbeat").ok()
        session.gives_nothing(run=run)
        time.sleep(PAUSE)
