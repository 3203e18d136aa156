"""A server that breaks one promise fails the check of that promise: our own, in this process, falsified in one way at a time."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import httpx
import pytest

from ezgh_workflows_django.conformance import Asked, run
from ezgh_workflows_django.conformance.catalogue import CHECKS
from ezgh_workflows_django.conformance.findings import Outcome
from ezgh_workflows_django.conformance.runner import OWN_APP
from ezgh_workflows_django.worker.transports.http import Line
from tests.api.conftest import MakeKey
from tests.api.lies import (
    EMPTY,
    NEVER,
    YES,
    Falsified,
    Lie,
    Told,
    always,
    asked,
    checkpoints_without,
    class_is_another,
    each_lease,
    in_process,
    last_write_wins,
    lease_ids_shown,
    leases,
    refusal,
    refused,
    refuses_what_it_does_not_know,
    second_time,
    started_by_itself,
    statuses,
    stuck,
    throttled,
    told,
    told_without,
    unheard,
    with_fields,
    without,
)

LIES: Mapping[str, tuple[str, Lie]] = {
    "the same content is another version": ("register-same-content", told("/register", lambda answer: answer.but(definitions=[{"version": uuid.uuid4().hex}]))),
    "some definitions are stored for nobody": ("register-without-definitions", told("/register", lambda answer: answer.but(definitions=[{"name": "a"}]))),
    "a name is a session": ("register-new-session", stuck("/register", "worker_id")),
    "a definition has one version for ever": ("register-other-content", stuck("/register", "definitions")),
    "schemas make another version": ("register-input-schemas", told("/register", lambda answer: answer.but(definitions=[{"version": uuid.uuid4().hex}]))),
    "a callable key is any fault": ("register-callable-key", refused("invalid", refusal(400, "invalid"))),
    "durations are texts": ("register-answer", told("/register", lambda answer: answer.but(lease_ttl_ms="30 s"))),
    "faults have no names": ("register-all-faults", refused("invalid", refusal(400, "invalid"))),
    "a thousand and more are taken": ("register-at-most-1000", asked("/register", lambda body: {**body, "definitions": body["definitions"][:1000]})),
    "another's project is one's own": ("register-elsewhere", asked("/register", without("organization", "project"))),
    "the permission is not named": ("register-needs-sync", refused("forbidden", refusal(403, "forbidden"))),
    "nobody leaves": ("leave", unheard("/leave", Told(200, {}))),
    "announcements are not heard": ("announce", asked("/claim", without("announce"))),
    "anything can be announced": ("announce-unknown", refused("unknown_definition", EMPTY)),
    "anybody announces": ("announce-needs-sync", refused("forbidden", EMPTY)),
    "a start waits for a worker": ("start-not-announced", refused("workflow_not_announced", Told(201, {"id": "one"}))),
    "an old version starts": ("start-newest-version", leases(version=always("0" * 16))),
    "a start with a key is another run": ("start-idempotency-key", asked("/runs", without("idempotency_key"))),
    "later is now": ("start-later", asked("/runs", without("delay_ms"))),
    "labels are lost": ("start-reaches-the-lease", leases(labels=always({}))),
    "moments without their zone": ("lease-fields", leases(expires_at=lambda text: text.rstrip("Z"))),
    "the trace is another's": ("lease-fields", leases(trace_id=always("1" * 32))),
    "ancestors are forgotten": ("lease-input", leases(steps=always({}))),
    "nothing is null": ("claim-empty", told("/claim", lambda answer: answer.but(leases=answer.value["leases"] or None))),
    "a step is offered twice": ("claim-each-step-once", stuck("/claim", "leases")),
    "a claim id means nothing": ("claim-id", asked("/claim", lambda body: {**body, "claim_id": uuid.uuid4().hex})),
    "more than was asked for": ("claim-max", asked("/claim", with_fields(max=10))),
    "any run will do": ("claim-run", asked("/claim", without("run"))),
    "any step will do": ("claim-serves", asked("/claim", lambda body: {**body, "serves": [without("steps")(each) for each in body["serves"]]})),
    "unknown workers are welcome": ("claim-unknown", refused("unknown_worker", EMPTY)),
    "there is no end of a run": ("claim-run-terminal", refused("run_terminal", EMPTY)),
    "no rest between claims": ("claim-rests", told_without("/claim", "retry_after_ms")),
    "started can't be repeated": ("started-twice", second_time("/started", refusal(409, "already_applied"))),
    "started gives no time": ("started-extends", told("/started", lambda answer: answer.but(expires_in_ms=1))),
    "heartbeats are too many": ("heartbeats-in-a-burst", throttled("/heartbeat", 100)),
    "one start is missing": ("grouped-started", told("/steps/started", lambda answer: answer.but(leases=answer.value["leases"][1:]))),
    "heartbeats change nothing": ("heartbeat-extends", told("/heartbeat", lambda answer: answer.but(expires_at=NEVER))),
    "one answer is missing": ("grouped-heartbeat", told("/steps/heartbeat", lambda answer: answer.but(leases=answer.value["leases"][1:]))),
    "a neighbour is undone": ("grouped-outcomes", told("/outcomes", lambda answer: answer.but(outcomes=answer.value["outcomes"][:1] * 5))),
    "a run never ends": ("complete", told("/complete", lambda answer: answer.but(run="running"))),
    "a part is another's": ("parts-by-reference", told("/parts/input", lambda answer: Told(200, "x"))),
    "the order of keys is lost": ("complete-keeps-values", leases(input=lambda value: dict(sorted(value.items())) if value else value)),
    "a patch is all of the state": ("complete-patches-state", leases(state=lambda state: dict(list(state.items())[-1:]))),
    "usage is not looked at": ("complete-with-usage", refused("invalid", YES)),
    "a lease is shown": ("run-hides-leases", lease_ids_shown()),
    "nobody says when it is tried again": ("fail-retry-at", told_without("/fail", "retry_at")),
    "the rest is forgotten": ("fail-retry-at", asked("/fail", without("retry_after_ms"))),
    "tokens stay": ("fail-tries-again", leases(token=always(1))),
    "each try has a key of its own": ("fail-tries-again", leases(idempotency_key=lambda _: uuid.uuid4().hex)),
    "there is always another try": ("fail-spends-the-budget", told("/fail", lambda answer: answer.but(step="ready"))),
    "own classes are refused": ("fail-classes", class_is_another("card_declined", "Card Declined")),
    "a message may not be empty": ("fail-with-any-message", asked("/fail", lambda body: body if body.get("message") else {})),
    "what can't be stored is taken": ("complete-refuses-values", refused("invalid", YES, "/complete")),
    "too much is a fault of the server": ("complete-refuses-too-much", refused("payload_too_large", refusal(500, "oops"), "/complete")),
    "permanent is tried again": ("fail-by-policy", class_is_another("permanent", "error")),
    "anybody gives the engine's classes": ("fail-refuses-classes", class_is_another("orphaned", "error")),
    "handing back costs a try": ("fail-returned", class_is_another("returned", "error")),
    "unservable bans nobody": ("fail-unservable", class_is_another("unservable", "returned")),
    "a completion counts twice": ("refused-already-applied", refused("already_applied", YES)),
    "the stored outcome is not told": ("refused-already-applied", refused("already_applied", refusal(409, "already_applied"))),
    "a fenced worker hears yes": ("refused-fenced", refused("fenced", YES)),
    "the end of a run is a fence": ("refused-run-terminal", refused("run_terminal", refusal(409, "fenced"))),
    "nobody has to start": ("refused-not-started", started_by_itself),
    "an unknown lease is a conflict": ("refused-unknown-lease", statuses(404, 409)),
    "the last output stays": ("refused-changes-nothing", leases(input=always("second"))),
    "compensation waits for nobody": ("refused-is-acknowledged", leases(failure=always(None))),
    "groups are not refused": (
        "refused-in-groups",
        told("/steps/heartbeat", lambda answer: answer.but(leases=[*map(without("error"), answer.value["leases"])])),
    ),
    "a stranger's lease is forbidden": ("refused-to-other-keys", statuses(404, 403)),
    "the last write wins": ("checkpoint-first-write-wins", last_write_wins),
    "no inner step is tried again": ("checkpoint-retry", asked("/checkpoint", without("retry"))),
    "no checkpoint is final": ("checkpoint-final", told("/checkpoint", lambda answer: answer.but(final=False))),
    "checkpoints in no order": ("checkpoint-in-the-lease", leases(checkpoints=lambda value: value[::-1])),
    "a step may wait for nothing": ("suspend-needs-waits", refused("invalid", Told(200, {"step": "waiting"}), "/suspend")),
    "checkpoints are lost": ("suspend-sleep", leases(checkpoints=always([]))),
    "going on is another attempt": ("suspend-sleep", each_lease(lambda lease: {"attempt": lease["attempt"] + bool(lease["checkpoints"])})),
    "a payload is lost": ("suspend-event", checkpoints_without("output")),
    "what the children came to is lost": (
        "children-are-waited-for",
        checkpoints_without("output"),
    ),
    "one wait is as good as all": ("suspend-modes", asked("/suspend", with_fields(mode="any"))),
    "an early event is lost": ("suspend-event-before", checkpoints_without("output")),
    "nobody says that it is too late": ("suspend-timeout", checkpoints_without("timed_out")),
    "each call starts children": ("children-once", asked("/children", lambda body: {**body, "name": uuid.uuid4().hex})),
    "children are strangers": ("children-inherit", leases(labels=always({}))),
    "children are fenced": ("children-are-cancelled", refused("run_terminal", refusal(409, "fenced"))),
    "children of nobody": ("children-refuses", refused("invalid", Told(200, {"runs": []}), "/children")),
    "errors have another shape": ("error-shape", refused(None, Told(400, {"detail": "no"}))),
    "a stranger is forbidden": ("error-needs-key", statuses(401, 403)),
    "revoked keys live on": ("error-revoked-key", lambda path, body, forward: Told(200, {}) if "/keys/" in path else forward(path, body)),
    "unknown fields are refused": ("error-ignores-unknown-fields", refuses_what_it_does_not_know),
    "unknown values are taken": ("error-refuses-unknown-values", refused("invalid", YES, "/suspend")),
    "what can't be read is a fault of the server": ("error-without-failing", statuses(400, 500)),
    "too much is merely invalid": ("error-too-large", statuses(413, 400)),
}


@pytest.mark.live  # only for the time they take together
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found_by_its_check(key: MakeKey, lie: str) -> None:
    check, falsify = LIES[lie]

    def connect(key: str) -> Line:
        return Line("http://testserver/", key, through=Falsified(falsify, in_process))

    [result] = run(connect(key("admin")), connect, Asked(only=[check])).results
    assert result.outcome is Outcome.FAILED, result


def test_each_check_that_does_not_wait_has_a_lie_that_fails_it() -> None:
    assert {check for check, _ in LIES.values()} == {each.name for each in CHECKS.values() if each.takes is None} - {"claim-wakes"}


@pytest.mark.parametrize("answer", [Told(200, {}), Told(200, []), Told(500, {"error": {"code": "oops", "message": "no"}})], ids=["{}", "[]", "500"])
def test_a_server_that_says_the_same_to_everything_passes_no_check(answer: Told) -> None:
    opening = iter([refusal(409, "app_exists"), Told(200, {"worker_id": "w"}), Told(200, {})])

    def handle(request: httpx.Request) -> httpx.Response:
        status, value = next(opening, answer)
        return httpx.Response(status, json=value)

    line = Line("http://testserver/", "ezw_any_key", through=httpx.MockTransport(handle))
    report = run(line, lambda key: line, Asked(slow=True))
    assert report.app == OWN_APP
    assert [result.check.name for result in report.results if result.outcome is not Outcome.FAILED] == []
    assert len(report.results) == len(CHECKS)
