"""Sums of times: added up, stored, and asked how they spread."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ezgh_workflows_django.engine import distributions
from ezgh_workflows_django.engine.distributions import BOUNDS, Sum


def summed(*seconds: float) -> Sum:
    """The sum of these times."""
    made = Sum()
    for each in seconds:
        made.observe(timedelta(seconds=each))
    return made


TIMES = st.lists(st.floats(-1, 200_000), max_size=30)


@given(TIMES, TIMES)
def test_sums_of_sums_are_sums_and_are_read_as_they_were_stored(one: list[float], other: list[float]) -> None:
    added = summed(*one)
    added.add(summed(*other))
    assert added == summed(*one, *other)
    assert distributions.read(added.count, added.total_ms, added.buckets_text()) == added
    times = [max(0.0, timedelta(seconds=each).total_seconds()) for each in one + other]
    assert dict(added.cumulative()) == {bound: sum(each <= bound for each in times) for bound in BOUNDS}


@given(TIMES.filter(bool), st.sampled_from([0.5, 0.95, 1.0]))
def test_a_quantile_is_in_the_bucket_of_the_time_that_is_that_far_up(times: list[float], share: float) -> None:
    exact = sorted(max(0.0, each) for each in times)[max(0, -int(-share * len(times) // 1) - 1)]
    bound = next(bound for bound in BOUNDS if exact <= bound)
    least = max((each for each in BOUNDS if each < bound), default=0.0)
    found = summed(*times).quantile(share)
    assert found is not None
    assert least <= found <= bound


def test_without_times_there_is_no_quantile() -> None:
    assert Sum(count=3).quantile(0.5) is None


@pytest.mark.parametrize(("text", "bound"), [('{"0.02": 2}', 0.025), ('{"1e9": 2}', float("inf"))])
def test_a_bucket_that_is_no_more_goes_into_the_next_wider_one(text: str, bound: float) -> None:
    assert distributions.read(2, 40, text).buckets == {bound: 2}
