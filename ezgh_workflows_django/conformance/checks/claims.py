"""Claiming: what a lease says, which leases a claim brings, and when it brings none."""

from __future__ import annotations

import threading
import time
from typing import Any

from ..answers import Answer
from ..bench import Bench, unknown_id
from ..catalogue import check
from ..findings import NotApplicable
from ..sessions import Session
from ..shapes import COUNT, LEASE
from ..workflows import serve, step

SHORT_MS = 600
LONG_MS = 10_000


@check("protocol.md")
def lease_fields(bench: Bench) -> None:
    """A lease says all that the protocol names, its moments in RFC 3339 in UTC and its durations in milliseconds."""
    job = bench.workflow("job", step("work", timeout_ms=300_000), deadline_ms=3_600_000)
    session = bench.session(job)
    run = bench.start(job, 1)
    lease = session.lease(run)
    answer = lease.answer
    lease.shaped(LEASE)
    said: dict[str, Any] = {
        "run_id": run,
        "workflow": job["name"],
        "version": session.told["definitions"][0]["version"],
        "revision": "1",
        "step": "work",
        "attempt": 1,
    }
    answer.expect({name: lease[name] for name in said} == said, f"{said}")
    rest: dict[str, Any] = {"steps": {}, "state": {}, "labels": {}, "checkpoints": [], "failure": None, "delivery": "at_least_once", "timeout_ms": 300_000}
    answer.expect({name: lease[name] for name in rest} == rest, f"{rest}")
    answer.expect(lease["deadline"] is not None, "the run's `deadline`")
    answer.expect(lease["traceparent"].startswith(f"00-{lease['trace_id']}-{lease['span_id']}-"), "a `traceparent` of `trace_id` and `span_id`")
    answer.expect(lease["expires_in_ms"] <= bench.durations.offer_ttl, f"`expires_in_ms` of at most `offer_ttl_ms`, {bench.durations.offer_ttl}")


@check("authoring.md")
def lease_input(bench: Bench) -> None:
    """A step's input is the payload, its one parent's output, or an object of its parents' outputs; `steps` has the outputs of all its ancestors."""
    flow = bench.workflow("diamond", step("top"), step("left", "top"), step("right", "top"), step("join", "left", "right"))
    session = bench.session(flow)
    run = bench.start(flow, "payload")
    top = session.take(run)
    top.answer.expect(top["input"] == "payload", '`input` "payload"')
    top.complete("from top").ok()
    for side in session.collect(2, run=run):
        side.answer.expect((side["input"], side["steps"]) == ("from top", {"top": "from top"}), "the output of `top` as `input`, and in `steps`")
        side.started().complete(f"from {side['step']}").ok()
    join = session.lease(run)
    outputs = {"left": "from left", "right": "from right"}
    join.answer.expect(join["input"] == outputs, f"`input` {outputs}")
    join.answer.expect(join["steps"] == {"top": "from top", **outputs}, "`steps` with the outputs of `top`, `left` and `right`")


@check("protocol.md")
def claim_empty(bench: Bench) -> None:
    """A claim that finds nothing is 200 with no leases, and maybe `retry_after_ms`."""
    answer = bench.session(bench.job()).claim().ok()
    answer.expect(answer["leases"] == [], "`leases`: an empty list")
    answer.expect(COUNT.holds(answer.value.get("retry_after_ms", 0)), "`retry_after_ms`, if it is there: a whole number")


@check("protocol.md")
def claim_max(bench: Bench) -> None:
    """`max` is 1 or more and has an upper bound; a claim brings no more leases than that."""
    job = bench.job()
    session = bench.session(job)
    for _ in range(3):
        bench.start(job)
    for out_of_range in (0, -1, 1_000_000):
        session.claim(max=out_of_range).refused(400)
    leases = session.collect(1, max=2)
    leases[0].answer.expect(len(leases) <= 2, "at most 2 leases")


@check("engine.md")
def claim_each_step_once(bench: Bench) -> None:
    """Each step that can be claimed is offered to exactly one worker."""
    job = bench.job()
    one, other = bench.session(job), bench.session(job)
    runs = {bench.start(job, number) for number in range(4)}
    leases = [*one.collect(2, max=2), *other.collect(2, max=2)]
    leases[-1].answer.expect({lease["run_id"] for lease in leases} == runs, f"a lease of each run: {sorted(runs)}")
    leases[-1].answer.expect(len({lease.id for lease in leases}) == len(runs), "a lease id for each")
    one.gives_nothing(max=10)


@check("protocol.md")
def claim_id(bench: Bench) -> None:
    """The same `claim_id` again gives the same leases again, and no others."""
    job = bench.job()
    session = bench.session(job)
    for _ in range(2):
        bench.start(job)
    first = session.collect(1, max=1, claim_id="conformance")[0]
    again = session.claim(max=1, claim_id="conformance").ok()
    told = [(lease["id"], lease["token"]) for lease in again["leases"]]
    again.expect(told == [(first.id, first["token"])], f"the lease {first.id} with its token, and no other")
    other = session.collect(1)[0]
    other.answer.expect(other["run_id"] != first["run_id"], "another run by another `claim_id`")


@check("protocol.md")
def claim_run(bench: Bench) -> None:
    """`run` limits a claim to one run."""
    job = bench.job()
    session = bench.session(job)
    _, wanted = bench.start(job), bench.start(job)
    leases = session.collect(1, max=10, run=wanted)
    leases[0].answer.expect([lease["run_id"] for lease in leases] == [wanted], f"one lease, of run {wanted}")
    session.gives_nothing(max=10, run=wanted)


@check("protocol.md")
def claim_run_terminal(bench: Bench) -> None:
    """A claim for a run that is over is 409 `run_terminal`; for a run that is not there, 404."""
    session, run = bench.a_run()
    session.take(run).complete().ok()
    session.claim(run=run).refused(409, "run_terminal")
    session.claim(run=unknown_id()).refused(404)


@check("protocol.md")
def claim_unknown(bench: Bench) -> None:
    """A claim of an unknown session is 409 `unknown_worker`, one that serves an unknown definition 409 `unknown_definition`."""
    session = bench.session(bench.job())
    session.claim(worker_id=unknown_id()).refused(409, "unknown_worker")
    session.claim(serves=[{"name": bench.named("nothing"), "revision": "1"}]).refused(409, "unknown_definition")
    session.claim(serves=[{"name": bench.named("job"), "revision": "2"}]).refused(409, "unknown_definition")


@check("engine.md")
def claim_serves(bench: Bench) -> None:
    """A claim is offered only what it serves: workflows by name and revision, all of their steps or only those named."""
    one = bench.workflow("one", step("left"), step("right"))
    other, newer = bench.job("other"), {**one, "revision": "2"}
    session = bench.session(one, other, newer)
    run = bench.start(newer)
    session.gives_nothing(serves=[serve(one), serve(other)], run=run)
    rights = session.collect(1, run=run, max=10, serves=[serve(newer, "right")])
    told = [(lease["step"], lease["revision"]) for lease in rights]
    rights[0].answer.expect(told == [("right", "2")], "one lease, of step `right` of revision 2")
    session.gives_nothing(serves=[serve(newer, "right")], run=run)
    session.lease(run, serves=[serve(newer)])
    session.gives_nothing(serves=[], run=run)


@check("protocol.md")
def claim_rests(bench: Bench) -> None:
    """A claim with `wait_ms` that finds nothing is held that long, or answered with `retry_after_ms`: no worker has to ask in a hurry."""
    session = bench.session(bench.job())
    begun = time.monotonic()
    answer = session.claim(wait_ms=SHORT_MS).ok()
    took_ms = round((time.monotonic() - begun) * 1000)
    answer.expect(answer["leases"] == [], "no lease")
    is_told = COUNT.holds(answer.value.get("retry_after_ms")) and answer.value["retry_after_ms"] > 0
    answer.expect(took_ms >= SHORT_MS * 0.8 or is_told, f"a hold of {SHORT_MS} ms, not {took_ms}, or `retry_after_ms`")


@check("protocol.md")
def claim_wakes(bench: Bench) -> None:
    """A claim that is held is answered when there is something for it."""
    job = bench.job()
    session = bench.session(job)
    _refuse_unheld(session)
    started: list[Answer] = []
    starting = threading.Timer(SHORT_MS / 1000, lambda: started.append(bench.ask_start(job)))
    starting.start()
    answer = session.claim(wait_ms=min(LONG_MS, bench.durations.max_wait))
    starting.join()
    run = started[0].ok(201)["id"]
    answer.ok().expect([lease["run_id"] for lease in answer["leases"]] == [run], f"a lease of run {run}, which was started while the claim was held")


@check("protocol.md", takes=lambda durations: durations.max_wait / 1000)
def claim_wait_is_bounded(bench: Bench) -> None:
    """A claim that asks to be held longer than `max_wait_ms` is answered empty by then."""
    session = bench.session(bench.job())
    _refuse_unheld(session)
    answer = session.claim(wait_ms=bench.durations.max_wait * 10).ok()
    answer.expect(answer["leases"] == [], "no lease")


def _refuse_unheld(session: Session) -> None:
    """Raises `NotApplicable` where this server holds no claims."""
    begun = time.monotonic()
    session.gives_nothing(wait_ms=SHORT_MS)
    if time.monotonic() - begun < SHORT_MS / 1000 * 0.8:
        raise NotApplicable("this server holds no claims: it answers at once")
