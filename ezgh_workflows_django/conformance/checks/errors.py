"""Errors: their one shape, what is ignored, what is refused, and that no request makes the server fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..answers import Answer
from ..bench import POLL, Bench, unknown_id
from ..catalogue import check
from ..findings import NotApplicable
from ..shapes import error_faults
from ..workflows import event, serve, sleep, step
from .refusals import CALLS

STRANGER: Final = "ezw_conformance_nobody"
MORE: Final[dict[str, Any]] = {"conformance_unknown": {"nested": [1, None]}}
MEBIBYTE: Final = 1024 * 1024


@check("api.md")
def error_shape(bench: Bench) -> None:
    """Every error has one shape, `{"error": {"code", "message", "fields"?}}`; a 400 names every bad field."""
    session = bench.session(bench.job())
    error = (answer := session.claim(max="ten", wait_ms=-1)).refused(400, "invalid")
    answer.expect({"max", "wait_ms"} <= set(error.get("fields", {})), "`max` and `wait_ms` in `fields`")
    bench.wire.post(f"steps/{unknown_id()}/complete").refused(404)
    session.claim(worker_id=unknown_id()).refused(409)
    bench.wire.get("steps/claim").refused(405)


@check("api.md")
def error_needs_key(bench: Bench) -> None:
    """Every call needs a key that is known: else it is 401, and nothing is done."""
    session, run = bench.a_run()
    lease = session.lease(run)
    stranger = bench.with_key(STRANGER)
    bench.register(wire=stranger).refused(401)
    stranger.post("steps/claim", {"worker_id": session.id, "claim_id": "stranger", "max": 1, "wait_ms": 0, "serves": session.serves}).refused(401)
    stranger.post(f"workers/{session.id}/leave").refused(401)
    for call, body in CALLS.items():
        stranger.post(f"steps/{lease.id}/{call}", body).refused(401)
    stranger.post("steps/started", {"leases": [lease.id]}).refused(401)
    stranger.post("steps/heartbeat", {"leases": [{"id": lease.id}]}).refused(401)
    stranger.post("steps/outcomes", {"outcomes": [{"id": lease.id, "complete": {}}]}).refused(401)
    stranger.get(f"steps/{lease.id}/parts/input").refused(401)
    lease.started().complete().ok()


@check("protocol.md")
def error_revoked_key(bench: Bench) -> None:
    """A key is checked on every request: once it is revoked, the next call with it is 401."""
    job = bench.job()
    bench.session(job)
    poller = bench.other_key(POLL)
    session = bench.session(wire=poller)
    lease = session.lease(bench.start(job), serves=[serve(job)])
    lease.started()
    bench.revoke_keys()
    session.claim().refused(401)
    lease.post("heartbeat").refused(401)


@check("protocol.md")
def error_ignores_unknown_fields(bench: Bench) -> None:
    """Request fields that the server does not know are ignored, in every call."""
    flow = bench.workflow("flow", step("one"), step("two"), step("three"))
    told = bench.register({**flow, **MORE}, **MORE).ok()
    plain = bench.session(flow)
    plain.told.expect(plain.told["definitions"] == told["definitions"], "the version of the same definition without the unknown field")
    run = str(bench.ask_start(flow, **MORE).ok(201)["id"])
    one, two, three = plain.collect(3, run=run, **MORE)
    for lease in (one, two, three):
        lease.post("started", MORE).ok()
        lease.post("heartbeat", MORE).ok()
    bench.wire.post("steps/heartbeat", {"leases": [{"id": one.id, **MORE}], **MORE}).ok()
    one.checkpoint("inner", 1, output=1, **MORE).ok()
    one.suspend({**sleep("nap", 86_400_000, pos=2), **MORE}, **MORE).ok()
    two.complete(**MORE).ok()
    three.fail("permanent", **MORE).ok()


@check("protocol.md")
def error_refuses_unknown_values(bench: Bench) -> None:
    """A value that an enum does not have is refused with 400, wherever it stands; the lease lives on."""
    job = bench.job()
    bench.register({**job, "steps": [{"name": "work", "kind": "jump"}]}).refused(400)
    bench.register(bench.workflow("twice", step("work", delivery="exactly_twice"))).refused(400)
    lease = bench.session(job).take(bench.start(job))
    lease.suspend({"name": "nap", "kind": "doze", "ms": 1}).refused(400)
    lease.suspend(sleep("nap", 1), mode="most").refused(400)
    lease.suspend(event("approval", "approved", on_timeout="explode")).refused(400)
    lease.post("checkpoint", {"name": "inner", "pos": 1, "kind": "guess", "output": 1}).refused(400)
    lease.complete().ok()


@check("api.md")
def error_without_failing(bench: Bench) -> None:
    """No request makes the server fail: what it can't read is a 400 in the shape of errors, and no 5xx."""
    session, run = bench.a_run()
    lease = session.take(run)
    for field, value in _UNREADABLE_CLAIMS:
        _is_refused(session.claim(**{field: value}))
    for field, value in _UNREADABLE_REGISTRATIONS:
        _is_refused(bench.register(**{field: value}))
    for call, body in _UNREADABLE:
        _is_refused(lease.post(call, body))
    for path in ("steps/started", "steps/heartbeat", "steps/outcomes"):
        _is_refused(bench.wire.post(path, {"leases": 5, "outcomes": 5}))
    for text in (b'{"worker": ', b"[1]", b'"text"', b"\xff\xfe", b'{"max": NaN}', b"[" * 100_000):
        _is_refused(bench.wire.post("steps/claim", text))
        _is_refused(bench.wire.post(f"steps/{lease.id}/complete", text))
    lease.complete().ok()


@check("protocol.md")
def error_too_large(bench: Bench) -> None:
    """A request over `MAX_REQUEST_BYTES` is 413, before it is read."""
    answer = bench.wire.post("steps/heartbeat", {"leases": [], "padding": "x" * (16 * MEBIBYTE + 1)}, hold=20)
    if answer.status == 200 and answer["leases"] == []:
        raise NotApplicable("this server takes requests of more than 16 MiB")
    answer.refused(413)


_UNREADABLE_CLAIMS: Final[tuple[tuple[str, Any], ...]] = (
    ("worker_id", 5),
    ("claim_id", None),
    ("claim_id", "x" * 65),
    ("max", True),
    ("max", 2**70),
    ("wait_ms", 1.5),
    ("serves", "all"),
    ("serves", [1]),
    ("serves", [{"name": "job"}]),
    ("announce", ["no version"]),
    ("run", 5),
)
_UNREADABLE_REGISTRATIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("app", 5),
    ("worker", ""),
    ("worker", "a NUL \0 in it"),
    ("definitions", {}),
    ("definitions", ["job"]),
    ("concurrency", "many"),
)
_UNREADABLE: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    ("complete", {"state": [1]}),
    ("complete", {"usage": {"tokens": 5}}),
    ("complete", {"spans": "none"}),
    ("fail", {}),
    ("fail", {"class": ["error"], "message": "m"}),
    ("fail", {"class": "error", "message": "m", "retry_after_ms": -1}),
    ("fail", {"class": "error", "message": "m", "retry_after_ms": 2**80}),
    ("suspend", {}),
    ("suspend", {"waits": {"name": "nap"}}),
    ("suspend", {"waits": [sleep("nap", -1)]}),
    ("suspend", {"waits": [sleep("nap", 1), sleep("nap", 1)]}),
    ("suspend", {"waits": [{"name": "kids", "kind": "child", "runs": ["nobody"]}]}),
    ("suspend", {"waits": [{"name": "soon", "kind": "retry"}]}),
    ("checkpoint", {"name": "", "pos": 1, "kind": "step", "output": 1}),
    ("checkpoint", {"name": "one", "pos": "first", "kind": "step", "output": 1}),
    ("checkpoint", {"name": "one", "pos": 1, "kind": "step", "error": "none"}),
    ("checkpoint", {"name": "one", "pos": 1, "kind": "step", "error": {"class": "error", "message": "m"}, "retry": {"max_attempts": "all"}}),
    ("children", {"name": "kids", "pos": 1}),
    ("children", {"name": "kids", "pos": 1, "workflow": 5, "payloads": [1]}),
)


def _is_refused(answer: Answer) -> None:
    answer.expect(answer.status == 400 and not error_faults(answer.value), "400 in the shape of errors")
