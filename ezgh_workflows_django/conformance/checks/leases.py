"""Living leases: started, heartbeats, completions, alone and in groups."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote

from ..answers import Answer
from ..bench import Bench, unknown_id
from ..catalogue import check
from ..findings import NotApplicable
from ..sessions import Lease, same_json
from ..shapes import ENDED, EXTENDED, faults, moment
from ..workflows import step

BURST = 250
LARGE = 1_000_000
"""Characters of an output that is just below `MAX_PAYLOAD_BYTES`."""


@check("protocol.md")
def started_extends(bench: Bench) -> None:
    """`started` answers with when the lease ends, which is `lease_ttl_ms` from then."""
    session, run = bench.a_run()
    answer = session.lease(run).post("started").shaped(EXTENDED)
    ttl = bench.durations.lease_ttl
    answer.expect(ttl / 2 < answer["expires_in_ms"] <= ttl, f"`expires_in_ms` of about `lease_ttl_ms`, {ttl}")


@check("protocol.md")
def started_twice(bench: Bench) -> None:
    """`started` is idempotent: said again, it is accepted again."""
    session, run = bench.a_run()
    lease = session.lease(run)
    first = lease.post("started").shaped(EXTENDED)
    again = lease.post("started").shaped(EXTENDED)
    again.expect(moment(again["expires_at"]) >= moment(first["expires_at"]), f"`expires_at` of {first['expires_at']} or later")


@check("protocol.md")
def heartbeat_extends(bench: Bench) -> None:
    """A heartbeat extends the lease from then on, with or without `progress`."""
    session, run = bench.a_run()
    lease = session.take(run)
    first = lease.post("heartbeat").shaped(EXTENDED)
    time.sleep(0.05)
    second = lease.post("heartbeat", {"progress": {"done": 3, "of": 7}}).shaped(EXTENDED)
    second.expect(moment(second["expires_at"]) > moment(first["expires_at"]), f"`expires_at` later than {first['expires_at']}")
    ttl = bench.durations.lease_ttl
    second.expect(ttl / 2 < second["expires_in_ms"] <= ttl, f"`expires_in_ms` of about `lease_ttl_ms`, {ttl}")


@check("protocol.md")
def heartbeats_in_a_burst(bench: Bench) -> None:
    """Calls on leases are never throttled: many heartbeats in a burst are all answered."""
    session, run = bench.a_run()
    lease = session.take(run)
    for _ in range(BURST):
        lease.post("heartbeat").ok()


@check("protocol.md")
def grouped_started(bench: Bench) -> None:
    """A grouped `started` gives one answer each, by id; one that is refused is answered alone."""
    one, other = _two_leases(bench)
    answer = bench.wire.post("steps/started", {"leases": [one.id, (nobody := unknown_id()), other.id]}).ok()
    _extended_but_for(answer, [one.id, nobody, other.id], nobody)


@check("protocol.md")
def grouped_heartbeat(bench: Bench) -> None:
    """A grouped heartbeat gives one answer each, by id; one that is refused is answered alone."""
    one, other = _two_leases(bench)
    nobody = unknown_id()
    answer = bench.wire.post("steps/heartbeat", {"leases": [{"id": one.id, "progress": 1}, {"id": nobody}, {"id": other.id}]}).ok()
    _extended_but_for(answer, [one.id, nobody, other.id], nobody)


@check("protocol.md")
def grouped_outcomes(bench: Bench) -> None:
    """Grouped outcomes give one answer each; one that is refused, or can't be read, is answered alone and undoes no neighbour."""
    job = bench.job()
    session = bench.session(job)
    for number in range(3):
        bench.start(job, number)
    one, two, three = session.collect(3)
    asked: list[dict[str, Any]] = [
        {"id": one.id, "complete": {"output": 1}},
        {"id": unknown_id(), "complete": {"output": 2}},
        {"id": two.id, "fail": {"class": 5, "message": "no text"}},
        {"id": three.id, "fail": {"class": "permanent", "message": "as the check wants it"}},
        {"id": three.id, "complete": {"output": 3}},
    ]
    answer = bench.wire.post("steps/outcomes", {"outcomes": asked}).ok()
    told = answer["outcomes"]
    answer.expect(isinstance(told, list) and len(told) == len(asked), f"{len(asked)} answers")
    ended = [{"step": "succeeded", "run": "succeeded"}, {"step": "failed", "run": "failed"}]
    answer.expect([{name: told[place].get(name) for name in ENDED} for place in (0, 3)] == ended, f"of the first and the fourth: {ended}")
    answer.expect(all(isinstance(told[place].get("error"), dict) for place in (1, 2, 4)), "an `error` for each of the others")
    answer.expect(told[4]["error"].get("code") == "already_applied", "the fifth, of the same lease as the fourth: `already_applied`")
    two.complete().ok()


@check("protocol.md")
def complete(bench: Bench) -> None:
    """`complete` answers with the statuses of the step and of the run; with its last step the run has succeeded."""
    flow = bench.workflow("chain", step("one"), step("two", "one"))
    session = bench.session(flow)
    run = bench.start(flow)
    first = session.take(run).complete(1).shaped(ENDED)
    first.expect((first["step"], first["run"]) == ("succeeded", "running"), "step `succeeded`, run `running`")
    last = session.take(run).complete(2).shaped(ENDED)
    last.expect((last["step"], last["run"]) == ("succeeded", "succeeded"), "step `succeeded`, run `succeeded`")


@check("engine.md")
def complete_keeps_values(bench: Bench) -> None:
    """What was written is what is read: an output reaches the next step unchanged, with the order of its keys and the kind of its numbers."""
    flow = bench.workflow("chain", step("one"), step("two", "one"))
    session = bench.session(flow)
    run = bench.start(flow)
    value = {"z": 1, "a": 1.0, "large": 1e22, "long": 2**70, "small": 1e-7, "text": 'ünï"\\\u2028 ✓ 𝄞', "list": [[], {}, None, True, ""]}
    session.take(run).complete(value).ok()
    lease = session.lease(run)
    lease.answer.expect(same_json(lease["input"], value), f"`input`: {json.dumps(value, ensure_ascii=False)}")


@check("protocol.md")
def complete_patches_state(bench: Bench) -> None:
    """The `state` of a completion is a patch: its top-level keys replace those of the run's state, the others stay."""
    flow = bench.workflow("chain", step("one"), step("two", "one"), step("three", "two"))
    session = bench.session(flow)
    run = bench.start(flow)
    session.take(run).complete(state={"kept": 1, "replaced": {"old": 1}}).ok()
    session.take(run).complete(state={"replaced": {"new": 2}}).ok()
    lease = session.lease(run)
    wanted = {"kept": 1, "replaced": {"new": 2}}
    lease.answer.expect(lease["state"] == wanted, f"`state` {wanted}")


@check("protocol.md")
def complete_with_usage(bench: Bench) -> None:
    """A completion takes usage, its amounts decimals as text, and spans; an amount that is no decimal is 400 and ends nothing."""
    session, run = bench.a_run()
    lease = session.take(run)
    lease.complete(usage=[{"unit": "tokens", "amount": "many"}]).refused(400)
    now = lease.post("heartbeat").ok()["expires_at"]
    usage = [{"model": "some-model", "unit": "output_tokens", "amount": "12.50"}, {"unit": "pages", "amount": "3"}]
    outer = {"id": "00f067aa0ba902b7", "parent": lease["span_id"], "name": "call", "start": now, "end": now, "attributes": {"n": 1}}
    inner = {"id": "00f067aa0ba902b8", "parent": outer["id"], "name": "inner", "start": now, "end": now, "usage": usage}
    lease.complete(usage=usage, spans=[outer, inner]).shaped(ENDED)


@check("protocol.md")
def parts_by_reference(bench: Bench) -> None:
    """A lease that is too large for an answer comes with `parts`: each is left out at its place, and fetched by its reference with the lease's id."""
    names = [f"part-{number}" for number in range(9)]
    flow = bench.workflow("large", *map(step, names), step("join", *names))
    session = bench.session(flow)
    run = bench.start(flow)
    outputs = {}
    for lease in session.collect(len(names), run=run):
        outputs[lease["step"]] = lease["step"] + "x" * LARGE
        if (answer := lease.started().complete(outputs[lease["step"]])).status in (400, 413):
            raise NotApplicable(f"this server takes no output of {LARGE:,} characters")
        answer.ok()
    join = session.lease(run)
    if "parts" not in join.given:
        raise NotApplicable(f"this server sends {LARGE * len(names):,} characters in one answer")
    join.answer.expect(join["parts"] and isinstance(join["parts"], dict), "`parts`: an object of references by place")
    for place, reference in join["parts"].items():
        first, _, rest = place.partition("/")
        left = join.given.get(first, {}) if rest else join.given
        join.answer.expect((rest or first) not in left, f"{place} left out of the lease")
        part = bench.wire.get(f"steps/{join.id}/parts/{quote(reference, safe='')}")
        part.expect(part.status == 200, "200 with the part")
        wanted = {"input": outputs}.get(place, outputs.get(rest))
        part.expect(part.value == wanted, f"the value of {place}")
    bench.wire.get(f"steps/{join.id}/parts/nothing").refused(404)


@check("protocol.md")
def run_hides_leases(bench: Bench) -> None:
    """The run endpoints never show the id of a lease."""
    session, run = bench.a_run()
    lease = session.take(run)
    for path in (f"runs/{run}", f"runs/{run}/journal"):
        answer = bench.look(path)
        answer.expect(lease.id not in json.dumps(answer.value), f"no lease id ({lease.id})")


def _two_leases(bench: Bench) -> list[Lease]:
    job = bench.job()
    session = bench.session(job)
    for number in range(2):
        bench.start(job, number)
    return session.collect(2)


def _extended_but_for(answer: Answer, ids: list[str], refused: str) -> None:
    told = {each.get("id"): each for each in answer["leases"]}
    answer.expect(sorted(told) == sorted(ids) and len(answer["leases"]) == len(ids), "one answer for each id")
    others = [told[lease_id] for lease_id in ids if lease_id != refused]
    answer.expect(not [fault for each in others for fault in faults(each, {"expires_in_ms": EXTENDED["expires_in_ms"]})], "`expires_in_ms` of those that live")
    answer.expect(isinstance(told[refused].get("error"), dict) and told[refused]["error"].get("code"), "an `error` with a `code` for the unknown one")
