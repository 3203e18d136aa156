"""Failures: which classes there are, what is tried again and when, what is handed back, and what can't be stored."""

from __future__ import annotations

from datetime import timedelta

from ..bench import Bench
from ..catalogue import check
from ..findings import NotApplicable
from ..shapes import ENDED, MOMENT, moment
from ..workflows import AT_ONCE, ONCE_MORE

HOUR_MS = 3_600_000
CLASSES = ("retryable", "permanent", "error", "timeout", "nondeterminism", "crashed", "card_declined", "x" * 64)
ENGINE_CLASSES = ("orphaned", "poison", "deadline")
NO_CLASSES = ("", "Card Declined", "card-declined", "x" * 65)


@check("protocol.md")
def fail_retry_at(bench: Bench) -> None:
    """A failure that is tried again is answered with `retry_at`, not before `retry_after_ms`; until then the step is not offered."""
    session, run = bench.a_run(retry=AT_ONCE)
    lease = session.take(run)
    before = lease.server_time()
    answer = lease.fail("retryable", retry_after_ms=HOUR_MS).shaped(ENDED)
    answer.expect((answer["step"], answer["run"]) == ("ready", "running"), "step `ready`, run `running`")
    answer.expect(MOMENT.holds(answer["retry_at"]), "`retry_at`: a moment in RFC 3339, in UTC")
    earliest = before + timedelta(milliseconds=HOUR_MS)
    answer.expect(moment(answer["retry_at"]) >= earliest, f"`retry_at` of {earliest.isoformat()} or later")
    session.gives_nothing(run=run)


@check("engine.md")
def fail_tries_again(bench: Bench) -> None:
    """The next try is a lease of its own: the next attempt, a greater token, the same idempotency key."""
    session, run = bench.a_run(retry=AT_ONCE)
    first = session.take(run)
    first.fail("error").shaped(ENDED)
    second = session.take(run)
    second.answer.expect(second.id != first.id and second["token"] > first["token"], f"another lease, with a token over {first['token']}")
    second.answer.expect(second["attempt"] == 2, "`attempt` 2")
    second.answer.expect(second["idempotency_key"] == first["idempotency_key"], f"`idempotency_key` {first['idempotency_key']}")
    second.complete().ok()


@check("engine.md")
def fail_spends_the_budget(bench: Bench) -> None:
    """When the policy's attempts are spent the step has failed, and the run with it; without a policy the first failure is the last."""
    job, once = bench.job(retry=ONCE_MORE), bench.job("once")
    session = bench.session(job, once)
    run = bench.start(job)
    session.take(run).fail("error").shaped(ENDED)
    for last in (session.take(run), session.take(bench.start(once))):
        answer = last.fail("error").shaped(ENDED)
        answer.expect((answer["step"], answer["run"]) == ("failed", "failed"), "step `failed`, run `failed`")
        answer.expect("retry_at" not in answer.value, "no `retry_at`")


@check("authoring.md")
def fail_by_policy(bench: Bench) -> None:
    """A policy that names classes tries only those again; `permanent` is never tried again."""
    anything, declined = bench.job("anything", retry=AT_ONCE), bench.job("declined", retry={**AT_ONCE, "on": ["card_declined"]})
    session = bench.session(anything, declined)
    ends = {"permanent": bench.start(anything), "error": bench.start(declined), "card_declined": bench.start(declined)}
    told = {name: session.take(run).fail(name).shaped(ENDED) for name, run in ends.items()}
    for name, wanted in {"permanent": "failed", "error": "failed", "card_declined": "ready"}.items():
        told[name].expect(told[name]["step"] == wanted, f"step `{wanted}`")


@check("protocol.md")
def fail_classes(bench: Bench) -> None:
    """A failure has one of the protocol's classes, or any `[a-z0-9_]{1,64}` of the user's."""
    job = bench.job()
    session = bench.session(job)
    for name in CLASSES:
        answer = session.take(bench.start(job)).fail(name, type="app.errors.Failure").shaped(ENDED)
        answer.expect(answer["step"] == "failed", "step `failed`")


@check("protocol.md")
def fail_refuses_classes(bench: Bench) -> None:
    """`orphaned`, `poison`, `deadline`, and what is no class at all are refused with 400; the lease lives on."""
    session, run = bench.a_run()
    lease = session.take(run)
    for name in (*ENGINE_CLASSES, *NO_CLASSES):
        lease.fail(name).refused(400)
    lease.complete().ok()


@check("protocol.md")
def fail_returned(bench: Bench) -> None:
    """A lease that is handed back (`returned`) spends no budget and bans nobody: the step is ready again, and offered to the same worker."""
    session, run = bench.a_run()
    first = session.lease(run)
    answer = first.fail("returned").shaped(ENDED)
    answer.expect(answer["step"] == "ready", "step `ready`")
    second = session.take(run)
    second.answer.expect(second["attempt"] == 1, "`attempt` 1: the body has not run")
    second.answer.expect(second["token"] > first["token"], f"a token over {first['token']}")
    second.fail("returned").shaped(ENDED)
    session.take(run).complete().ok()


@check("protocol.md")
def fail_unservable(bench: Bench) -> None:
    """An `unservable` step goes back without a loss, and is not offered to that session again for that definition; to others it is."""
    job = bench.job()
    session, other = bench.session(job), bench.session(job)
    run = bench.start(job)
    answer = session.lease(run).fail("unservable").shaped(ENDED)
    answer.expect(answer["step"] == "ready", "step `ready`")
    session.gives_nothing(run=run)
    lease = other.take(run)
    lease.answer.expect(lease["attempt"] == 1, "`attempt` 1")
    lease.complete().ok()


@check("engine.md")
def fail_with_any_message(bench: Bench) -> None:
    """A failure can always be reported: whatever its message holds, it is taken."""
    job = bench.job()
    session = bench.session(job)
    for message in ("a NUL \0 in it", "", "ünï ✓ 𝄞" * 10_000):
        session.take(bench.start(job)).fail("error", message).shaped(ENDED)


@check("engine.md")
def complete_refuses_values(bench: Bench) -> None:
    """What can't be stored is refused with 400, naming where it is, and nothing of it is kept: the lease lives on."""
    session, run = bench.a_run()
    lease = session.take(run)
    error = (answer := lease.complete({"items": [1, "a NUL \0 in it"]})).refused(400)
    answer.expect("items" in str(error), "the place of the NUL, `items`, in the error")
    deep: list[object] = []
    for _ in range(150):
        deep = [deep]
    lease.complete(deep).refused(400)
    lease.complete("stored").ok()


@check("engine.md")
def complete_refuses_too_much(bench: Bench) -> None:
    """An output over `MAX_PAYLOAD_BYTES` is refused with 400 or 413, and nothing of it is kept: the lease lives on."""
    session, run = bench.a_run()
    lease = session.take(run)
    answer = lease.complete("x" * 9_000_000)
    if answer.status == 200:
        raise NotApplicable("this server takes an output of 9,000,000 characters")
    answer.refused(413 if answer.status == 413 else 400)
    lease.complete("stored").ok()
