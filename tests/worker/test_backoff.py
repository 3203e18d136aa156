"""Waits between tries."""

from __future__ import annotations

from ezgh_workflows_django.worker.backoff import Backoff, LeaseBackoff


def test_waits_grow_and_are_capped() -> None:
    backoff = Backoff(first=1, cap=30)
    waits = [backoff.next() for _ in range(8)]
    assert 0.5 <= waits[0] <= 1
    assert 15 <= waits[-1] <= 30


def test_thousands_of_failures_overflow_nothing() -> None:
    backoff = Backoff()
    waits = [backoff.next() for _ in range(5_000)]
    assert max(waits) <= 30


def test_what_the_server_asks_for_comes_first() -> None:
    assert 7 <= Backoff(first=1).next(retry_after=7) <= 8


def test_a_success_starts_over() -> None:
    backoff = Backoff(first=1, cap=30)
    for _ in range(10):
        backoff.next()
    backoff.reset()
    assert backoff.next() <= 1


def test_a_call_that_a_lease_depends_on_never_waits_over_five_seconds() -> None:
    backoff = LeaseBackoff()
    assert max(backoff.next(retry_after=60) for _ in range(100)) <= 5
