"""Handlers, typed (spec: authoring.md "Handlers, typed"; case B50)."""

from __future__ import annotations

import asyncio
import functools
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NotRequired, TypedDict
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from ezgh_workflows_django import Context, InvalidWorkflow, Permanent, Step, Workflow
from ezgh_workflows_django.definitions.bodies import Body
from ezgh_workflows_django.errors import InvalidPayload
from ezgh_workflows_django.protocol import codec


class Colour(Enum):
    RED = "red"


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    id: UUID
    at: datetime
    price: Decimal
    colour: Colour
    lines: list[Line]
    note: str | None = None


@dataclass
class Defaults:
    name: str = "nobody"
    size: int = 0


@dataclass
class Joined:
    await_payment: int
    reserve: str | None


class Payment(TypedDict):
    paid: int
    note: NotRequired[str]


class JoinedDict(TypedDict):
    await_payment: Payment | None


class Model(BaseModel):
    await_payment: Line = Field(alias="await-payment")


class JoinedModel(BaseModel):
    await_payment: int | str


ORDER = {
    "id": "12345678-1234-5678-1234-567812345678",
    "at": "2024-01-01T09:00:00.123456Z",
    "price": "1.10",
    "colour": "red",
    "lines": [{"sku": "x", "count": 2}],
    "note": None,
}


def taking(annotation: Any, default: Any = ...) -> Body:
    def body(input: Any) -> Any:
        return input

    body.__annotations__ = {"input": annotation}
    body.__defaults__ = None if default is ... else (default,)
    return Body(body, "order/ship")


def returning(annotation: Any) -> Body:
    def body() -> Any: ...

    body.__annotations__ = {"return": annotation}
    return Body(body, "order/ship")


def plain(input):  # type: ignore[no-untyped-def]  # bodies without annotations are what is tested
    return input


def test_an_unannotated_body_gets_plain_json() -> None:
    assert Body(plain, "w/s").decode({"a": [1]}) == {"a": [1]}
    assert Body(plain, "w/s").decode(None, has_input=False) is None
    assert Body(plain, "w/s").input_schema() is None


def test_a_dataclass_comes_back_as_it_went() -> None:
    """Case B50: the same value and type, from what was stored."""
    order = taking(Order).decode(ORDER)
    assert order == Order(UUID(ORDER["id"]), datetime(2024, 1, 1, 9, 0, 0, 123456, tzinfo=UTC), Decimal("1.10"), Colour.RED, [Line("x", 2)])  # type: ignore[arg-type]  # a literal dict
    assert returning(Order).encode(order) == ORDER


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (tuple[int, str], (1, "a")),
        (dict[int, Decimal], {1: Decimal("1.10")}),
        (UUID, UUID(int=1)),
        (datetime, datetime(2024, 1, 1)),  # noqa: DTZ001 - one without a zone stays one
        (date, date(2024, 1, 1)),
        (Colour, Colour.RED),
        (set[int], {1, 2}),
        (bytes, b"text"),
        (int, 2**60),
        (float, 0.1 + 0.2),
        (Payment, {"paid": 1}),
        (list[Payment], [{"paid": 1, "note": "x"}]),
        (Line | None, Line("x")),
        (Annotated[int, Field(gt=0)], 5),
    ],
)
def test_a_result_of_its_type_is_read_back_equal(annotation: Any, value: Any) -> None:
    """Case B50."""
    text = codec.dumps(returning(annotation).encode(value), limit=None, what="output")
    again = taking(annotation).decode(codec.loads(text))
    assert (again, type(again)) == (value, type(value))


@pytest.mark.parametrize(
    ("annotation", "empty"),
    [
        (Defaults, Defaults()),
        (int, 0),
        (str, ""),
        (float, 0.0),
        (bool, False),
        (list[int], []),
        (dict[str, int], {}),
        (set[int], set()),
        (int | None, None),
        (None, None),
        (Any, None),
        (Decimal, Decimal(0)),
        (Line | None, None),
    ],
)
def test_a_run_without_payload_gives_the_empty_value(annotation: Any, empty: Any) -> None:
    value = taking(annotation).decode(None, has_input=False)
    assert (value, type(value)) == (empty, type(empty))


@pytest.mark.parametrize("annotation", [Order, datetime, date, UUID, Colour, Annotated[int, Field(gt=0)], Payment])
def test_a_type_without_an_empty_value_fails_permanently(annotation: Any) -> None:
    with pytest.raises(Permanent, match="order/ship: the run was started without a payload"):
        taking(annotation).decode(None, has_input=False)


def test_a_default_of_the_parameter_is_the_empty_value() -> None:
    assert taking(int, default=7).decode(None, has_input=False) == 7
    assert taking(int, default=7).decode(5) == 5


@pytest.mark.parametrize(
    ("annotation", "value", "field"),
    [
        (Order, ORDER | {"price": "cheap"}, "input.price"),
        (Order, ORDER | {"lines": [{"sku": "x"}, {"sku": "y", "count": "many"}]}, "input.lines[1].count"),
        (Order, {key: value for key, value in ORDER.items() if key != "id"}, "input.id"),
        (int, "many", "input does not decode"),
        (Payment, {"paid": None}, "input.paid"),
        (int, None, "input does not decode"),
    ],
)
def test_an_input_that_does_not_decode_says_which_field(annotation: Any, value: Any, field: str) -> None:
    with pytest.raises(Permanent, match="order/ship: ") as caught:
        taking(annotation).decode(value)
    assert field in str(caught.value)


def test_a_failure_of_many_fields_names_a_few() -> None:
    with pytest.raises(Permanent, match="and 9995 more"):
        taking(list[int]).decode(["x"] * 10_000)


@pytest.mark.parametrize(
    ("annotation", "value", "parents", "named"),
    [
        (int, None, ("reserve",), "reserve"),
        (int | str, None, ("reserve",), "reserve"),
        (Order, None, ("await-payment",), "await-payment"),
        (Joined, {"await-payment": None, "reserve": None}, ("await-payment", "reserve"), "await-payment"),
        (dict[str, int], {"a": 1, "b": None}, ("a", "b"), "b"),
        (JoinedModel, {"await-payment": None, "b": 1}, ("await-payment", "b"), "await-payment"),
    ],
)
def test_a_null_that_is_not_allowed_names_the_parent(annotation: Any, value: Any, parents: tuple[str, ...], named: str) -> None:
    with pytest.raises(Permanent, match=f"step {named} returned nothing"):
        taking(annotation).decode(value, parents=parents)


@pytest.mark.parametrize(
    ("annotation", "value", "parents", "decoded"),
    [
        (int | None, None, ("a",), None),
        (Joined, {"await-payment": 1, "reserve": None}, ("await-payment", "reserve"), Joined(1, None)),
        (JoinedDict, {"await-payment": {"paid": 3}, "other": 1}, ("await-payment", "other"), {"await_payment": {"paid": 3}}),
        (dict[str, int], {"await-payment": 1, "b": 2}, ("await-payment", "b"), {"await-payment": 1, "b": 2}),
    ],
)
def test_parents_fill_the_fields_of_their_names(annotation: Any, value: Any, parents: tuple[str, ...], decoded: Any) -> None:
    assert taking(annotation).decode(value, parents=parents) == decoded


def test_an_alias_keeps_the_dash() -> None:
    decoded = taking(Model).decode({"await-payment": {"sku": "x"}, "b": 1}, parents=("await-payment", "b"))
    assert decoded.await_payment == Line("x")


def test_a_field_named_as_one_parent_is_not_filled_by_another() -> None:
    decoded = taking(Joined).decode({"await-payment": 1, "await_payment": 2, "reserve": None}, parents=("await-payment", "await_payment", "reserve"))
    assert decoded.await_payment == 2


@pytest.mark.parametrize(
    ("annotation", "result"),
    [(float, math.nan), (list[float], [1.0, math.inf]), (Any, {"x": math.nan}), (Line, Line("\0")), (str, "\ud83d"), (bytes, b"\xff"), (int, object())],
)
def test_a_result_that_can_not_be_stored_is_refused(annotation: Any, result: Any) -> None:
    """Cases B05, B06, B07."""
    with pytest.raises(InvalidPayload) as caught:
        returning(annotation).encode(result)
    assert caught.value.path.startswith("output")


def test_a_result_of_another_type_is_encoded_as_what_it_is() -> None:
    assert returning(Line).encode({"price": Decimal("1.10")}) == {"price": "1.10"}
    assert returning(int).encode(None) is None


def test_a_signature_is_read_once_for_what_it_takes() -> None:
    def both(ctx: Any, input: Any) -> Any:
        return ctx, input

    def turned(input: Any, ctx: Any) -> Any:
        return ctx, input

    def by_type(order: Any, context: Context) -> Any:
        return context, order

    def by_name(*, ctx: Any, order: Any) -> Any:
        return ctx, order

    def positional(ctx: Any, order: Any, /) -> Any:
        return ctx, order

    assert [Body(function, "w/s").call("C", "I") for function in (both, turned, by_type, by_name, positional)] == [("C", "I")] * 5


def test_a_body_may_take_nothing() -> None:
    assert Body(lambda: "done", "w/s").call("C", "I") == "done"
    assert Body(lambda ctx: ctx, "w/s").call("C", "I") == "C"
    assert not Body(lambda: None, "w/s").takes_input


def test_async_bodies_are_known() -> None:
    async def body(input: int) -> int:
        return input + 1

    class Callable:
        async def __call__(self, input: int) -> int:
            return input + 2

    assert Body(body, "w/s").is_async
    assert Body(functools.partial(body), "w/s").is_async
    assert Body(Callable(), "w/s").is_async
    assert not Body(plain, "w/s").is_async
    assert asyncio.run(Body(body, "w/s").call(None, Body(body, "w/s").decode("1"))) == 2
    assert Body(Callable(), "w/s").decode("5") == 5


def test_a_typed_body_has_an_input_schema() -> None:
    schema = taking(Line).input_schema()
    assert schema is not None
    assert schema["properties"]["count"] == {"default": 1, "title": "Count", "type": "integer"}


def test_annotations_that_mean_nothing_are_a_fault_of_the_workflow() -> None:
    def body(input: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821  (the fault under test)
        del input

    workflow = Workflow("order", steps=[Step("ship", run=body)])
    with pytest.raises(InvalidWorkflow, match=r"workflow order, step ship: .*Nowhere"):
        workflow.to_spec()
