"""Starting runs: what a start brings to the lease, and what it refuses."""

from __future__ import annotations

from ..bench import Bench
from ..catalogue import check
from ..sessions import same_json
from ..shapes import TEXT

DAY_MS = 86_400_000


@check("protocol.md")
def start_reaches_the_lease(bench: Bench) -> None:
    """A start is answered 201 with the run's id; its payload, labels and correlation id are in the run's leases, as they were given."""
    job = bench.job()
    session = bench.session(job)
    payload = {"z": 1, "a": [1.5, 2**53 + 1, None, True, "naïve ✓"], "nested": {"empty": {}}}
    labels = {"order": "A-1", "Order": "a-1"}
    answer = bench.ask_start(job, payload=payload, labels=labels, correlation_id="case 7").ok(201)
    answer.expect(TEXT.holds(answer["id"]), "`id`: a text that is not empty")
    lease = session.lease(str(answer["id"]))
    lease.answer.expect(same_json(lease["input"], payload), "`input`: the payload, unchanged")
    lease.answer.expect((lease["labels"], lease["correlation_id"]) == (labels, "case 7"), "the run's `labels` and `correlation_id`")


@check("api.md")
def start_not_announced(bench: Bench) -> None:
    """A start of a workflow that no worker announces is 409 `workflow_not_announced`."""
    bench.ask_start(bench.job()).refused(409, "workflow_not_announced")


@check("api.md")
def start_idempotency_key(bench: Bench) -> None:
    """A start with a known idempotency key is 200 with the run that has it; with another payload it is 409 `idempotency_conflict`."""
    job = bench.job()
    bench.session(job)
    key = bench.named("key")
    first = bench.ask_start(job, payload={"n": 1}, idempotency_key=key).ok(201)
    again = bench.ask_start(job, payload={"n": 1}, idempotency_key=key).ok(200)
    again.expect(again["id"] == first["id"], f"the run {first['id']}")
    bench.ask_start(job, payload={"n": 2}, idempotency_key=key).refused(409, "idempotency_conflict")


@check("protocol.md")
def start_later(bench: Bench) -> None:
    """A run that is to start later, by `delay_ms` or `at`, is not offered before; both at once are 400."""
    job = bench.job()
    session = bench.session(job)
    just_now = session.take(bench.start(job)).server_time().replace(microsecond=0).isoformat()
    session.gives_nothing(run=bench.start(job, delay_ms=DAY_MS))
    session.lease(bench.start(job, delay_ms=200))
    session.lease(bench.start(job, at=just_now))
    bench.ask_start(job, delay_ms=1, at=just_now).refused(400)


@check("api.md")
def start_newest_version(bench: Bench) -> None:
    """A start pins the newest stored version among those that are announced."""
    old, new = bench.job(timeout_ms=60_000), bench.job(timeout_ms=90_000)
    session = bench.session(old)
    version = bench.session(new).told["definitions"][0]["version"]
    lease = session.lease(bench.start(new))
    lease.answer.expect(lease["version"] == version, f"`version` {version}")
