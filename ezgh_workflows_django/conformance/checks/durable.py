"""Durable functions: checkpoints, suspensions and what ends them, child runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ..answers import Answer
from ..bench import Bench
from ..catalogue import check
from ..sessions import Lease, Session
from ..shapes import CHECKPOINT, MOMENT, PARKED, TEXTS, faults, moment
from ..workflows import AT_ONCE, ONCE_MORE, Spec, event, sleep

HOUR_MS = 3_600_000
FAILURE = {"class": "error", "message": "as the check wants it"}


@check("protocol.md")
def checkpoint_first_write_wins(bench: Bench) -> None:
    """The first checkpoint of a name wins; a repeated name gives back what is stored, and its state is stored once."""
    _, session, run = _begun(bench)
    lease = session.take(run)
    first = lease.checkpoint("charge", 1, output={"id": 7}, state={"charged": 1}).ok()
    first.expect((first["name"], first["output"]) == ("charge", {"id": 7}), 'the name and the output {"id": 7}')
    again = lease.checkpoint("charge", 1, output={"id": 8}, state={"charged": 2}).ok()
    again.expect(again["output"] == {"id": 7}, 'the output {"id": 7}')
    lease.suspend(sleep("nap", 1, pos=2)).shaped(PARKED)
    later = session.lease(run)
    later.answer.expect(later["state"] == {"charged": 1}, '`state` {"charged": 1}')


@check("protocol.md")
def checkpoint_in_the_lease(bench: Bench) -> None:
    """A lease carries its step's checkpoints in the order of `pos`, with what they came to; a new attempt has those of the one before."""
    _, session, run = _begun(bench, retry=AT_ONCE)
    lease = session.take(run)
    lease.checkpoint("one", 1, output={"n": 1}).ok()
    lease.checkpoint("two", 2, error=FAILURE).ok()
    lease.fail("error").ok()
    later = session.lease(run)
    later.answer.expect(later["attempt"] == 2, "`attempt` 2")
    _carries(later, "one", "two")
    later.answer.expect(later.brought("one").get("output") == {"n": 1}, 'the output {"n": 1} of `one`')
    later.answer.expect(later.brought("two").get("error", {}).get("class") == "error", "the class of the error of `two`")


@check("protocol.md")
def checkpoint_retry(bench: Bench) -> None:
    """An inner step that failed is answered with `retry_at` while its policy has a try left, and is then final."""
    _, session, run = _begun(bench)
    lease = session.take(run)
    far = lease.checkpoint("rare", 1, error=FAILURE, retry={**AT_ONCE, "initial_ms": HOUR_MS, "maximum_ms": HOUR_MS}).ok()
    far.expect(MOMENT.holds(far["retry_at"]) and far.value.get("final") is not True, "`retry_at`, and not `final`")
    earliest = lease.server_time() + timedelta(milliseconds=HOUR_MS - 60_000)
    far.expect(moment(far["retry_at"]) > earliest, f"`retry_at` in about an hour, after {earliest.isoformat()}")
    first = lease.checkpoint("soon", 2, error=FAILURE, retry=ONCE_MORE).ok()
    first.expect(MOMENT.holds(first["retry_at"]), "`retry_at`: a moment in RFC 3339, in UTC")
    lease.suspend({"name": "soon", "kind": "retry"}).shaped(PARKED)
    later = _resumed(session, run, lease)
    last = later.checkpoint("soon", 2, error=FAILURE, retry=ONCE_MORE).ok()
    last.expect(last["final"] is True and "retry_at" not in last.value, "`final`, and no `retry_at`")


@check("protocol.md")
def checkpoint_final(bench: Bench) -> None:
    """An inner step that failed without a policy, or whose class the policy leaves out, is final."""
    _, session, run = _begun(bench)
    lease = session.take(run)
    for place, retry in enumerate((None, {**AT_ONCE, "on": ["retryable"]}), 1):
        answer = lease.checkpoint(f"step-{place}", place, error=FAILURE, **({} if retry is None else {"retry": retry})).ok()
        answer.expect(answer["final"] is True and "retry_at" not in answer.value, "`final`, and no `retry_at`")


@check("protocol.md")
def suspend_needs_waits(bench: Bench) -> None:
    """A suspend without waits is refused with 400; the lease lives on."""
    _, session, run = _begun(bench)
    lease = session.take(run)
    lease.suspend().refused(400)
    lease.complete().ok()


@check("protocol.md")
def suspend_sleep(bench: Bench) -> None:
    """A parked step holds no lease, and is ready again when its wait is met: the same attempt, a new lease, a greater token."""
    _, session, run = _begun(bench)
    lease = session.take(run)
    lease.checkpoint("one", 1, output=1).ok()
    answer = lease.suspend(sleep("nap", 300, pos=2)).shaped(PARKED)
    answer.expect(answer["step"] in ("sleeping", "waiting", "ready"), "step `sleeping`, `waiting`, or `ready` if that is over already")
    later = _resumed(session, run, lease)
    _carries(later, "one", "nap")
    later.answer.expect(later.brought("nap").get("kind") == "sleep", "the kind `sleep` of `nap`")


@check("protocol.md")
def suspend_event(bench: Bench) -> None:
    """A wait for an event is met by one of that name and key; its payload is the checkpoint's output."""
    _, session, run = _begun(bench)
    lease, name = session.take(run), bench.named("approved")
    answer = lease.suspend(event("approval", name, "A-1")).shaped(PARKED)
    answer.expect(answer["step"] == "waiting", "step `waiting`")
    bench.emit(name, "a-1", "another key")
    session.gives_nothing(run=run)
    bench.emit(name, "A-1", {"by": "ann"})
    later = _resumed(session, run, lease)
    brought = later.brought("approval")
    later.answer.expect((brought.get("kind"), brought.get("output")) == ("event", {"by": "ann"}), 'the kind `event`, and the output {"by": "ann"}')


@check("engine.md")
def suspend_event_before(bench: Bench) -> None:
    """An event that came before its wait, but not before the run, is not lost: the step is ready again at once."""
    _, session, run = _begun(bench)
    lease, name = session.take(run), bench.named("approved")
    bench.emit(name, "", "early")
    lease.suspend(event("approval", name)).shaped(PARKED)
    later = _resumed(session, run, lease)
    later.answer.expect(later.brought("approval").get("output") == "early", 'the output "early"')


@check("protocol.md")
def suspend_timeout(bench: Bench) -> None:
    """A wait whose `timeout_ms` has passed is met too, and says `timed_out`."""
    _, session, run = _begun(bench)
    lease = session.take(run)
    lease.suspend(event("approval", bench.named("never"), timeout_ms=200, on_timeout="continue")).shaped(PARKED)
    later = _resumed(session, run, lease)
    later.answer.expect(later.brought("approval").get("timed_out") is True, "`timed_out` true")


@check("protocol.md")
def suspend_modes(bench: Bench) -> None:
    """With `mode` "all" every wait has to be met, with "any" one is enough."""
    job = bench.job()
    session = bench.session(job)
    one, other = bench.named("one"), bench.named("other")
    waits = [event("first", one), event("second", other, pos=2)]
    parked = {mode: session.take(bench.start(job)) for mode in ("all", "any")}
    for mode, lease in parked.items():
        lease.suspend(*waits, mode=mode).shaped(PARKED)
    bench.emit(one, "", 1)
    early = _resumed(session, parked["any"]["run_id"], parked["any"])
    early.answer.expect(early.brought("first").get("output") == 1, "the output 1 of `first`")
    session.gives_nothing(run=parked["all"]["run_id"])
    bench.emit(other, "", 2)
    late = _resumed(session, parked["all"]["run_id"], parked["all"])
    outputs = [late.brought(name).get("output") for name in ("first", "second")]
    late.answer.expect(outputs == [1, 2], "the outputs 1 and 2 of `first` and `second`")


@check("protocol.md")
def children_once(bench: Bench) -> None:
    """Child runs are started once per name, in the order of their payloads; the same call again gives back the same runs."""
    kid, session, run = _begun(bench)
    lease = session.take(run)
    first = _told(bench, lease.children("kids", 1, kid, ["a", "b"]))
    again = lease.children("kids", 1, kid, ["a", "b"]).ok()
    again.expect(again["runs"] == first, f"the runs {first}")
    for kid_run, payload in zip(first, ("a", "b"), strict=True):
        child = session.lease(kid_run)
        child.answer.expect(child["input"] == payload, f"`input` {payload!r}")
    session.gives_nothing(max=10)


@check("engine.md")
def children_inherit(bench: Bench) -> None:
    """A child has its parent's labels, correlation id and trace."""
    given = {"labels": {"order": "A-1"}, "correlation_id": "A-1"}
    kid, session, run = _begun(bench, given)
    lease = session.take(run)
    [kid_run] = _told(bench, lease.children("kid", 1, kid, [None]))
    child, wanted = session.lease(kid_run), {**given, "trace_id": lease["trace_id"]}
    child.answer.expect({name: child[name] for name in wanted} == wanted, f"{wanted}")


@check("protocol.md")
def children_are_waited_for(bench: Bench) -> None:
    """A parent that waits for its children is ready again when none is at work any more, with what each came to."""
    kid, session, run = _begun(bench)
    lease = session.take(run)
    kids = _told(bench, lease.children("kids", 1, kid, [1, 2]))
    lease.suspend({"name": "kids", "kind": "child", "runs": kids}).shaped(PARKED)
    session.take(kids[0]).complete("done").ok()
    session.gives_nothing(run=run)
    session.take(kids[1]).fail("permanent").ok()
    later = _resumed(session, run, lease)
    told = later.brought("kids").get("output") or []
    later.answer.expect([each.get("run") for each in told] == kids, f"a list of what the runs {kids} came to")
    said = [(each.get("status"), each.get("output"), each.get("error", {}).get("class")) for each in told]
    wanted = [("succeeded", "done", None), ("failed", None, "permanent")]
    later.answer.expect(said == wanted, "of the first the status `succeeded` and the output, of the second `failed` and the error's class")


@check("engine.md")
def children_are_cancelled(bench: Bench) -> None:
    """The cancel of a parent reaches its children."""
    kid, session, run = _begun(bench)
    kids = _told(bench, session.take(run).children("kids", 1, kid, [1, 2]))
    child = session.take(kids[0])
    bench.cancel(run)
    for kid_run in kids:
        session.ends(kid_run)
    child.complete().refused(409, "run_terminal")


@check("protocol.md")
def children_refuses(bench: Bench) -> None:
    """Children of an unknown workflow, or under a name that is something else, are refused with 400; the lease lives on."""
    kid, session, run = _begun(bench)
    lease = session.take(run)
    lease.children("kids", 1, {**kid, "name": bench.named("nothing")}, [1]).refused(400)
    lease.checkpoint("taken", 1, output=1).ok()
    lease.children("taken", 1, kid, [1]).refused(400)
    lease.complete().ok()


def _begun(bench: Bench, of_start: Mapping[str, Any] | None = None, **options: Any) -> tuple[Spec, Session, str]:
    """A workflow for children, a session that serves it and the parent's, and a run of the parent."""
    parent, kid = bench.job("parent", **options), bench.job("kid")
    return kid, bench.session(parent, kid), bench.start(parent, **(of_start or {}))


def _resumed(session: Session, run: str, before: Lease) -> Lease:
    """The lease in which a parked step goes on."""
    lease = session.lease(run)
    lease.answer.expect(lease["attempt"] == before["attempt"], f"the same attempt, {before['attempt']}")
    lease.answer.expect(lease.id != before.id and lease["token"] > before["token"], f"another lease, with a token over {before['token']}")
    return lease


def _carries(lease: Lease, *names: str) -> None:
    """Expect that these are the checkpoints of a lease, in this order."""
    told: list[Mapping[str, Any]] = lease["checkpoints"]
    wrong = [fault for each in told for fault in faults(each, CHECKPOINT)]
    lease.answer.expect(not wrong, "in each checkpoint: " + ("; ".join(wrong) or ", ".join(CHECKPOINT)))
    lease.answer.expect([each["name"] for each in told] == list(names), f"`checkpoints` named {', '.join(names)}")


def _told(bench: Bench, answer: Answer) -> list[str]:
    """The child runs that a call has started."""
    runs = answer.ok()["runs"]
    answer.expect(TEXTS.holds(runs), "`runs`: a list of ids")
    for run in runs:
        bench.keep_run(run)
    return list(runs)
