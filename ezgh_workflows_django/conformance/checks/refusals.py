"""The four refusals: which one a call on a lease that is over gets, on every call alike, and that it changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..bench import POLL, Bench, unknown_id
from ..catalogue import check
from ..sessions import Lease
from ..shapes import ENDED
from ..workflows import sleep, step

CALLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "started": {},
    "heartbeat": {},
    "complete": {"output": "late"},
    "fail": {"class": "error", "message": "late"},
    "checkpoint": {"name": "late", "pos": 1, "kind": "step", "output": "late"},
    "suspend": {"waits": [sleep("late", 1)], "mode": "all"},
    "children": {"name": "late", "pos": 1, "workflow": "late", "payloads": []},
}
"""Every call on a lease, with the least that it needs."""


@check("protocol.md")
def refused_already_applied(bench: Bench) -> None:
    """A lease that its own complete, fail or suspend has ended is refused `already_applied` on every call, with the stored outcome."""
    job = bench.job()
    session = bench.session(job)
    completed, failed, suspended = (session.take(bench.start(job)) for _ in range(3))
    completed.complete("first").ok()
    failed.fail("permanent").ok()
    suspended.suspend(sleep("long", 86_400_000)).ok()
    for lease, status in ((completed, "completed"), (failed, "failed"), (suspended, "suspended")):
        for call, body in CALLS.items():
            error = (answer := lease.post(call, body)).refused(409, "already_applied")
            answer.expect(error.get("outcome", {}).get("status") == status, f"`outcome` with the status `{status}`")
    error = (answer := failed.fail("error")).refused(409, "already_applied")
    answer.expect(error["outcome"].get("failure", {}).get("class") == "permanent", "the stored failure's class, `permanent`, in `outcome`")


@check("protocol.md")
def refused_fenced(bench: Bench) -> None:
    """A lease that ended in another way, as one that was handed back, is refused `fenced` on every call."""
    session, run = bench.a_run()
    old = session.take(run)
    old.fail("returned").ok()
    new = session.take(run)
    _refuses_every_call(old, "fenced")
    new.complete().ok()
    _refuses_every_call(old, "fenced")


@check("protocol.md")
def refused_run_terminal(bench: Bench) -> None:
    """A lease that the end of its run has ended is refused `run_terminal` on every call."""
    session, run = bench.a_run()
    lease = session.take(run)
    bench.cancel(run)
    _refuses_every_call(lease, "run_terminal")


@check("protocol.md")
def refused_not_started(bench: Bench) -> None:
    """An `at_most_once` step that was not started can't be completed or failed: `not_started`; handing it back needs no `started`."""
    session, run = bench.a_run(delivery="at_most_once")
    first = session.lease(run)
    first.answer.expect(first["delivery"] == "at_most_once", "`delivery` at_most_once")
    first.fail("returned").shaped(ENDED)
    second = session.lease(run)
    second.complete("too early").refused(409, "not_started")
    second.fail("error").refused(409, "not_started")
    second.started().complete().ok()


@check("protocol.md")
def refused_unknown_lease(bench: Bench) -> None:
    """A call on a lease that nobody has is 404."""
    for call, body in CALLS.items():
        bench.wire.post(f"steps/{unknown_id()}/{call}", body).refused(404)
        bench.wire.post(f"steps/no-id-at-all/{call}", body).refused(404)


@check("engine.md")
def refused_changes_nothing(bench: Bench) -> None:
    """A refused call changes nothing: the first output stays, and the run goes on."""
    flow = bench.workflow("chain", step("one"), step("two", "one"))
    session = bench.session(flow)
    run = bench.start(flow)
    first = session.take(run)
    first.complete("first", state={"by": "first"}).ok()
    first.complete("second", state={"by": "second"}).refused(409, "already_applied")
    first.fail("permanent").refused(409, "already_applied")
    lease = session.take(run)
    lease.answer.expect((lease["input"], lease["state"]) == ("first", {"by": "first"}), "the first output as `input`, and its `state`")
    answer = lease.complete().shaped(ENDED)
    answer.expect(answer["run"] == "succeeded", "run `succeeded`")


@check("protocol.md")
def refused_in_groups(bench: Bench) -> None:
    """Grouped calls refuse each lease by the same rule as the single ones."""
    job = bench.job()
    session = bench.session(job)
    completed, returned = (session.take(bench.start(job)) for _ in range(2))
    completed.complete().ok()
    returned.fail("returned").ok()
    wanted = {completed.id: "already_applied", returned.id: "fenced"}
    asked: dict[str, tuple[str, list[Any]]] = {
        "started": ("leases", list(wanted)),
        "heartbeat": ("leases", [{"id": lease_id} for lease_id in wanted]),
        "outcomes": ("outcomes", [{"id": lease_id, "complete": {"output": 1}} for lease_id in wanted]),
    }
    for call, (name, items) in asked.items():
        answer = bench.wire.post(f"steps/{call}", {name: items}).ok()
        told = {each["id"]: each.get("error", {}).get("code") for each in answer[name]}
        answer.expect(told == wanted, f"the codes {wanted}")


@check("protocol.md")
def refused_is_acknowledged(bench: Bench) -> None:
    """Compensation waits for bodies that were cut short: a refused `fail` with class `returned` says that one has ended."""
    flow = bench.workflow("risky", step("left"), step("right"), on_failure=True)
    session = bench.session(flow)
    run = bench.start(flow, "payload")
    sides = {lease["step"]: lease.started() for lease in session.collect(2, run=run)}
    answer = sides["left"].fail("permanent", "no").shaped(ENDED)
    answer.expect(answer["run"] == "failing", "run `failing`")
    sides["right"].post("heartbeat").refused(409, "fenced")
    session.gives_nothing(run=run)
    sides["right"].fail("returned").refused(409, "fenced")
    lease = session.take(run)
    failure = lease["failure"] or {}
    lease.answer.expect((failure.get("class"), failure.get("step")) == ("permanent", "left"), "`failure` with the class `permanent` and the step `left`")
    lease.answer.expect(lease["input"] == "payload", "the input of the step that failed")
    last = lease.complete().shaped(ENDED)
    last.expect(last["run"] == "failed", "run `failed`")


@check("protocol.md")
def refused_to_other_keys(bench: Bench) -> None:
    """Only keys that may poll a lease's app may use it: for a key of another app there is no such lease, and no such session."""
    session, run = bench.a_run()
    lease = session.take(run)
    stranger = bench.other_key(POLL, app=bench.other_app())
    for call, body in CALLS.items():
        stranger.post(f"steps/{lease.id}/{call}", body).refused(404)
    told = stranger.post("steps/started", {"leases": [lease.id]}).ok()
    told.expect("error" in told["leases"][0], "an `error`")
    stranger.post("steps/claim", {"worker_id": session.id, "claim_id": "stranger", "max": 1, "wait_ms": 0, "serves": []}).refused(409, "unknown_worker")
    lease.complete().ok()


def _refuses_every_call(lease: Lease, code: str) -> None:
    for call, body in CALLS.items():
        lease.post(call, body).refused(409, code)
