"""Retry arithmetic and durations (cases B12, B13)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ezgh_workflows_django.definitions.durations import in_words, milliseconds
from ezgh_workflows_django.definitions.policies import Retry, key_text

HOUR_MS = 3_600_000


@given(
    failures=st.integers(min_value=-5, max_value=10**6),
    factor=st.floats(min_value=1, max_value=1e308),
    initial=st.integers(min_value=1, max_value=10**9),
    maximum=st.integers(min_value=1, max_value=10**9),
    jitter=st.floats(min_value=0, max_value=1),
    random=st.floats(min_value=0, max_value=1, exclude_max=True),
)
def test_every_delay_is_above_zero_and_at_most_the_maximum(failures: int, factor: float, initial: int, maximum: int, jitter: float, random: float) -> None:
    """Case B12: clamped before the power overflows."""
    retry = Retry(initial=timedelta(milliseconds=initial), maximum=timedelta(milliseconds=maximum), factor=factor, jitter=jitter)
    assert 0 < retry.delay_ms(failures, random) <= maximum


@pytest.mark.parametrize(
    ("failures", "delay"), [(1, 1_000), (2, 2_000), (3, 4_000), (4, 8_000), (9, 256_000), (10, 300_000), (1_000, 300_000), (10**9, 300_000)]
)
def test_delays_double_up_to_five_minutes_by_default(failures: int, delay: int) -> None:
    assert Retry(jitter=0).delay_ms(failures, 0.5) == delay


def test_jitter_spreads_to_both_sides() -> None:
    retry = Retry(jitter=0.1)
    assert (retry.delay_ms(1, 0), retry.delay_ms(1, 0.5), retry.delay_ms(1, 1 - 1e-12)) == (900, 1_000, 1_100)


def test_a_factor_of_one_never_grows() -> None:
    assert Retry(factor=1, jitter=0, initial=3).delay_ms(500, 0) == 3_000


@pytest.mark.parametrize("class_", ["permanent", "nondeterminism", "poison"])
def test_what_can_not_succeed_is_never_retried(class_: str) -> None:
    assert not Retry(max_attempts=5).covers(class_)
    assert not Retry(max_attempts=5, on={class_}).covers(class_)


@pytest.mark.parametrize(
    ("on", "class_", "covered"),
    [("any", "error", True), ("any", "card_declined", True), ({"timeout"}, "timeout", True), ({"timeout"}, "error", False), ("timeout", "error", False)],
)
def test_on_says_which_classes_are_retried(on: Any, class_: str, covered: bool) -> None:
    assert Retry(on=on).covers(class_) is covered


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        (timedelta(days=1), 86_400_000),
        (30, 30_000),
        (0.5, 500),
        (0, 0),
        (timedelta(microseconds=1), 1),
        (timedelta(microseconds=-1), 0),
        (1e-9, 1),
        (-1, -1_000),
        (10**18, 10**21),
    ],
)
def test_durations_are_whole_milliseconds_rounded_up(duration: Any, ms: int) -> None:
    assert milliseconds(duration) == ms


@pytest.mark.parametrize("duration", [True, "30", float("nan"), float("inf"), None])
def test_what_is_no_duration_is_refused(duration: Any) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        milliseconds(duration)


@pytest.mark.parametrize(("ms", "words"), [(30_000, "30s"), (250, "250ms"), (0, "0ms"), (5_400_000, "1h30m"), (259_200_000, "3d"), (90_500, "1m30.5s")])
def test_durations_in_words(ms: int, words: str) -> None:
    assert in_words(ms) == words


@pytest.mark.parametrize("key", [True, 1.5, None, b"x"])
def test_a_key_is_text_a_number_or_a_uuid(key: Any) -> None:
    with pytest.raises(ValueError, match="a key is"):
        key_text(key)
