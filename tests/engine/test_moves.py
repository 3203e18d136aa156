"""The table of moves, walked: what every verb does in every state, as data. A pair that is missing here fails the suite."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any, Final

import pytest

from ezgh_workflows_django.engine import episodes, events, runs
from ezgh_workflows_django.errors import VerbRefused
from ezgh_workflows_django.protocol.durable import Started, Stored
from ezgh_workflows_django.protocol.messages import Extension
from ezgh_workflows_django.protocol.outcomes import Answer
from ezgh_workflows_django.protocol.states import RUN_MOVES, LeaseStatus, RunStatus, StepStatus
from tests import invariant_guard
from tests.engine import situations
from tests.engine.conftest import Desk
from tests.engine.graphs import event
from tests.engine.situations import LEASES, Scene, pair, scene
from tests.rollback import rolled_back


def of(verb: Callable[..., Any], *arguments: Any) -> Callable[[Scene], Any]:
    """A verb that is given the scene's run."""
    return lambda it: verb(it.handle.id, *arguments)


def pass_deadline(it: Scene) -> None:
    """The run's deadline goes by. A queued run is due before it: the first tick admits it, the second ends it."""
    it.desk.advance(hours=2)
    it.desk.tick()


RUN_VERBS: Final[Mapping[str, Callable[[Scene], Any]]] = {
    "cancel": of(runs.cancel),
    "pause": of(runs.pause),
    "resume": of(episodes.resume),
    "retry": of(episodes.retry),
    "resolve": of(episodes.resolve, "work", {"by": "hand"}, "it was done by telephone"),
    "signal": of(events.signal, "called", {"from": "outside"}),
    "deadline": pass_deadline,
}


def row(*outcomes: str) -> Mapping[str, str]:
    """One state's outcomes, in the order of the verbs."""
    return dict(zip(RUN_VERBS, outcomes, strict=True))


RUNS: Final[Mapping[str, tuple[RunStatus, Callable[[Desk], Scene]]]] = {
    "queued": (RunStatus.QUEUED, situations.queued_run),
    "running": (RunStatus.RUNNING, situations.running_run),
    "paused": (RunStatus.PAUSED, situations.paused_run),
    "needs attention": (RunStatus.PAUSED, situations.needy_run),
    "failing": (RunStatus.FAILING, situations.failing_run),
    "succeeded": (RunStatus.SUCCEEDED, situations.succeeded_run),
    "failed": (RunStatus.FAILED, situations.failed_run),
    "cancelled": (RunStatus.CANCELLED, situations.cancelled_run),
    "timed out": (RunStatus.TIMED_OUT, situations.timed_out_run),
}

RUN_TABLE: Final[Mapping[str, Mapping[str, str]]] = {
    # verb:                  cancel         pause          resume         retry          resolve        signal         deadline
    "queued": row(          "cancelled",   "paused",      "queued",      "VerbRefused", "VerbRefused", "queued",      "timed_out"),
    "running": row(         "cancelled",   "paused",      "running",     "VerbRefused", "VerbRefused", "running",     "timed_out"),
    "paused": row(          "cancelled",   "paused",      "running",     "VerbRefused", "VerbRefused", "paused",      "timed_out"),
    "needs attention": row( "cancelled",   "paused",      "running",     "running",     "running",     "paused",      "timed_out"),
    "failing": row(         "failed",      "paused",      "failing",     "VerbRefused", "VerbRefused", "failing",     "failing"),
    "succeeded": row(       "RunTerminal", "RunTerminal", "RunTerminal", "VerbRefused", "VerbRefused", "RunTerminal", "succeeded"),
    "failed": row(          "RunTerminal", "RunTerminal", "RunTerminal", "running",     "running",     "RunTerminal", "failed"),
    "cancelled": row(       "cancelled",   "RunTerminal", "RunTerminal", "running",     "VerbRefused", "RunTerminal", "cancelled"),
    "timed out": row(       "RunTerminal", "RunTerminal", "RunTerminal", "running",     "VerbRefused", "RunTerminal", "timed_out"),
}  # fmt: skip
"""What a verb leaves the run in, or the error that refuses it."""

STEPS: Final[Mapping[str, tuple[StepStatus, Callable[[Desk], Scene]]]] = {
    "blocked": (StepStatus.BLOCKED, situations.blocked_step),
    "ready": (StepStatus.READY, situations.running_run),
    "leased": (StepStatus.LEASED, situations.leased_step),
    "waiting": (StepStatus.WAITING, situations.waiting_step),
    "parked, waiting": (StepStatus.WAITING, situations.parked_waiting_step),
    "sleeping": (StepStatus.SLEEPING, situations.sleeping_step),
    "parked, sleeping": (StepStatus.SLEEPING, situations.parked_sleeping_step),
    "succeeded": (StepStatus.SUCCEEDED, situations.succeeded_step),
    "failed": (StepStatus.FAILED, situations.failed_run),
    "cancelled": (StepStatus.CANCELLED, situations.cancelled_run),
}

STEP_TABLE: Final[Mapping[str, Mapping[str, str]]] = {
    # verb:                  cancel         pause          resume         retry          resolve        signal         deadline
    "blocked": row(          "cancelled",   "blocked",     "blocked",     "VerbRefused", "VerbRefused", "blocked",     "cancelled"),
    "ready": row(            "cancelled",   "ready",       "ready",       "VerbRefused", "VerbRefused", "ready",       "cancelled"),
    "leased": row(           "cancelled",   "leased",      "leased",      "VerbRefused", "VerbRefused", "leased",      "cancelled"),
    "waiting": row(          "cancelled",   "waiting",     "waiting",     "VerbRefused", "succeeded",   "succeeded",   "cancelled"),
    "parked, waiting": row(  "cancelled",   "waiting",     "waiting",     "VerbRefused", "succeeded",   "ready",       "cancelled"),
    "sleeping": row(         "cancelled",   "sleeping",    "sleeping",    "VerbRefused", "VerbRefused", "sleeping",    "cancelled"),
    "parked, sleeping": row( "cancelled",   "sleeping",    "sleeping",    "VerbRefused", "VerbRefused", "sleeping",    "cancelled"),
    "succeeded": row(        "succeeded",   "succeeded",   "succeeded",   "VerbRefused", "VerbRefused", "succeeded",   "succeeded"),
    "failed": row(           "RunTerminal", "RunTerminal", "RunTerminal", "ready",       "succeeded",   "RunTerminal", "failed"),
    "cancelled": row(        "cancelled",   "RunTerminal", "RunTerminal", "ready",       "VerbRefused", "RunTerminal", "cancelled"),
}  # fmt: skip
"""What a verb on its run leaves the step `work` in, or the error that refuses it."""


def failure(class_: str) -> Callable[[Scene], Answer]:
    """`fail` with that class."""
    return lambda it: it.hand.fail(it.offered, class_)


LEASE_VERBS: Final[Mapping[str, Callable[[Scene], Any]]] = {
    "started": lambda it: it.hand.start(it.offered),
    "heartbeat": lambda it: it.hand.beat(it.offered),
    "complete": lambda it: it.hand.complete(it.offered, {"done": True}),
    "error": failure("error"),
    "retryable": failure("retryable"),
    "permanent": failure("permanent"),
    "timeout": failure("timeout"),
    "returned": failure("returned"),
    "unservable": failure("unservable"),
    "crashed": failure("crashed"),
    "checkpoint": lambda it: it.hand.checkpoint(it.offered, "probe", {"done": True}),
    "suspend": lambda it: it.hand.park(it.offered, event("never")),
    "children": lambda it: it.hand.children(it.offered, "all", it.workflow, [1, 2]),
    "claim again": lambda it: it.hand.claim(1, claim_id=it.claim_id),
    "maintenance": lambda it: it.desk.advance(seconds=31),
}


def live(**outcomes: str) -> Mapping[str, str]:
    """A live lease's outcomes, by verb: what it leaves the lease and the step in."""
    return {name.replace("_", " "): outcome for name, outcome in outcomes.items()}


def over(lease: LeaseStatus, reason: str, step: str) -> Mapping[str, str]:
    """A lease that has ended: every call is refused for one reason, its claim gives nothing back, nothing moves it."""
    unmoved = f"{lease} {step}"
    return {**dict.fromkeys(LEASE_VERBS, f"{reason} {unmoved}"), "claim again": f"nothing {unmoved}", "maintenance": unmoved}


LEASE_TABLE: Final[Mapping[tuple[str, str], Mapping[str, str]]] = {
    ("at_least_once", "offered"): live(
        started="started leased",
        heartbeat="offered leased",
        complete="completed succeeded",
        error="failed ready",
        retryable="failed ready",
        permanent="failed failed",
        timeout="timed_out ready",
        returned="returned ready",
        unservable="unservable ready",
        crashed="failed ready",
        checkpoint="offered leased",
        suspend="suspended waiting",
        children="offered leased",
        claim_again="same offered leased",
        maintenance="reclaimed ready",
    ),
    ("at_least_once", "started"): live(
        started="started leased",
        heartbeat="started leased",
        complete="completed succeeded",
        error="failed ready",
        retryable="failed ready",
        permanent="failed failed",
        timeout="timed_out ready",
        returned="returned ready",
        unservable="unservable ready",
        crashed="failed ready",
        checkpoint="started leased",
        suspend="suspended waiting",
        children="started leased",
        claim_again="same started leased",
        maintenance="orphaned leased",
    ),
    ("at_least_once", "orphaned"): live(
        started="started leased",
        heartbeat="started leased",
        complete="completed succeeded",
        error="failed ready",
        retryable="failed ready",
        permanent="failed failed",
        timeout="timed_out ready",
        returned="returned ready",
        unservable="unservable ready",
        crashed="failed ready",
        checkpoint="started leased",
        suspend="suspended waiting",
        children="started leased",
        claim_again="same orphaned leased",
        maintenance="reclaimed ready",
    ),
    ("at_most_once", "offered"): live(
        started="started leased",
        heartbeat="offered leased",
        complete="not_started offered leased",
        error="not_started offered leased",
        retryable="not_started offered leased",
        permanent="not_started offered leased",
        timeout="not_started offered leased",
        returned="returned ready",
        unservable="unservable ready",
        crashed="not_started offered leased",
        checkpoint="not_started offered leased",
        suspend="not_started offered leased",
        children="not_started offered leased",
        claim_again="same offered leased",
        maintenance="reclaimed ready",
    ),
    ("at_most_once", "started"): live(
        started="started leased",
        heartbeat="started leased",
        complete="completed succeeded",
        error="failed ready",
        retryable="failed ready",
        permanent="failed failed",
        timeout="timed_out ready",
        returned="returned failed",
        unservable="unservable failed",
        crashed="failed failed",
        checkpoint="started leased",
        suspend="suspended waiting",
        children="started leased",
        claim_again="same started leased",
        maintenance="orphaned leased",
    ),
    ("at_most_once", "orphaned"): live(
        started="started leased",
        heartbeat="started leased",
        complete="completed succeeded",
        error="failed ready",
        retryable="failed ready",
        permanent="failed failed",
        timeout="timed_out ready",
        returned="returned failed",
        unservable="unservable failed",
        crashed="failed failed",
        checkpoint="started leased",
        suspend="suspended waiting",
        children="started leased",
        claim_again="same orphaned leased",
        maintenance="reclaimed failed",
    ),
    ("at_least_once", "completed"): over(LeaseStatus.COMPLETED, "already_applied", "succeeded"),
    ("at_least_once", "failed"): over(LeaseStatus.FAILED, "already_applied", "ready"),
    ("at_least_once", "suspended"): over(LeaseStatus.SUSPENDED, "already_applied", "waiting"),
    ("at_least_once", "returned"): over(LeaseStatus.RETURNED, "fenced", "ready"),
    ("at_least_once", "unservable"): over(LeaseStatus.UNSERVABLE, "already_applied", "ready"),
    ("at_least_once", "timed out by its worker"): over(LeaseStatus.TIMED_OUT, "already_applied", "ready"),
    ("at_least_once", "timed out by the engine"): over(LeaseStatus.TIMED_OUT, "fenced", "ready"),
    ("at_least_once", "cancelled by the run"): over(LeaseStatus.CANCELLED, "run_terminal", "cancelled"),
    ("at_least_once", "cancelled by a sibling"): over(LeaseStatus.CANCELLED, "fenced", "cancelled"),
    ("at_least_once", "reclaimed"): over(LeaseStatus.RECLAIMED, "fenced", "ready"),
    ("at_most_once", "completed"): over(LeaseStatus.COMPLETED, "already_applied", "succeeded"),
    ("at_most_once", "failed"): over(LeaseStatus.FAILED, "already_applied", "ready"),
    ("at_most_once", "suspended"): over(LeaseStatus.SUSPENDED, "already_applied", "waiting"),
    ("at_most_once", "returned"): over(LeaseStatus.RETURNED, "fenced", "failed"),
    ("at_most_once", "unservable"): over(LeaseStatus.UNSERVABLE, "already_applied", "ready"),
    ("at_most_once", "timed out by its worker"): over(LeaseStatus.TIMED_OUT, "already_applied", "ready"),
    ("at_most_once", "timed out by the engine"): over(LeaseStatus.TIMED_OUT, "fenced", "failed"),
    ("at_most_once", "cancelled by the run"): over(LeaseStatus.CANCELLED, "run_terminal", "cancelled"),
    ("at_most_once", "cancelled by a sibling"): over(LeaseStatus.CANCELLED, "fenced", "cancelled"),
    ("at_most_once", "reclaimed"): over(LeaseStatus.RECLAIMED, "fenced", "failed"),
}
"""What a worker's verb is told (a refusal, or what a claim gave), and what it leaves the lease and its step in; `work` has retries left."""


def outcome(it: Scene, verb: str) -> str:
    """What a run verb's error is called, or nothing where it is accepted."""
    try:
        RUN_VERBS[verb](it)
    except VerbRefused as error:
        return type(error).__name__
    return ""


def heard(answer: Any) -> str:
    """What a worker's call was told: a refusal's reason, whether a claim gave leases, or nothing."""
    if isinstance(answer, (Answer, Extension, Stored, Started)):
        return answer.refused.reason if answer.refused else ""
    if isinstance(answer, tuple):
        return "same" if answer else "nothing"
    return ""


@contextmanager
def again(it: Scene) -> Iterator[Scene]:
    """The scene, for one verb of several: what it does is undone, and the clock goes back."""
    now = it.desk.now
    with rolled_back():
        yield copy(it)
        invariant_guard.look()
    it.desk.now = now


@pytest.mark.parametrize("state", RUN_TABLE)
def test_a_verb_moves_a_run_as_the_table_says(desk: Desk, subtests: pytest.Subtests, state: str) -> None:
    made = RUNS[state][1](desk)
    for verb in RUN_VERBS:
        with subtests.test(verb), again(made) as it:
            assert it.handle.status == RUNS[state][0]
            assert (outcome(it, verb) or it.handle.status) == RUN_TABLE[state][verb]


@pytest.mark.parametrize("state", RUN_TABLE)
def test_a_refused_verb_changes_nothing(desk: Desk, subtests: pytest.Subtests, state: str) -> None:
    made = RUNS[state][1](desk)
    before = situations.everything(made.handle)
    for verb in RUN_VERBS:
        if RUN_TABLE[state][verb] in ("VerbRefused", "RunTerminal"):
            with subtests.test(verb), again(made) as it:
                outcome(it, verb)
                assert situations.everything(it.handle) == before


@pytest.mark.parametrize("state", STEP_TABLE)
def test_a_verb_moves_a_step_as_the_table_says(desk: Desk, subtests: pytest.Subtests, state: str) -> None:
    made = STEPS[state][1](desk)
    for verb in RUN_VERBS:
        with subtests.test(verb), again(made) as it:
            assert desk.step(it.handle, "work").status == STEPS[state][0]
            assert (outcome(it, verb) or desk.step(it.handle, "work").status) == STEP_TABLE[state][verb]


@pytest.mark.parametrize(("delivery", "state"), LEASE_TABLE)
def test_a_call_moves_a_lease_as_the_table_says(desk: Desk, subtests: pytest.Subtests, delivery: str, state: str) -> None:
    status, bring_about = LEASES[state]
    made = scene(desk, pair(delivery))
    bring_about(made)
    for verb, call in LEASE_VERBS.items():
        with subtests.test(verb), again(made) as it:
            assert desk.lease(it.offered).status == status
            said = heard(call(it))
            left = f"{said} {desk.lease(it.offered).status} {desk.step(it.handle, 'work').status}".strip()
            assert left == LEASE_TABLE[delivery, state][verb]


def test_the_tables_hold_every_pair_of_a_state_and_a_verb() -> None:
    assert {RUNS[state][0] for state in RUN_TABLE} == set(RunStatus)
    assert {STEPS[state][0] for state in STEP_TABLE} == set(StepStatus)
    assert {LEASES[state][0] for _, state in LEASE_TABLE} == set(LeaseStatus)
    assert set(LEASE_TABLE) == set(itertools.product(["at_least_once", "at_most_once"], LEASES))
    assert {frozenset(outcomes) for outcomes in [*RUN_TABLE.values(), *STEP_TABLE.values()]} == {frozenset(RUN_VERBS)}
    assert {frozenset(outcomes) for outcomes in LEASE_TABLE.values()} == {frozenset(LEASE_VERBS)}


@pytest.mark.parametrize(("state", "verb"), [(state, verb) for state, becomes in RUN_TABLE.items() for verb in RUN_VERBS if becomes[verb] in set(RunStatus)])
def test_every_move_of_a_run_is_one_of_the_protocols(state: str, verb: str) -> None:
    """A queued run whose deadline passes is admitted on its way: each of its moves is looked at by itself elsewhere."""
    before, after = RUNS[state][0], RunStatus(RUN_TABLE[state][verb])
    assert after == before or after in RUN_MOVES[before]


def test_compensation_that_takes_a_day_is_given_up(desk: Desk) -> None:
    it = situations.failing_run(desk)
    desk.advance(hours=24)
    assert it.handle.status == RunStatus.FAILED
    assert desk.step(it.handle, "on_failure").status == StepStatus.CANCELLED
    assert "on_failure.abandoned" in desk.kinds(it.handle)


def test_a_run_paused_while_it_compensates_goes_on_compensating(desk: Desk) -> None:
    it = situations.failing_run(desk)
    it.handle.pause()
    assert it.hand.claim() == ()
    it.handle.resume()
    assert it.handle.status == RunStatus.FAILING
    assert it.hand.work_off() == 1
    assert it.handle.status == RunStatus.FAILED


def test_a_run_paused_before_it_was_due_is_queued_again_by_resume(desk: Desk) -> None:
    it = situations.queued_run(desk)
    it.handle.pause()
    desk.advance(minutes=40)
    assert it.handle.status == RunStatus.PAUSED
    it.handle.resume()
    assert it.handle.status == RunStatus.QUEUED
    desk.advance(seconds=1)
    assert it.handle.status == RunStatus.RUNNING
