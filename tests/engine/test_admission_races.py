"""Admissions that meet: with each other, with starts, ends, cancels, retries and pauses, on real connections (I6; case B20)."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from ezgh_workflows_django import Concurrency, RateLimit, Retry
from ezgh_workflows_django.engine import admission, gates, leases, locking, maintenance, outcomes, slots
from ezgh_workflows_django.engine.handles import RunHandle
from ezgh_workflows_django.errors import ConcurrencyLimit, StartBusy, VerbRefused, WorkflowsError
from ezgh_workflows_django.models import Gate, Run
from ezgh_workflows_django.protocol.outcomes import Outcome, Report
from tests.engine.conftest import Desk
from tests.engine.graphs import Undo, body, job, undone
from tests.engine.threads import PATIENCE, answer_of, begin, elsewhere, together
from tests.invariant_guard import broken
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("transactional_db")


def one(limit: int = 1, **options: Any) -> Any:
    """One step, and so many runs at a time of each payload."""
    policy = {"on_limit": options.pop("on_limit", "queue")}
    return job("one", concurrency=Concurrency(limit, key_expr="payload", **policy), **options)


def at_work() -> Counter[str | None]:
    """How many slots of each key are held: one statement, so one moment."""
    return Counter(Run.objects.filter(slots.HOLD_SLOTS, bucket__isnull=False).values_list("slot_key", flat=True))


def stand_of(*runs: Any) -> list[str]:
    """The status of each."""
    return [run.status for run in runs]


def drain(desk: Desk) -> None:
    """Ticks until nobody is marked."""
    for _ in range(20):
        desk.advance(seconds=1)
        if not Run.objects.filter(slot_at__isnull=False).exists():
            return
    raise AssertionError("marks are left")


def test_starts_at_one_moment_are_let_in_up_to_the_limit(desk: Desk) -> None:
    workflow = one(2)
    workflow.start("warm")
    with sampled(2):
        together([partial(workflow.start_many, ["a", "b", "a"])] * 6)
    assert at_work() == {"a": 2, "b": 2, "warm": 1}
    drain(desk)
    assert broken() == []


def test_two_looks_at_one_moment_let_in_one_and_none_is_forgotten(desk: Desk) -> None:
    """Each started in a transaction that is committed by itself, and looked at by everybody at once."""
    workflow = one()
    hand = desk.worker(workflow)
    workflow.start_many(["a"] * 5)
    for ended in range(5):
        [lease] = hand.claim(1)
        leases.started([lease.id])
        together([lambda lease=lease: hand.complete(lease), *[maintenance.tick] * 2, lambda: admission.look(*_family(), _marked())])  # type: ignore[misc]
        drain(desk)
        assert at_work() == ({"a": 1} if ended < 4 else {})


def _family() -> tuple[int, str]:
    run = Run.objects.all()[0]
    return run.app_id, run.workflow


def _marked() -> list[Run]:
    return list(Run.objects.filter(slot_at__isnull=False))


@pytest.mark.parametrize("meets", ["cancel", "pause", "start"])
def test_an_end_that_meets_a_move_of_the_next_in_line_leaves_nobody_behind(desk: Desk, meets: str) -> None:
    """B20 (e): whoever is first, the slot is given to somebody who may have it."""
    workflow = one()
    hand = desk.worker(workflow)
    for turn in range(4):
        _, second, _ = workflow.start_many([f"k{turn}"] * 3)
        moves: dict[str, Callable[[], object]] = {"cancel": second.cancel, "pause": second.pause, "start": partial(workflow.start, f"k{turn}")}
        lease = next(lease for lease in hand.claim() if lease.input == f"k{turn}")
        leases.started([lease.id])
        together([partial(hand.complete, lease), moves[meets]])
        drain(desk)
        assert at_work()[f"k{turn}"] == 1
    assert broken() == []


@pytest.mark.long
def test_a_retry_that_meets_the_admission_of_the_next_never_makes_it_two(desk: Desk) -> None:
    workflow = one()
    hand = desk.worker(workflow)

    def retry(run: Any) -> None:
        while isinstance(answer_of(run.retry)(), VerbRefused):
            pass  # it has not failed yet

    with sampled(1):
        for turn in range(5):
            first, second = workflow.start_many([f"k{turn}"] * 2)
            lease = next(lease for lease in hand.claim() if lease.input == f"k{turn}")
            together([partial(hand.fail, lease, "permanent"), partial(retry, first), maintenance.tick])
            drain(desk)
            assert sorted(stand_of(first, second)) == ["queued", "running"]


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer: nobody looks while another holds a row")
@pytest.mark.parametrize("rate", [None, RateLimit(10, per=60)], ids=["slots", "turns too"])
@pytest.mark.parametrize("what", ["run", "gate"])
def test_what_somebody_holds_is_looked_at_again_and_nothing_is_forgotten(desk: Desk, what: str, rate: RateLimit | None) -> None:
    workflow = one(rate=rate)
    hand = desk.worker(workflow)
    first, second = workflow.start_many(["a", "a"])
    lease = hand.take()
    drain(desk)
    with transaction.atomic():
        if what == "run":
            locking.hold(second.id)
        else:
            gates.lock([first.run.bucket])
        waits = what == "gate" and rate is None  # only where a rate's row is held already is a gate not waited for
        completing = begin(partial(hand.complete, lease))
        if not waits:
            completing.result(PATIENCE)
            elsewhere(desk.tick)
            assert elsewhere(lambda: stand_of(first, second)) == ["succeeded", "queued"]
    completing.result(PATIENCE)
    if not waits:
        assert second.status == "queued"
        desk.advance(seconds=1)
    assert second.status == "running"
    drain(desk)


def test_of_many_rejecting_starts_at_one_moment_as_many_pass_as_there_are_slots(desk: Desk) -> None:
    workflow = one(3, on_limit="reject")
    workflow.start("warm")
    answers = together([answer_of(partial(workflow.start, "a"))] * 8)
    refused = [answer for answer in answers if isinstance(answer, ConcurrencyLimit)]
    assert (len(refused), Run.objects.filter(slot_key="a").count(), at_work()["a"]) == (5, 3, 3)


def test_a_rejecting_start_waits_for_one_that_is_not_committed_and_is_let_in_where_that_is_rolled_back(desk: Desk) -> None:
    """B88 for slots: no deadlock, and the caller's transaction survives."""
    workflow = one(on_limit="reject")
    workflow.start("warm")
    begun: list[Any] = []

    def start_and_let_another_try() -> None:
        workflow.start("a")
        begun.append(begin(answer_of(partial(workflow.start, "a"))))
        time.sleep(0.1)
        assert not begun[0].done()

    undone(start_and_let_another_try)
    assert begun[0].result(PATIENCE).status == "running"


def neighbour(workflow: Any, run_id: str) -> str:
    """A key whose bucket has another door than that of "a": there are not as many doors as there are buckets."""
    app_id = Run.objects.get(pk=run_id).app_id
    doors = {key: gates._door(slots.bucket_of(app_id, workflow.name, key)) for key in "abcdef"}
    return next(key for key in doors if doors[key] != doors["a"])


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer: a caller's transaction holds it anyway")
def test_two_transactions_that_start_in_each_others_buckets_end_in_a_word_not_in_a_deadlock(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ezgh_workflows_django.engine.doors.BUSY_AFTER_SECONDS", 0.5)
    workflow = one(on_limit="reject")
    other = neighbour(workflow, workflow.start("warm").id)
    met = threading.Barrier(2)

    def cross(first: str, then: str) -> str:
        with transaction.atomic():
            workflow.start(first)
            met.wait(PATIENCE)
            try:
                workflow.start(then)
            except (StartBusy, ConcurrencyLimit) as error:
                return type(error).__name__
        return "both"

    answers = together([partial(cross, "a", other), partial(cross, other, "a")])
    assert "StartBusy" in answers
    assert Counter(Run.objects.exclude(slot_key="warm").values_list("slot_key", flat=True)) == {"a": 1, other: 1}
    assert elsewhere(lambda: Gate.objects.count()) >= 1


def test_only_the_newest_is_left_of_many_that_come_at_one_moment(desk: Desk) -> None:
    workflow = one(on_limit="cancel_oldest")
    workflow.start("a")
    with sampled(1):
        together([partial(workflow.start, "a")] * 6)
        drain(desk)
    assert at_work()["a"] == 1
    assert Counter(Run.objects.values_list("status", flat=True)) == {"running": 1, "cancelled": 6}


class Mix:
    """Threads that start, work, cancel, retry, pause, resume and tick on a few buckets for a while."""

    def __init__(self, desk: Desk, workflow: Any, seconds: float) -> None:
        self.desk, self.workflow = desk, workflow
        self.hands = [desk.worker(workflow, name=f"w{n}") for n in range(2)]
        self.until = time.monotonic() + seconds
        self.errors: list[BaseException] = []

    def run(self) -> None:
        """Let them all go."""
        works: list[Callable[[], object]] = [self.start, self.start, self.meddle, self.meddle, maintenance.tick]
        works += [partial(self.work, hand) for hand in self.hands]
        together([partial(self._loop, work) for work in works])

    def start(self) -> None:
        """Some runs of some keys, some of them for a little later, some in a transaction that is rolled back."""
        keys = random.choices("abc", k=random.randint(1, 5))
        try:
            with transaction.atomic():
                self.workflow.start_many(keys)
                if random.random() < 0.2:
                    raise Undo
        except (Undo, WorkflowsError):
            pass
        time.sleep(0.01)

    def work(self, hand: Any) -> None:
        """Claim, and end each in some way."""
        offered = hand.claim(random.randint(1, 3))
        leases.started([lease.id for lease in offered])
        ends = [Outcome.completed(), Outcome.failed("permanent", "boom"), Outcome.failed("error", "boom")]
        outcomes.report([Report(lease.id, random.choice(ends)) for lease in offered])

    def meddle(self) -> None:
        """Some operator's verb on some run."""
        pk = Run.objects.order_by("?").values_list("pk", flat=True).first()
        if pk is not None:
            handle = RunHandle(pk)
            verb: Any = random.choice([handle.cancel, handle.pause, handle.resume, handle.resume, handle.retry, handle.retry])
            answer = answer_of(verb)()
            if isinstance(answer, BaseException) and not isinstance(answer, WorkflowsError):
                raise answer
        time.sleep(0.003)

    def _loop(self, work: Callable[[], object]) -> None:
        try:
            while time.monotonic() < self.until and not self.errors:
                work()
        except BaseException as error:
            self.errors.append(error)
            raise


@pytest.mark.parametrize(("limit", "on_limit"), [(1, "queue"), (2, "cancel_oldest"), (2, "reject")])
def test_whatever_happens_at_once_the_limit_holds_and_the_line_drains(desk: Desk, limit: int, on_limit: str) -> None:
    """I6 throughout; then everybody who is still in line is let in and ends."""
    workflow = one(limit, on_limit=on_limit, retry=Retry(2, initial=0.01), on_failure=body)
    mix = Mix(desk, workflow, 1.0)
    with sampled(limit):
        mix.run()
        drain(desk)
        assert broken() == []
        for run in Run.objects.filter(status="paused"):
            RunHandle(run.pk).resume()
        for _ in range(2_000):
            desk.advance(seconds=1)
            if not sum(hand.work_off() for hand in mix.hands) and not Run.objects.exclude(status__in=["succeeded", "failed", "cancelled"]).exists():
                break
    assert Run.objects.exclude(status__in=["succeeded", "failed", "cancelled"]).count() == 0
    drain(desk)
    assert broken() == []
