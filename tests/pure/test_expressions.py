"""CEL behind its seam: bounded, cached, every error with the expression in it (spec: authoring.md "A graph")."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ezgh_workflows_django.definitions import expressions
from ezgh_workflows_django.errors import ExpressionError


def evaluate(source: str, **names: Any) -> Any:
    return expressions.evaluate(source, names)


class Recorder(Mapping[str, Any]):
    """Names that remember which of them were read."""

    def __init__(self, **values: Any) -> None:
        self._values = values
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("payload.count + 1", 2),
        ('labels.order + "-" + string(payload.count)', "A-1-1"),
        ('steps["await-payment"].paid', 40),
        ('"reserve" in steps', False),
        ("run_id", "r1"),
        ("state.total > 3.0", True),
        ("payload.items.map(i, i * 2)", [2, 4, 6]),
        ("payload.items.filter(i, i > 1).map(j, j * 10)", [20, 30]),
        ("payload.items.exists(i, i == 3) ? payload.items.filter(i, i != 3) : []", [1, 2]),
        ("-payload.items.map(i, i)[1]", -2),
        ("2 in payload.items.map(i, i)", True),
        ("4 in [1, 4].map(i, i)", True),
        ('"x.map(a" + "b)"', "x.map(ab)"),
        ("has(payload.missing)", False),
        ('timestamp("2024-01-01T00:00:00Z")', "2024-01-01T00:00:00Z"),
        ("payload.none", None),
    ],
)
def test_an_expression_sees_the_run(source: str, value: Any) -> None:
    names = {
        "payload": {"count": 1, "items": [1, 2, 3], "none": None},
        "labels": {"order": "A-1"},
        "steps": {"await-payment": {"paid": 40}},
        "state": {"total": 4.5},
        "run_id": "r1",
    }
    assert expressions.evaluate(source, names) == value


def test_only_the_names_it_mentions_are_read() -> None:
    names = Recorder(payload=1, labels={}, steps={}, state={}, run_id="r")
    assert expressions.evaluate("payload + 1", names) == 2
    assert names.read == {"payload"}


@pytest.mark.parametrize("source", ["payload.map(i, i)", "payload.filter(i, i > 0)", "payload.filter(i, i > 0).map(j, j)", "(payload + [1]).map(i, i)"])
def test_a_map_or_filter_over_more_than_1000_items_is_refused_by_name(source: str) -> None:
    with pytest.raises(ExpressionError, match=r"payload.*100[12] items.*at most 1000"):
        evaluate(source, payload=list(range(1_001)))


def test_a_map_over_1000_items_is_allowed() -> None:
    assert len(evaluate("payload.map(i, i)", payload=list(range(1_000)))) == 1_000


def test_a_loop_that_is_not_reached_is_not_refused() -> None:
    assert evaluate("size(payload) > 1000 ? [] : payload.map(i, i)", payload=list(range(5_000))) == []


def test_exists_and_all_may_go_through_long_lists() -> None:
    assert evaluate("payload.exists(i, i == 4999) && payload.all(i, i >= 0)", payload=list(range(5_000)))


@pytest.mark.parametrize(
    "source",
    [
        "payload.map(i, payload.map(j, j))",
        "payload.all(i, payload.exists(j, j == i))",
        "(payload.map(i, i) + payload).map(j, j)",
        "payload.map(i, i)[0].filter(j, true)",
        '{"a": payload.filter(i, true)}.a.map(j, j)',
    ],
)
def test_a_macro_within_a_macro_is_refused(source: str) -> None:
    with pytest.raises(ExpressionError, match="macro within a macro"):
        expressions.compiled(source)


def test_an_expression_has_at_most_2_kb() -> None:
    assert evaluate('"' + "a" * 2_046 + '"') == "a" * 2_046
    with pytest.raises(ExpressionError, match="2049 bytes, at most 2048"):
        evaluate('"' + "a" * 2_047 + '"')


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**70, 10**400])
def test_an_integer_beyond_64_bits_is_refused_by_name(number: int) -> None:
    with pytest.raises(ExpressionError, match="beyond 64 bits"):
        evaluate("payload.n", payload={"deep": [{"n": number}]})


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63)])
def test_an_integer_of_64_bits_stays_what_it_is(number: int) -> None:
    assert evaluate("payload", payload=number) == number


def test_adding_up_large_values_is_refused() -> None:
    """`a + b + …` copies its left side at each sign: 900 of them over 1 MB held the GIL for minutes."""
    with pytest.raises(ExpressionError, match="would copy over 500 MB"):
        evaluate(" + ".join(["payload"] * 200), payload="a" * 1_000_000)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("payload.missing", "there is no missing"),
        ("1 / 0", "zero"),
        ("1.5 + 1", "same type"),
        ("9223372036854775807 + 1", "overflow"),
        ('double("NaN")', "NaN"),
        ('b"x"', "bytes"),
        ('"\\u0000"', "NUL"),
        ("foo(1)", "foo"),
        ("labels.x", "labels"),
    ],
)
def test_every_failure_is_an_expression_error_with_the_expression_in_it(source: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(source, payload={})
    assert reason in str(caught.value)
    assert f"`{source}`" in str(caught.value)


@pytest.mark.parametrize(
    "source", ["", "payload +", "payload..x", "(" * 200 + ")" * 200, "payload.`map`(i, i)", "__limit__(1)", "foo", "payload.map(i, other)"]
)
def test_what_does_not_compile_or_names_the_unknown_is_refused_at_once(source: str) -> None:
    with pytest.raises(ExpressionError):
        expressions.compiled(source)


def test_a_dash_that_reads_as_minus_gets_a_hint() -> None:
    with pytest.raises(ExpressionError, match=r'write steps\["await-payment"\]'):
        expressions.compiled("steps.await-payment.paid")


@pytest.mark.parametrize(
    ("source", "faulty"),
    [
        ("steps.reserve.x", False),
        ('steps["reserve"].x', False),
        ("steps['await-payload']", False),
        ("steps.nope", True),
        ('steps["nope"]', True),
        ("steps.await-payload", True),
    ],
)
def test_a_step_that_the_workflow_does_not_have_is_a_fault(source: str, faulty: bool) -> None:
    assert (expressions.fault(source, {"reserve", "await-payload"}) is not None) is faulty


def test_programs_are_compiled_once() -> None:
    assert expressions.compiled("payload.once") is expressions.compiled("payload.once")


def test_threads_may_share_a_program() -> None:
    results: list[Any] = []
    threads = [threading.Thread(target=lambda n=n: results.append(evaluate("payload.map(i, i + 1)", payload=[n]))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [[n + 1] for n in range(8)]


@settings(max_examples=200, deadline=None)
@given(st.text("payloadmf.()[]{}\"'\\+-*/<>=!&|?:,0123456789 \nrbin_ßé💥", max_size=60), st.lists(st.integers(), max_size=3))
def test_no_text_raises_anything_else(source: str, payload: list[int]) -> None:
    try:
        evaluate(source, payload=payload)
    except ExpressionError as error:
        assert str(error)  # noqa: PT017 - refused is one of two right answers
